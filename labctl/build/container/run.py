"""Runs each program in its own container, which cannot outlive labctl.

A container ends in one of these ways:

- The program ends. Its exit status comes from a file that the container writes last, not from the
  engine's exit status, which has other meanings as well.
- labctl stops it: a time-out, Ctrl-C, an error. labctl makes the engine remove the container.
- labctl is killed. A process of this host removes the container (``host_guard.sh``); no program in
  the container can prevent that. If that process was killed too (e.g. a whole CI job), a program in
  the container sees that labctl's lock is free (``guarded.sh``), unless the source ended it.
- The engine ends it after its time limit.
"""

import os
import secrets
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from io import FileIO
from pathlib import Path

from labctl import process
from labctl.build.container.engine import Engine, Fate, Mount, Restrictions
from labctl.build.diagnose import disk_is_full
from labctl.errors import (
    CompileError,
    HostError,
    HostTimeout,
    LabctlError,
    ProgramTimeout,
    ToolMissing,
)
from labctl.files import host_writes
from labctl.locks import locked
from labctl.process import Completed
from labctl.removal import remove_tree
from labctl.units import size

#: Runs the engine's program on this host to its end; arguments: its words, its working folder, and
#: a descriptor that it inherits.
Launch = Callable[[list[str], Path, int], Completed]

_HOST_GUARD = Path(__file__).with_name("host_guard.sh")
_CONTROL = "/labctl"
#: Time (s) after labctl's own limit when the engine ends a container.
_GRACE_SECONDS = 60.0
_GUARD_SECONDS = 5.0
_MOST_STATUS_BYTES = 300


