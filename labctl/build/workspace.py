"""The joint between a build and the machine that it runs on.

A :class:`Builder` is a machine that can build: it offers a toolchain for a target, and opens a
:class:`Workspace` for one build. What commands a build consists of is decided elsewhere
(``labctl.build.script``), the same for all builders.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from labctl.build.manifest import BuilderKind
from labctl.build.progress import OnProgress
from labctl.build.toolchain import Needs, Toolchain
from labctl.config.target import Target
from labctl.errors import CompileError
from labctl.process import Completed
from labctl.units import size


@dataclass(frozen=True)
class WorkspaceInputs:
    """One build, as a builder has to know it before it gives it a workspace."""

    name: str
    """A relative folder name that no other build has, e.g. ``rk3568/agent-current-012345678``."""
    source: Path
    """The source's folder on this host."""
    source_digest: str
    """SHA-256 of the source: a builder that has it from before need not send it again."""
    home: Path
    """The folder of this build on this host, which stays; the log lies in it."""
    verify_source: Callable[[], None]
    """Raises ConfigError when the source is no longer what ``source_digest`` says."""
    sdks: tuple[str, ...] = ()
    """Absolute folders on the builder's own machine that the user supplies; builds may write."""


@dataclass(frozen=True)
class Folders:
    """The folders of one build, absolute, as the machine that builds sees them."""

    source: str
    tree: str
    """Folder of the compilation."""


@dataclass(frozen=True, kw_only=True)
class Program:
    """A program that a build runs, and how."""

    words: Sequence[str]
    timeout: float
    """Seconds until it and its children are ended."""
    on_line: Callable[[str], None]
    """Gets each line of both streams."""
    log: Path
    """File on this host; all that is printed is appended."""
    env: Mapping[str, str]
    """Its environment, beside PATH, HOME and the like: nothing else of the user's is in it."""
    cwd: str | None = None
    """Its working folder; None: the tree."""


class Workspace(ABC):
    """The folders of one build on a machine, and programs there. Made by :meth:`Builder.open`."""

    folders: Folders

    @abstractmethod
    def run(self, program: Program) -> Completed:
        """Run a program to its end, whatever its exit status; two threads may do so at once.

        Raises ToolMissing, HostTimeout (the program and its children are ended), HostError (the
        machine or the way to it is gone, the log cannot be written).
        """

    @abstractmethod
    def read(self, name: str) -> str | None:
        """Return the text of a small file; a relative name begins at the tree. ``None`` if it is
        missing.
        """

    @abstractmethod
    def write(self, name: str, text: str) -> None:
        """Write a small file; a relative name begins at the tree. Raises HostError."""

    @abstractmethod
    def clear(self) -> None:
        """Empty the tree. Raises HostError."""

    @abstractmethod
    def exists(self, path: str) -> bool:
        """Return True if a file or folder exists; a relative path begins at the tree."""

    @abstractmethod
    def fetch(self, path: str, to: Path, *, most: int | None = None) -> None:
        """Copy a built file to this host; a relative path begins at the tree.

        Verified by its hash where it crosses a wire. Raises HostError, IntegrityError, CompileError
        for a file of more than ``most`` bytes, holes included.
        """


def too_large(path: str, most: int) -> CompileError:
    """Return the error for a built file of more bytes than a build may leave."""
    return CompileError(f"the build left more than {size(most)} in {path}")


class Builder(ABC):
    """A machine that builds."""

    kind: ClassVar[BuilderKind]

    @abstractmethod
    def offer(self, target: Target, needs: Needs) -> Toolchain:
        """Return the programs with which this machine can build for a target.

        Quick: called before it is known whether anything has to be built. Raises ToolMissing,
        HostError, ConfigError, whose message says what is missing and whose hint how to get it.
        """

    @abstractmethod
    def folders(self, inputs: WorkspaceInputs) -> Folders:
        """Name the folders of a build, without making them."""

    @abstractmethod
    def open(
        self, inputs: WorkspaceInputs, *, lock: int, on_progress: OnProgress
    ) -> AbstractContextManager[Workspace]:
        """Make the folders of a build there, with its source in place.

        ``lock`` is the descriptor of the build's lock. Programs that a builder starts on this host
        inherit it (``keep_open``), so that the build stays locked until they have ended, also when
        labctl is killed. Sending the source is shown as ``Step.SEND``.

        Raises HostError, HostTimeout, IntegrityError.
        """
