"""Container engines: podman, or docker if podman is missing.

labctl uses only an engine's command line, with this process's environment, so the user's settings
(``CONTAINERS_CONF``, ``CONTAINERS_STORAGE_CONF``, ``DOCKER_HOST``, ...) apply.
"""

import os
import re
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from labctl import process
from labctl.errors import ConfigError, HostError, ToolMissing

ASK_SECONDS = 60.0
REMOVE_SECONDS = 60.0

_ENFORCE = Path("/sys/fs/selinux/enforce")
_HINT = "Debian, Ubuntu: apt-get install podman"


@dataclass(frozen=True)
class Mount:
    """A folder of this host in a container. Raises ConfigError if engines cannot name it."""

    host: Path
    inside: str
    writable: bool = False

    def __post_init__(self) -> None:
        path = f"{self.host}{self.inside}"
        # Undecodable bytes of a name are lone surrogates.
        if ":" in path or re.search("[\ud800-\udfff]", path):
            raise ConfigError(
                f"no container engine can mount {self.host} as {self.inside}:"
                " there is a ':' in the path, or what is no UTF-8",
                hint="move it, or use another builder",
            )

    @property
    def words(self) -> tuple[str, str]:
        """Option of the engine."""
        return ("--volume", f"{self.host}:{self.inside}:{'rw' if self.writable else 'ro'}")


@dataclass(frozen=True)
class Restrictions:
    """Limits of containers with untrusted programs: they get no rights of root."""

    memory_bytes: int
    processes: int
    #: Maximum size of one file.
    file_bytes: int
    #: Maximum size of all files together, in the writable folders of this host.
    disk_bytes: int

    @property
    def words(self) -> tuple[str, ...]:
        """Options of the engine."""
        nproc = self.processes
        return (
            *("--cap-drop", "all", "--security-opt", "no-new-privileges"),
            *("--read-only", "--tmpfs", "/tmp:rw,exec,size=1g"),  # noqa: S108 - in the container
            *("--memory", str(self.memory_bytes), "--pids-limit", str(self.processes)),
            # Without these two, podman requests higher limits than it may set.
            *("--ulimit", "nofile=1024:1024", "--ulimit", f"nproc={nproc}:{nproc}"),
            *("--ulimit", f"fsize={self.file_bytes}:{self.file_bytes}", "--ulimit", "core=0:0"),
        )


@dataclass(frozen=True)
class Fate:
    """End of a container, from the engine; programs in the container cannot change it."""

    began: bool
    out_of_memory: bool
    """True if the kernel ended a program in it because of the container's own limit."""


