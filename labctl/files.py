"""The single gateway for writing files of this host."""

import errno
import os
import pwd
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from labctl.errors import FULL_NUMBERS, ConfigError, HostError
from labctl.removal import remove_tree

#: Every file takes one inode, however small it is.
NO_INODES = "remove files there, however small (`df -i` counts them), or choose another place"


@contextmanager
def host_writes(what: Path) -> Iterator[None]:
    """Turn the operating system's refusals to write ``what`` into typed errors."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        if error.errno in FULL_NUMBERS and not has_inodes(what):
            reason, hint = f"{reason}: no inodes are left there", NO_INODES
        elif error.errno in FULL_NUMBERS:
            hint = "free some space on this host or choose another place"
        elif error.errno == errno.EACCES:
            hint = f"{_user()} may not write there: change its permissions or choose another place"
        else:
            hint = "choose another place"
        raise HostError(f"cannot write {what}: {reason}", hint=hint) from error


def has_inodes(path: Path) -> bool:
    """Return False if the file system of a path can have no further file, however much is free."""
    for there in (path, *path.absolute().parents):
        with suppress(OSError):
            found = os.statvfs(there)
            return found.f_files == 0 or found.f_favail > 0  # some file systems have no limit
    return True


def _user() -> str:
    number = os.geteuid()
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:  # in a container, say
        return str(number)


@contextmanager
def host_reads(what: str | Path) -> Iterator[None]:
    """Turn the operating system's refusals to look at ``what``, which the user named."""
    try:
        yield
    except OSError as error:
        raise ConfigError(f"cannot read {what}: {error.strerror or error}") from error


def write_atomic(path: Path, data: str | bytes, *, mode: int = 0o644) -> None:
    """Write ``data`` so that ``path`` holds the old or the new content, also after a power cut.

    Parent directories are made; nobody but the owner can read the file before it has ``mode``.
    Raises HostError when the host cannot write.
    """
    with appearing(path, mode=mode) as file:
        file.write(data.encode() if isinstance(data, str) else data)


def write_named(path: Path, data: str | bytes) -> None:
    """Write to a file that the user named: as :func:`write_atomic`, but what is there stays.

    Links and modes stay; what is no regular file (device, FIFO) is written to. Raises HostError.
    """
    if path.exists() and not path.is_file():
        with host_writes(path), path.open("wb") as file:
            file.write(data.encode() if isinstance(data, str) else data)
        return
    whole = Path(os.path.realpath(path))
    with host_writes(path):
        mode = whole.stat().st_mode & 0o777 if whole.exists() else 0o644
    write_atomic(whole, data, mode=mode)


def check_named(path: Path) -> None:
    """Raise ConfigError if :func:`write_named` could not write there; change nothing."""
    try:
        if not path.exists() or path.is_file():
            folders = Path(os.path.realpath(path)).parents
            with tempfile.TemporaryFile(dir=next(one for one in folders if one.exists())):
                return
        if not os.access(path, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}") from error


def sync_directory(directory: Path) -> None:
    """Make renames in ``directory`` durable."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def short_name(name: str) -> str:
    """Return as much of a file's name as leaves room for a temporary one's end: 255 bytes each."""
    return os.fsencode(name)[:200].decode(errors="ignore")


@contextmanager
def appearing(path: Path, *, mode: int = 0o644, sync: bool = True) -> Iterator[BinaryIO]:
    """Open a file for writing that gets its name ``path`` only if the block ends without an error.

    Its directory is made, and what was at ``path`` is replaced. Without ``sync`` the caller has to
    sync the directory. Raises HostError when this host cannot write.
    """
    with host_writes(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{short_name(path.name)}.")
        temporary = Path(name)
        try:
            with os.fdopen(descriptor, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            temporary.chmod(mode)
            temporary.replace(path)
        except BaseException:
            with suppress(FileNotFoundError):
                temporary.unlink()
            raise
        if sync:
            sync_directory(path.parent)


@contextmanager
def scratch(folder: Path, prefix: str) -> Iterator[Path]:
    """Create a directory in ``folder`` (created if missing), removed at the end with its contents.

    What a killed process left under the same prefix is removed first: the caller holds the lock
    under which ``folder`` is filled. Raises HostError.
    """
    with host_writes(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for left in folder.glob(f"{prefix}*"):
            remove_tree(left)
        made = Path(tempfile.mkdtemp(dir=folder, prefix=prefix))
    try:
        yield made
    finally:
        remove_tree(made)


def publish(made: Path, path: Path) -> None:
    """Give a finished file its name: whole also after a power cut. Raises HostError."""
    with host_writes(path):
        with made.open("rb") as file:
            os.fsync(file.fileno())
        made.replace(path)
        sync_directory(path.parent)


def append_line(path: Path, line: str) -> None:
    """Append one line durably; a reader sees whole lines except after a power cut.

    If the disk is full, removes the partial line, so that the next line does not continue it.
    """
    with host_writes(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        is_new = not path.exists()
        with path.open("ab", buffering=0) as file:
            data, done, before = line.encode() + b"\n", 0, os.fstat(file.fileno()).st_size
            try:
                while done < len(data):
                    done += file.write(data[done:])
                os.fsync(file.fileno())
            except OSError:
                with suppress(OSError):  # the first error is the one to report
                    if os.fstat(file.fileno()).st_size == before + done:  # nobody wrote meanwhile
                        os.ftruncate(file.fileno(), before)
                raise
        if is_new:
            sync_directory(path.parent)


def open_whole(path: Path) -> BinaryIO:
    """Open a file to read it to its end. Raises OSError, also for a pipe or a device."""
    # Asked before: a pipe that nobody writes to would never open, and a device may never end.
    if path.exists() and not path.is_file() and not path.is_dir():
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return path.open("rb")
