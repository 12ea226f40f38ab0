"""The ssh builder: compilers of another machine."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path

from labctl.build.gcc import find_gcc
from labctl.build.manifest import BuilderKind, CompilerKind, Machine
from labctl.build.progress import BuildProgress, OnProgress, Step
from labctl.build.remote.host import OpenLink, connected, run_script
from labctl.build.remote.sources import HostSources
from labctl.build.remote.watchdog import SILENCE_SECONDS, kept
from labctl.build.remote.workspace import LOG_BYTES, RemoteWorkspace
from labctl.build.toolchain import Needs, Toolchain
from labctl.build.workspace import Builder, Folders, Workspace, WorkspaceInputs
from labctl.config.lab import BuildHost
from labctl.config.target import Target
from labctl.errors import HostError, ToolMissing
from labctl.transport.ssh.link import SshLink
from labctl.transport.ssh.login import log_in

ASK_SECONDS = 30.0
_ASK = 'command -v -- "$1" >/dev/null || exit 127; exec "$@" </dev/null 2>/dev/null'


class SshBuilder(Builder):
    """A build host of the lab.

    Args:
        name: name in ``hosts``.
        hosts: build hosts of devices.yaml; the connection may go through others.
        root: the lab's folder.
        silence_seconds: the host ends the build after this time without a message from labctl.
        log_bytes: maximum output of a program.
        open_link: logs in, within its own limits.
    """

    kind = BuilderKind.SSH

    def __init__(
        self,
        name: str,
        hosts: Mapping[str, BuildHost],
        root: Path,
        *,
        silence_seconds: int = SILENCE_SECONDS,
        log_bytes: int = LOG_BYTES,
        open_link: OpenLink = log_in,
    ):
        self.name = name
        self._silence_seconds = silence_seconds
        self._log_bytes = log_bytes
        self._open_link = open_link
        self._hosts = hosts
        self._root = root

    def offer(self, target: Target, needs: Needs) -> Toolchain:
        """Return the GCC there: a cross GCC, or the machine's own if its kind is the target's."""
        if needs.asked is CompilerKind.ZIG:
            raise ToolMissing(
                "zig runs on this host only", hint="--builder local, or --compiler gcc"
            )
        with self._connected() as link:

            def ask(words: Sequence[str]) -> str | None:
                answer = run_script(link, _ASK, *words, timeout=ASK_SECONDS)
                return answer.text if answer.exit_status == 0 else None

            on = Machine(
                builder=self.kind,
                machine=_machine(self.name, ask(["uname", "-m"])),
                system=_system(ask(["cat", "/etc/os-release"])),
                host=self.name,
            )
            toolchain = find_gcc(ask, target, needs, on=on)
            jobs = self._hosts[self.name].jobs or _jobs(
                ask(["nproc"]), ask(["cat", "/proc/meminfo"])
            )
        return replace(toolchain, jobs=jobs)

    def folders(self, inputs: WorkspaceInputs) -> Folders:
        """Return the folders below the host's workdir."""
        there = self._folder(inputs)
        return Folders(source=f"{there}/source", tree=f"{there}/tree")

    @contextmanager
    def open(
        self,
        inputs: WorkspaceInputs,
        *,
        lock: int,  # noqa: ARG002 - no program of this host takes part; the host has its own lock
        on_progress: OnProgress,
    ) -> Iterator[Workspace]:
        """Make the folders there, and unpack the source in them."""
        host = self._hosts[self.name]
        with (
            self._connected() as link,
            kept(
                link,
                host.workdir,
                inputs.name,
                silence_seconds=self._silence_seconds,
                keep_tree=host.keep_trees,
                on_busy=lambda: on_progress(
                    BuildProgress(Step.WAIT, f"another build of this on {self.name} is at it")
                ),
            ) as watchdog,
        ):
            folder, folders = self._folder(inputs), self.folders(inputs)
            sources = HostSources(link, self.name, host.workdir)
            sources.bring(inputs, folder, folders.source, on_progress)
            yield RemoteWorkspace(link, watchdog, folder, folders, self._log_bytes)

    def _connected(self) -> AbstractContextManager[SshLink]:
        return connected(self.name, self._hosts, self._root, open_link=self._open_link)

    def _folder(self, inputs: WorkspaceInputs) -> str:
        return f"{self._hosts[self.name].workdir}/builds/{inputs.name}"


def _machine(name: str, output: str | None) -> str:
    machine = (output or "").strip()
    if not re.fullmatch(r"[A-Za-z0-9_.-]{1,32}", machine):
        raise HostError(
            f"build host {name!r} does not report its machine type", details=machine[:200] or None
        )
    return machine


def _system(output: str | None) -> str | None:
    """Return the name of an operating system from its os-release(5)."""
    found = re.search(r'^PRETTY_NAME=(["\']?)([^"\'\n]{1,100})\1$', output or "", re.MULTILINE)
    return found[2] if found and found[2].isprintable() else None


def _jobs(nproc: str | None, meminfo: str | None) -> int | None:
    """Return the number of parallel compilers: one per core, at most one per GB of free memory."""
    cores = re.fullmatch(r"\s*(\d{1,5})\s*", nproc or "")
    free = re.search(r"^MemAvailable:\s+(\d{1,15}) kB$", meminfo or "", re.MULTILINE)
    if cores is None or free is None:
        return None
    return max(1, min(int(cores[1]), int(free[1]) >> 20))
