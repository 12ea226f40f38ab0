"""Files that a source names but lacks: submodules and files of git LFS.

If a build fails because of them, that says nothing about the commit.
"""

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from labctl.build.source import entries_below
from labctl.errors import CompileError, ConfigError, LabctlError
from labctl.files import open_whole
from labctl.suggestions import listed

#: First line of a pointer. Format: https://github.com/git-lfs/git-lfs/blob/main/docs/spec.md
_POINTER = b"version https://git-lfs.github.com/spec/v1\n"
#: Maximum size of a pointer, in bytes.
_MOST_POINTER_BYTES = 1024
#: Number of bytes to read of ``.gitmodules`` (gitmodules(5)) and of a build's log.
_MOST_MODULES_BYTES, _MOST_LOG_BYTES = 1 << 18, 1 << 20
_PATH = re.compile(r"^\s*path\s*=\s*(.+?)\s*$", re.MULTILINE)
#: Maximum number of names in a message.
_MOST_NAMES = 5


def lfs_pointers(source: Path) -> Iterator[str]:
    """Yield the relative names of files below a folder that are pointers of git LFS."""
    for entry in entries_below(source):
        with suppress(OSError):
            if not entry.is_file(follow_symlinks=False):
                continue
            if not len(_POINTER) < entry.stat().st_size < _MOST_POINTER_BYTES:
                continue
            with open_whole(Path(entry.path)) as file:
                if file.read(len(_POINTER)) == _POINTER:
                    yield str(Path(entry.path).relative_to(source))


def empty_submodules(source: Path) -> list[str]:
    """Return the submodule folders of a source that are empty or missing."""
    with suppress(OSError), open_whole(source / ".gitmodules") as file:
        text = file.read(_MOST_MODULES_BYTES).decode(errors="replace")
        return [name for name in _PATH.findall(text) if _is_empty(source / name)]
    return []


def _is_empty(folder: Path) -> bool:
    return not folder.is_dir() or not any(folder.iterdir())


def blamed(error: CompileError, source: Path, log: Path) -> LabctlError:
    """Return a build's error; ConfigError instead if it names a file that the source lacks."""
    printed = error.details or ""
    with suppress(OSError), log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _MOST_LOG_BYTES))
        printed += file.read(_MOST_LOG_BYTES).decode(errors="replace")
    for names, what, hint in (
        (
            empty_submodules(source),
            "these submodules are empty",
            f"fetch them: git -C {source} submodule update --init --recursive",
        ),
        (
            lfs_pointers(source),
            "these files are pointers of git LFS, without their content",
            "labctl fetches no files of git LFS: build from a folder in which `git lfs pull` ran",
        ),
    ):
        if named := [name for name in names if _is_named(name, printed)]:
            shown = listed(named[:_MOST_NAMES], joiner="and")
            more = f" and {len(named) - _MOST_NAMES} more" if len(named) > _MOST_NAMES else ""
            problem = f"{error.message}: {what}: {shown}{more}"
            return ConfigError(problem, hint=hint, details=error.details)
    return error


def _is_named(name: str, printed: str) -> bool:
    """Return True if a build's output contains the last part of a file's or folder's path."""
    last = re.escape(Path(name).name)
    return re.search(rf"(?<![\w.-]){last}(?![\w-])", printed) is not None
