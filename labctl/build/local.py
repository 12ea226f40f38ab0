"""The local builder: compilers run on this host, in folders of labctl's cache."""

import os
import platform
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from labctl import process
from labctl.build.gcc import find_gcc
from labctl.build.manifest import BuilderKind, CompilerKind, Machine
from labctl.build.progress import OnProgress
from labctl.build.toolchain import Needs, Toolchain, kit_toolchain
from labctl.build.workspace import Builder, Folders, Program, Workspace, WorkspaceInputs, too_large
from labctl.build.zig import locate, offer_zig
from labctl.config.target import Target
from labctl.errors import HostError, HostTimeout, ToolMissing
from labctl.files import host_writes, open_whole, write_atomic
from labctl.folders import cache_dir
from labctl.removal import remove_tree

ASK_SECONDS = 20.0
_HOLE = bytes(1 << 20)


class LocalBuilder(Builder):
    """This host: zig, cmake and ninja of PyPI, or an installed GCC."""

    kind = BuilderKind.LOCAL

    def offer(self, target: Target, needs: Needs) -> Toolchain:
        """Return zig, or GCC if it is requested or zig is not installed. Raises ToolMissing."""
        on = Machine(builder=self.kind, machine=platform.machine(), system=_system())
        if not needs.compiler:
            return kit_toolchain(on)
        if needs.asked is CompilerKind.GCC:
            return self._gcc(target, needs, on)
        try:
            return offer_zig(needs, on, target)
        except ToolMissing as no_zig:
            if needs.asked is CompilerKind.ZIG or needs.zig:
                raise
            try:
                return self._gcc(target, needs, on)
            except ToolMissing:
                raise no_zig from None

    def folders(self, inputs: WorkspaceInputs) -> Folders:
        """Return the source folder itself, and a tree that is kept for the next build."""
        return Folders(source=str(inputs.source), tree=str(inputs.home / "tree"))

    @contextmanager
    def open(
        self,
        inputs: WorkspaceInputs,
        *,
        lock: int,
        on_progress: OnProgress,  # noqa: ARG002 - nothing is sent
    ) -> Iterator[Workspace]:
        """Make the tree. Raises HostError."""
        folders = self.folders(inputs)
        with host_writes(Path(folders.tree)):
            Path(folders.tree).mkdir(parents=True, exist_ok=True)
        yield LocalWorkspace(folders, lock)

    def _gcc(self, target: Target, needs: Needs, on: Machine) -> Toolchain:
        try:
            own = locate()
        except ToolMissing:
            return find_gcc(_ask, target, needs, on=on)
        return find_gcc(_ask, target, needs, on=on, cmake=str(own.cmake), ninja=str(own.ninja))


class LocalWorkspace(Workspace):
    """Folders of this host."""

    def __init__(self, folders: Folders, lock: int):
        self.folders = folders
        self._tree = Path(folders.tree)
        self._lock = lock

    def run(self, program: Program) -> process.Completed:
        """Run it here; it inherits the build's lock."""
        return process.run_streaming(
            program.words,
            timeout=program.timeout,
            on_line=program.on_line,
            log=program.log,
            cwd=self._tree if program.cwd is None else Path(program.cwd),
            env={**_kept_environment(), **program.env},
            keep_open=(self._lock,),
        )

    def read(self, name: str) -> str | None:
        """Return the text of a file of the tree."""
        path = self._tree / name
        try:
            # A build may have left anything at this path; opening a pipe would block.
            return path.read_text(encoding="utf-8") if path.is_file() else None
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            raise HostError(f"cannot read {path}: {error}") from error

    def write(self, name: str, text: str) -> None:
        """Write a file of the tree."""
        write_atomic(self._tree / name, text)

    def clear(self) -> None:
        """Empty the tree."""
        with host_writes(self._tree):
            remove_tree(self._tree)
            self._tree.mkdir()

    def exists(self, path: str) -> bool:
        """Return True if it exists here."""
        return (self._tree / path).exists()

    def fetch(self, path: str, to: Path, *, most: int | None = None) -> None:
        """Copy the file within this host; holes stay holes."""
        with host_writes(to):
            to.parent.mkdir(parents=True, exist_ok=True)
            with open_whole(self._tree / path) as file, to.open("wb") as copy:
                whole = os.fstat(file.fileno()).st_size
                if most is not None and whole > most:
                    raise too_large(Path(path).name, most)
                while block := file.read(len(_HOLE)):
                    if block == _HOLE[: len(block)]:
                        copy.seek(len(block), os.SEEK_CUR)
                    else:
                        copy.write(block)
                copy.truncate()


def _kept_environment() -> dict[str, str]:
    """Return the variables of this process's environment that build programs get.

    User variables that could change the result (CFLAGS, CC, CMAKE_GENERATOR, ...) are left out.
    """
    kept = ("PATH", "HOME", "TMPDIR", "USER", "LOGNAME")
    return {name: os.environ[name] for name in kept if name in os.environ} | {
        # Builds ask git for versions; a repository around the cache is not the source's.
        "GIT_CEILING_DIRECTORIES": str(cache_dir()),
    }


def _ask(words: Sequence[str]) -> str | None:
    try:
        done = process.run(words, timeout=ASK_SECONDS, env={**_kept_environment(), "LC_ALL": "C"})
    except (ToolMissing, HostTimeout):
        return None
    return done.text if done.exit_status == 0 else None


def _system() -> str | None:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME")
    except OSError:
        return None
