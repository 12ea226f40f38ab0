"""Interface between a build and the machine that it runs on.

A :class:`Builder` is a machine that can build: it offers a toolchain for a target, and opens a
:class:`Workspace` for one build. ``labctl.build.script`` determines the commands of a build, the
same for all builders.
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
    """Facts of one build that a builder needs to open a workspace."""

    name: str
    """Unique relative folder name, e.g. ``rk3568/agent-current-012345678``."""
    source: Path
    """Folder of the source on this host."""
    source_digest: str
    """SHA-256 of the source: a builder that already has this source need not receive it again."""
    home: Path
    """Folder of this build on this host, which is kept; it contains the log."""
    verify_source: Callable[[], None]
    """Raises ConfigError if the source no longer matches ``source_digest``."""
    sdks: tuple[str, ...] = ()
    """Absolute folders on the build machine that the user supplies; builds may write there."""


@dataclass(frozen=True)
class Folders:
    """Folders of one build, as absolute paths on the build machine."""

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
        machine or the connection is lost, the log cannot be written).
        """

    @abstractmethod
    def read(self, name: str) -> str | None:
        """Return the text of a small file, or ``None``; a relative name starts at the tree."""

    @abstractmethod
    def write(self, name: str, text: str) -> None:
        """Write a small file; a relative name starts at the tree. Raises HostError."""

    @abstractmethod
    def clear(self) -> None:
        """Empty the tree. Raises HostError."""

    @abstractmethod
    def exists(self, path: str) -> bool:
        """Return True if a file or folder exists; a relative path starts at the tree."""

    @abstractmethod
    def fetch(self, path: str, to: Path, *, most: int | None = None) -> None:
        """Copy a built file to this host; a relative path starts at the tree.

        Its hash is verified if it comes over a network. Raises HostError, IntegrityError,
        CompileError for a file of more than ``most`` bytes, including holes.
        """


def too_large(path: str, most: int) -> CompileError:
    """Return the error for a built file that is larger than allowed."""
    return CompileError(f"the build left more than {size(most)} in {path}")


class Builder(ABC):
    """A machine that builds."""

    kind: ClassVar[BuilderKind]

    @abstractmethod
    def offer(self, target: Target, needs: Needs) -> Toolchain:
        """Return the programs with which this machine can build for a target.

        Must be quick: it is called before it is known if anything has to be built. Raises
        ToolMissing, HostError, ConfigError: the message says what is missing, the hint how to get
        it.
        """

    @abstractmethod
    def folders(self, inputs: WorkspaceInputs) -> Folders:
        """Return the folders of a build, without making them."""

    @abstractmethod
    def open(
        self, inputs: WorkspaceInputs, *, lock: int, on_progress: OnProgress
    ) -> AbstractContextManager[Workspace]:
        """Make the folders of a build there, with its source in place.

        ``lock`` is the descriptor of the build's lock. Programs that a builder starts on this host
        inherit it (``keep_open``), so the build stays locked until they end, even if labctl is
        killed. Sending the source is shown as ``Step.SEND``.

        Raises HostError, HostTimeout, IntegrityError.
        """
