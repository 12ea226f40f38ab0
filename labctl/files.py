"""The single gateway for writing files, hashing them and locking between processes.

A hash of a large file is remembered while the file stays as it is."""

import errno
import fcntl
import getpass
import hashlib
import json
import os
import pwd
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

import platformdirs

from labctl import interrupts
from labctl.errors import FULL_NUMBERS, ConfigError, HostError, HostTimeout
from labctl.progress import BytesDone
from labctl.removal import remove_tree
from labctl.retry import wait_until

HASH_BLOCK_BYTES = 1 << 20
#: Every file takes one inode, however small it is.
NO_INODES = "remove files there, however small (`df -i` counts them), or choose another place"


def cache_dir() -> Path:
    """Slow things that can be made again (``LABCTL_CACHE`` or the user's cache directory)."""
    return Path(os.environ.get("LABCTL_CACHE") or platformdirs.user_cache_path("labctl")).absolute()


def state_dir() -> Path:
    """State of the lab on this host that cannot be made again (``LABCTL_STATE``): leases, keys."""
    return Path(os.environ.get("LABCTL_STATE") or platformdirs.user_state_path("labctl")).absolute()


def present_folder() -> Path | None:
    """Return the present folder; None if it was removed."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        return None


def work_trees(folder: Path) -> list[Path]:
    """Return the git work trees that a folder lies in, the innermost first; links stay as named."""
    here = folder.absolute()
    return [one for one in (here, *here.parents) if os.path.lexists(one / ".git")]


def user_name() -> str:
    """Return the name of the user that labctl runs as; the number, where it has no name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # in a container, say
        return str(os.getuid())


def user_home() -> Path | None:
    """Return the user's home folder; None for a user that has none, as in a container."""
    try:
        return Path.home()
    except RuntimeError:
        return None


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

    A piece of a line that a full disk cuts off is taken back: the next line is none with it.
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


def sha256_file(path: Path, progress: BytesDone | None = None) -> str:
    """Return the SHA-256 of a file in hex. ``progress`` gets the bytes read so far."""
    digest = hashlib.sha256()
    done = 0
    with open_whole(path) as file:
        while block := file.read(HASH_BLOCK_BYTES):
            interrupts.check()
            digest.update(block)
            done += len(block)
            if progress:
                progress(done)
    return digest.hexdigest()


@contextmanager
def locked(
    path: Path,
    *,
    timeout: float,
    holder: str = "another labctl",
    make_folder: bool = True,
    note: str = "",
) -> Iterator[int]:
    """Hold an exclusive lock between processes of this host; the kernel frees it on any death.

    Gives the lock's file descriptor: a program that inherits it holds the lock too, until the block
    ends.
    ``note`` is written to the file for others; by default the process id.
    Raises HostTimeout when it is not free within ``timeout`` seconds; the message says whose it is.
    Without ``make_folder`` raises ConfigError if its folder is gone, also if it went meanwhile.
    """
    gone = ConfigError(f"{path.parent} is gone", hint="another labctl moved or removed it")
    with host_writes(path):
        if make_folder:
            path.parent.mkdir(parents=True, exist_ok=True)
        try:
            file = path.open(
                "a+", encoding="utf-8", errors="replace"
            )  # who wrote it last may have been cut off
        except FileNotFoundError as error:
            raise gone from error
    with file:

        def attempt() -> bool:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            return True

        if not wait_until(attempt, timeout=timeout, interval=0.1):
            file.seek(0)
            pid = file.read().strip() or "unknown"
            raise HostTimeout(
                f"{holder} (process {pid}) holds {path}"
                + (f" for more than {timeout:g} s" if timeout else ""),
                hint="wait for it to end, or stop it",
            )
        if not make_folder and not path.exists():
            raise gone
        # To be read only; a full disk takes nobody's lock away.
        with suppress(OSError):
            os.ftruncate(file.fileno(), 0)
            os.write(file.fileno(), f"{note or os.getpid()}\n".encode())
        try:
            yield file.fileno()
        finally:
            # Closing is not enough: a program that another thread starts has it until its exec.
            fcntl.flock(file, fcntl.LOCK_UN)


def is_locked(path: Path) -> bool:
    """Return True if a process of this host holds the lock of :func:`locked`. Changes nothing.

    A process that takes the lock at the same moment has to try again. Raises ConfigError when this
    user may not read the file.
    """
    with host_reads(path):
        try:
            with path.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except (FileNotFoundError, BlockingIOError) as error:
            return isinstance(error, BlockingIOError)
    return False


#: A file changed within the clock's step after it was hashed can keep its time stamp; only files
#: that had been at rest this long are remembered (as git does for its index).
_SETTLED_NS = 2_000_000_000


def cached_sha256(path: Path, progress: BytesDone | None = None) -> str:
    """Return the SHA-256 of a file in hex.

    Remembered in the cache directory by path, device, inode, size and both time stamps; else
    ``progress`` gets the bytes read so far. Raises ConfigError when the file cannot be read or
    changes while it is.
    """
    try:
        before = _stamp(path)
        note = _note(path)
        if remembered := _recall(note, before):
            return remembered
        started = time.time_ns()
        digest = sha256_file(path, progress)
        if _stamp(path) != before:
            raise ConfigError(f"{path} changed while it was read", hint="wait until it is written")
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    if started - max(before["mtime_ns"], before["ctime_ns"]) > _SETTLED_NS:
        write_atomic(note, json.dumps({"path": str(path), "sha256": digest, **before}) + "\n")
    return digest


def is_hash_remembered(path: Path) -> bool:
    """Return True if :func:`cached_sha256` need not read the file. Raises ConfigError."""
    try:
        return _recall(_note(path), _stamp(path)) is not None
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error


def settled_stamp(path: Path) -> tuple[int, ...] | None:
    """Return what changes whenever a file's content does, for what a process remembers of it.

    None if it cannot be looked at, or changed so lately that another change would not show.
    """
    try:
        stamp = _stamp(path)
    except (OSError, ValueError):  # a NUL in its name
        return None
    changed = max(stamp["mtime_ns"], stamp["ctime_ns"])
    return tuple(stamp.values()) if abs(time.time_ns() - changed) > _SETTLED_NS else None


def _stamp(path: Path) -> dict[str, int]:
    status = path.stat()
    return {
        "device": status.st_dev,
        "inode": status.st_ino,
        "size": status.st_size,
        "mtime_ns": status.st_mtime_ns,
        "ctime_ns": status.st_ctime_ns,
    }


def _note(path: Path) -> Path:
    name = hashlib.sha256(os.fsencode(path.resolve())).hexdigest()
    return cache_dir() / "hashes" / f"{name}.json"


def _recall(note: Path, stamp: dict[str, int]) -> str | None:
    try:
        known = json.loads(note.read_bytes())
    except (FileNotFoundError, ValueError):
        return None
    is_same = isinstance(known, dict) and all(known.get(key) == stamp[key] for key in stamp)
    digest = known.get("sha256") if is_same else None
    return digest if isinstance(digest, str) and len(digest) == 64 else None