@dataclass(frozen=True)
class Containers:
    """Containers of one image.

    Args:
        label: ``KEY=VALUE``, the same for all containers of a build.
        folder: a folder of this host; each program has a folder in it while it runs.
        network: True for the engine's usual network, False for none.
    """

    engine: Engine
    image: str
    label: str
    folder: Path
    network: bool = False
    mounts: tuple[Mount, ...] = ()
    restrictions: Restrictions | None = None

    def run(
        self,
        words: Sequence[str],
        *,
        launch: Launch,
        seconds: float,
        env: Mapping[str, str],
        cwd: str = "/",
    ) -> Completed:
        """Run a program to its end, whatever its exit status, only with the environment ``env``.

        ``launch`` limits it to ``seconds``. Raises ToolMissing (not in the image), HostTimeout and
        HostError. With restrictions, raises CompileError and ProgramTimeout instead, unless the
        host itself proves that it is at fault.
        """
        name = f"labctl-{secrets.token_hex(6)}"
        with self._own_folder() as own, self._removed_at_end(name) as held:
            control = own / "control"
            mounts = [*self.mounts, Mount(control, _CONTROL, writable=True)]
            argv = self.engine.run_words(
                self.image,
                name=name,
                label=self.label,
                network=self.network,
                mounts=mounts,
                cwd=cwd,
                seconds=seconds + _GRACE_SECONDS,
                restrictions=self.restrictions,
            )
            argv += ["-c", _script("guarded.sh"), "labctl", words[0]]
            argv += [*(f"{key}={value}" for key, value in env.items()), *words]
            try:
                with self._limited(name, mounts):
                    done = launch(argv, own, held)
            except HostTimeout as error:
                if self.restrictions is not None and self.engine.fate(name).began:
                    raise ProgramTimeout(
                        f"{words[0]} took more than {seconds:g} s, and was ended",
                        details=error.details,
                    ) from error
                took = error.message.partition(" did not ")[2]
                raise HostTimeout(
                    f"{words[0]} in a container did not {took}", details=error.details
                ) from error
            status = _written(control / "status")
            # podman's conmon writes this file in its working folder, outside of the container.
            out_of_memory = self.restrictions is not None and (own / "oom").exists()
            if status.isdecimal() and (int(status) == 0 or not out_of_memory):
                return replace(done, argv=tuple(words), exit_status=int(status))
            if self.restrictions is not None:
                fate = self.engine.fate(name)
                out_of_memory |= fate.out_of_memory
                raise self._broken_off(words[0], done, replace(fate, out_of_memory=out_of_memory))
            if status.startswith("missing "):
                raise ToolMissing(
                    f"not in the container's image: {status.partition(' ')[2]}",
                    hint="add it to the Containerfile, or use another one",
                )
            raise self._ended_early(words[0], done)

    def _limited(self, name: str, mounts: Sequence[Mount]) -> AbstractContextManager[None]:
        if self.restrictions is None:
            return nullcontext()
        from labctl.build.container.disk import limited_disk

        folders = [mount.host for mount in mounts if mount.writable]
        return limited_disk(folders, self.restrictions.disk_bytes, lambda: self._end(name))

    @contextmanager
    def _own_folder(self) -> Iterator[Path]:
        """Yield a folder for one container.

        The container sees ``control`` in it; a file there stays locked while this process lives.
        """
        with host_writes(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            made = Path(tempfile.mkdtemp(dir=self.folder))
        try:
            with locked(made / "control" / "alive", timeout=0):
                yield made
        finally:
            remove_tree(made)

    @contextmanager
    def _removed_at_end(self, name: str) -> Iterator[int]:
        """Remove a container at the end, also if this process is killed before.

        Yields the descriptor that the engine's program has to inherit. Raises HostError.
        """
        with _pipe() as (alive_read, alive), _pipe() as (held_read, held):
            words = ["/bin/sh", str(_HOST_GUARD), str(held_read.fileno())]
            guard = process.start(
                [*words, *self.engine.remove_words(name)],
                cwd=self.folder,
                stdin=alive_read.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                keep_open=(held_read.fileno(),),
            )
            try:
                yield held.fileno()
            finally:
                if self._end(name):
                    alive.write(b"gone\n")
                alive.close()
                held.close()
                with suppress(subprocess.TimeoutExpired):  # the guard tries longer than this
                    guard.wait(timeout=_GUARD_SECONDS)

    def _end(self, name: str) -> bool:
        """Remove a container; return True if it is gone. Otherwise the guard continues."""
        try:
            self.engine.remove(name)
        except HostError:
            return False
        return True

    def _broken_off(self, program: str, done: Completed, fate: Fate) -> LabctlError:
        """Return the error of a restricted container; only the host's own facts blame the host."""
        assert self.restrictions is not None
        if not fate.began or disk_is_full(self.folder):
            return self._ended_early(program, done)
        details = done.tail(12) or None
        if fate.out_of_memory:
            most = size(self.restrictions.memory_bytes)
            return CompileError(f"{program} needed more than {most} of memory", details=details)
        return CompileError(f"the container ended before {program} did", details=details)

    def _ended_early(self, program: str, done: Completed) -> HostError:
        details = done.tail(12) or None
        if disk_is_full(self.folder):
            return HostError(f"{program} in a container: the disk is full", details=details)
        # https://docs.podman.io/en/latest/markdown/podman-run.1.html#exit-status; docker: the same
        if self.restrictions is not None or done.exit_status in (125, 126, 127):
            return HostError(f"{self.engine} cannot start a container", details=details)
        return HostError(
            f"the container ended before {program} did: killed, or out of memory",
            hint="fewer compilers at once need less memory: --jobs 1",
            details=details,
        )


@contextmanager
def _pipe() -> Iterator[tuple[FileIO, FileIO]]:
    """Yield both ends of a pipe, unbuffered: first the reading end."""
    reading, writing = os.pipe()
    with FileIO(reading, "r") as read_end, FileIO(writing, "w") as write_end:
        yield read_end, write_end


def _written(path: Path) -> str:
    """Return the line that a container wrote; empty if there is none.

    Other programs in the container can write there too, so a link is not followed.
    """
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return ""
    try:
        return os.read(file, _MOST_STATUS_BYTES).decode("ascii", "replace").strip()
    except OSError:
        return ""
    finally:
        os.close(file)


@cache
def _script(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")
