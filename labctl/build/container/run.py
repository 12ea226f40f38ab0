"""Runs single programs, each in its own container, which cannot outlive labctl.

A container ends in one of these ways:

- The program ends. Its exit status comes from a file that the container writes last, never from
  that of the engine, which means other things as well.
- labctl stops it: a time-out, Ctrl-C, an error. labctl makes the engine remove the container.
- labctl is killed. It held a lock on a file, which the container waits for (``guarded.sh``).
"""

import os
import secrets
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from pathlib import Path

from labctl.build.container.engine import Engine, Mount, Restrictions
from labctl.build.diagnose import disk_is_full
from labctl.errors import HostError, HostTimeout, ToolMissing
from labctl.files import host_writes, locked
from labctl.process import Completed

#: Starts a program of this host, the engine's, and waits for its end.
Launch = Callable[[list[str]], Completed]

_CONTROL = "/labctl"
_MOST_STATUS_BYTES = 300


@dataclass(frozen=True)
class Containers:
    """Containers of one image.

    Args:
        label: ``KEY=VALUE`` that those of one build have in common.
        folder: a folder of this host; each program has a folder in it while it runs.
        network: whether they get the engine's usual network; otherwise they have none.
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
        env: Mapping[str, str],
        cwd: str = "/",
    ) -> Completed:
        """Run a program to its end, whatever its exit status, in an environment of ``env`` only.

        Raises ToolMissing (it is not in the image), HostTimeout and HostError.
        """
        name = f"labctl-{secrets.token_hex(6)}"
        with self._control() as control:
            mounts = [*self.mounts, Mount(control, _CONTROL, writable=True)]
            argv = self.engine.run_words(
                self.image,
                name=name,
                label=self.label,
                network=self.network,
                mounts=mounts,
                cwd=cwd,
                restrictions=self.restrictions,
            )
            argv += ["-c", _guarded(), "labctl", words[0]]
            argv += [*(f"{key}={value}" for key, value in env.items()), *words]
            status = control / "status"
            try:
                with self._limited(name, mounts):
                    done = launch(argv)
            except HostTimeout as error:
                self._end(name)
                took = error.message.partition(" did not ")[2]
                raise HostTimeout(
                    f"{words[0]} in a container did not {took}", details=error.details
                ) from error
            except BaseException:
                self._end(name)
                raise
            status_text = _written(status)
        if status_text.startswith("missing "):
            raise ToolMissing(
                f"not in the container's image: {status_text.partition(' ')[2]}",
                hint="add it to the Containerfile, or use another one",
            )
        if not status_text.isdecimal():
            self._end(name)
            raise self._ended_early(words[0], done)
        return replace(done, argv=tuple(words), exit_status=int(status_text))

    def _limited(self, name: str, mounts: Sequence[Mount]) -> AbstractContextManager[None]:
        if self.restrictions is None:
            return nullcontext()
        from labctl.build.container.disk import limited_disk

        folders = [mount.host for mount in mounts if mount.writable]
        return limited_disk(folders, self.restrictions.disk_bytes, lambda: self._end(name))

    @contextmanager
    def _control(self) -> Iterator[Path]:
        """Yield a folder shared with one container; a file in it stays locked while this process
        lives.
        """
        with host_writes(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            made = tempfile.TemporaryDirectory(dir=self.folder, ignore_cleanup_errors=True)
        with made as name, locked(Path(name) / "alive", timeout=0):
            yield Path(name)

    def _end(self, name: str) -> None:
        # What cannot be removed now ends by itself when labctl does, and the next build of the same
        # removes what is left; the error that brought us here says more.
        with suppress(HostError):
            self.engine.remove(name)

    def _ended_early(self, program: str, done: Completed) -> HostError:
        details = done.tail(12) or None
        if disk_is_full(self.folder):
            return HostError(f"{program} in a container: the disk is full", details=details)
        # https://docs.podman.io/en/latest/markdown/podman-run.1.html#exit-status, docker's too
        if done.exit_status in (125, 126, 127):
            return HostError(f"{self.engine} cannot start a container", details=details)
        return HostError(
            f"the container ended before {program} did: killed, or out of memory",
            hint="fewer compilers at once need less memory: --jobs 1",
            details=details,
        )


def _written(path: Path) -> str:
    """Return the line that a container wrote; empty where there is none.

    What else runs in the container can write there as well: a link is not followed.
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
def _guarded() -> str:
    return files(__package__).joinpath("guarded.sh").read_text()
