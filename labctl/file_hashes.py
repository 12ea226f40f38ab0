"""SHA-256 of files; that of a large file is remembered while the file stays as it is."""

import hashlib
import json
import os
import time
from pathlib import Path

from labctl import interrupts
from labctl.errors import ConfigError
from labctl.files import open_whole, write_atomic
from labctl.folders import cache_dir
from labctl.progress import BytesDone

HASH_BLOCK_BYTES = 1 << 20


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