@dataclass(frozen=True)
class Engine:
    """An engine that works on this host.

    Args:
        program: ``podman`` or ``docker``.
        version: version that it reports.
        user: ``UID:GID`` to run as, so that files belong to the user of labctl; ``None`` if root in
            a container is already that user.
        selinux: True if the kernel enforces SELinux.
    """

    program: str
    version: str
    user: str | None = None
    selinux: bool = False

    def __str__(self) -> str:
        return f"{self.program} {self.version}"

    def ask(self, *words: str) -> process.Completed:
        """Run a short command of the engine. Raises HostError."""
        return process.run([self.program, *words], timeout=ASK_SECONDS)

    def image_id(self, reference: str) -> str | None:
        """Return the digest of an image of this host, ``sha256:...``; ``None`` if it is missing.

        Raises HostError.
        """
        done = self.ask("image", "inspect", "--format", "{{.Id}}", reference)
        if done.exit_status == 0:
            return f"sha256:{done.text.strip().removeprefix('sha256:')}"
        output = done.tail()
        if re.search(r"no such image|image not known|failed to find image", output, re.IGNORECASE):
            return None
        raise HostError(f"{self.program} cannot look at its images", details=output)

    def run_words(
        self,
        image: str,
        *,
        name: str,
        label: str,
        network: bool,
        mounts: Sequence[Mount],
        cwd: str,
        seconds: float,
        restrictions: Restrictions | None = None,
    ) -> list[str]:
        """Return the start of a command line that runs a program in a new container.

        The program's words follow. The container stays after its end, for inspection. podman ends
        it after ``seconds``, even if nobody waits for it any more; docker has no such option.
        """
        words = [self.program, "run", "--name", name, "--label", label]
        words += ["--timeout", f"{seconds:.0f}"] if self.program == "podman" else []
        # "rm" then kills programs at once, without asking them to end.
        words += ["--stop-timeout", "0"]
        # labctl writes its own log; the engine's would be a second copy.
        words += ["--log-driver", "none", "--hostname", "build", "--workdir", cwd]
        words += [] if network else ["--network", "none"]
        words += [] if restrictions is None else restrictions.words
        words += [] if self.user is None else ["--user", self.user]
        # Relabelling (:z) would change the user's own folders permanently.
        words += ["--security-opt", "label=disable"] if self.selinux else []
        words += [word for mount in mounts for word in mount.words]
        return [*words, "--entrypoint", "sh", image]

    def fate(self, name: str) -> "Fate":
        """Return how a container ended that still exists. Raises HostError."""
        form = "{{.State.StartedAt}}\t{{.State.OOMKilled}}"
        done = self.ask("container", "inspect", "--format", form, name)
        started, _, killed = done.text.strip().partition("\t")
        # Go's zero time means never.
        began = done.exit_status == 0 and not started.startswith("0001-")
        return Fate(began=began, out_of_memory=killed == "true")

    def remove_words(self, *names: str) -> list[str]:
        """Return the command line that ends containers and removes them with their volumes."""
        return [self.program, "rm", "--force", "--volumes", *names]

    def remove(self, name: str) -> None:
        """End a container and remove it, if it exists. Raises HostError."""
        done = self._remove([name])
        if done.exit_status != 0 and self.listed(f"name=^{name}$"):
            raise HostError(f"{self.program} cannot end {name}", details=done.tail())

    def remove_labelled(self, label: str) -> None:
        """End and remove containers that an earlier labctl, or a crash of this host, left behind.

        Raises HostError.
        """
        left = self.listed(f"label={label}")
        if not left:
            return
        done = self._remove(left)
        if done.exit_status != 0 and self.listed(f"label={label}"):
            raise HostError(
                f"{self.program} cannot end the containers of an earlier build",
                hint=f"{self.program} rm --force {' '.join(left)}",
                details=done.tail(),
            )

    def _remove(self, names: Sequence[str]) -> process.Completed:
        return process.run(self.remove_words(*names), timeout=REMOVE_SECONDS)

    def listed(self, *filters: str) -> list[str]:
        """Return the ids of containers that match all filters, running or not. Raises HostError."""
        words = [word for given in filters for word in ("--filter", given)]
        done = self.ask("ps", "--all", "--quiet", *words)
        if done.exit_status != 0:
            raise HostError(f"{self.program} cannot list its containers", details=done.tail())
        return done.text.split()

    def label(self, name: str, key: str) -> str | None:
        """Return the value of a container's label; None if the container is gone."""
        form = f'{{{{index .Config.Labels "{key}"}}}}'
        done = self.ask("container", "inspect", "--format", form, name)
        return done.text.rstrip("\n") if done.exit_status == 0 else None


def find_engine(enforce: Path = _ENFORCE) -> Engine:
    """Find the container engine of this host; ``enforce``: the kernel's SELinux file.

    Raises ToolMissing if no engine is installed, HostError if no installed engine works.
    """
    broken: list[str] = []
    for program, examine in (("podman", _podman), ("docker", _docker)):
        if shutil.which(program) is None:
            continue
        try:
            return replace(examine(), selinux=_is_enforcing(enforce))
        except HostError as error:
            broken.append(f"{error.message}\n{error.details or ''}".strip())
    if broken:
        raise HostError(
            broken[0].partition("\n")[0],
            hint="see `podman info` or `docker info`",
            details="\n".join(broken),
        )
    raise ToolMissing("neither podman nor docker is installed on this host", hint=_HINT)


def _podman() -> Engine:
    """Return podman. Rootless or started by root, root in a container is the invoking user."""
    return Engine("podman", _said("podman", "version", "--format", "{{.Client.Version}}"))


def _docker() -> Engine:
    output = _said("docker", "info", "--format", "{{.ServerVersion}} {{json .SecurityOptions}}")
    version, _, options = output.partition(" ")
    rootless = "rootless" in options
    is_root = os.geteuid() == 0
    user = None if rootless or is_root else f"{os.geteuid()}:{os.getegid()}"
    return Engine("docker", version, user)


def _said(program: str, *words: str) -> str:
    done = process.run([program, *words], timeout=ASK_SECONDS)
    if done.exit_status != 0:
        raise HostError(f"{program} is installed but does not work here", details=done.tail(8))
    return done.text.strip()


def _is_enforcing(enforce: Path) -> bool:
    with suppress(OSError):  # no SELinux
        return enforce.read_text(encoding="utf-8").strip() == "1"
    return False
