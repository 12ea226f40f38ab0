"""Directories to and from a board as hdc transfers them: files only, over one channel.

Symbolic links are followed, empty directories have no packet of their own and are lost (they are
reported), and what cannot be read is left out (and reported), on either side.
"""

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from labctl.errors import BoardError, ConfigError
from labctl.files import appearing, host_reads, host_writes
from labctl.hdc.host.link import PLAIN_FILES, FileOptions, HostLink
from labctl.hdc.host.receiving import ReceivedFile, Receiving, possible
from labctl.hdc.host.sending import Sending
from labctl.hdc.placing import Placing, make_parents

#: How a board says that there is no file in a directory, nor in those below.
_EMPTY = "source folder is empty"
_FILE_MODE = 0o644
_MAX_DEPTH = 200


@dataclass(frozen=True)
class TransferSummary:
    """What a transfer of a directory did.

    ``skipped`` are entries that could not be read, each with the reason (in the board's words when
    receiving). ``empty_directories`` are the sender's directories, relative to the top (``.``),
    without a file in them or below: the other side did not get them.
    """

    files: int
    bytes: int
    skipped: tuple[str, ...] = ()
    empty_directories: tuple[str, ...] = ()


def send_directory(
    link: HostLink,
    local: Path,
    remote: str,
    *,
    timeout: float,
    options: FileOptions = PLAIN_FILES,
    progress: Callable[[int], None] = lambda _bytes: None,
) -> TransferSummary:
    """Send what is in ``local``: as ``remote`` if nothing is there, else into it by its own name.

    ``timeout`` (s) bounds each wait for progress; ``progress`` gets the bytes sent so far. With no
    file in ``local``, nothing is sent. The board checks nothing but the count.
    Raises LinkError, BoardError, HostError, IntegrityError, ConfigError (not a directory, no name).
    """
    with host_reads(local):
        if not local.is_dir():
            raise ConfigError(f"not a directory on this host: {local}")
        top = Path(os.path.normpath(local.absolute())).name
    if not top:
        raise ConfigError(f"a directory without a name cannot be sent: {local}")
    tree = _walk(local)
    with ExitStack() as held:
        sending: Sending | None = None
        for name in tree.files:
            with ExitStack() as opened:
                try:
                    source: BinaryIO = opened.enter_context((local / name).open("rb", buffering=0))
                except OSError as error:
                    tree.skipped.append(f"{name}: {error.strerror}")
                    continue
                is_first = sending is None
                if sending is None:
                    channel = held.enter_context(
                        link.open_send(remote, timeout=timeout, options=options)
                    )
                    sending = Sending(channel, remote, options, can_compress=link.can_compress)
                sending.send(
                    source,
                    f"{top}/{name}",
                    _Counter(sending.sent_bytes, progress),
                    modes_of=_modes(local, top, tree) if is_first else (),
                )
        if sending is None:
            return TransferSummary(0, 0, tuple(tree.skipped), (".",))
        sending.finish()
    return TransferSummary(
        sending.files, sending.sent_bytes, tuple(tree.skipped), tuple(tree.empty)
    )


def receive_directory(
    link: HostLink,
    remote: str,
    local: Path,
    *,
    timeout: float,
    options: FileOptions = PLAIN_FILES,
    progress: Callable[[int], None] = lambda _bytes: None,
) -> TransferSummary:
    """Receive what is in ``remote``: as ``local`` if nothing is there, else into it by its name.

    Each file appears under its name when it is whole. With ``keep_mode`` files get their
    permissions, and empty directories are made too: only then does the board tell of them. Nothing
    outside ``local`` is written, whatever the board names. Arguments and errors as
    :func:`send_directory`.
    """
    wanted = possible(options, link)
    placing = Placing(str(local))
    files = received = 0
    with link.open_receive(remote, timeout=timeout, options=wanted) as channel:
        receiving = Receiving(channel, wanted, remote, tolerant=True)
        try:
            while (coming := receiving.next_file()) is not None:
                path = _place(placing, _in_directory(coming.name, remote))
                _receive(receiving, coming, path, _Counter(received, progress))
                files += 1
                received += coming.size_bytes
        except BoardError as error:
            if files or _EMPTY not in error.message:
                raise
            return TransferSummary(0, 0, tuple(receiving.skipped), (".",))
        for name in receiving.directories:  # those without files as well
            _place(placing, f"{name}/any")
    return TransferSummary(files, received, tuple(receiving.skipped))


@dataclass
class _Tree:
    """What is below a directory, by path relative to it."""

    files: list[str] = field(default_factory=list)
    #: The innermost first, the top itself is ``.``.
    directories: list[str] = field(default_factory=list)
    empty: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)


def _walk(local: Path) -> _Tree:
    tree = _Tree()
    _walk_into(local, "", (), tree)
    return tree


def _walk_into(folder: Path, prefix: str, above: tuple[tuple[int, int], ...], tree: _Tree) -> bool:
    """Note what is in ``folder``; whether there is a file in it or below."""
    name = prefix.rstrip("/") or "."
    try:
        status = folder.stat()
        entries = sorted(os.listdir(folder))  # noqa: PTH208 - names, not paths
    except OSError as error:
        tree.skipped.append(f"{name}: {error.strerror}")
        return False
    here = (status.st_dev, status.st_ino)
    if here in above or len(above) > _MAX_DEPTH:
        tree.skipped.append(f"{name}: a directory inside itself, or too deep")
        return False
    has_files = False
    for entry in entries:
        path = folder / entry
        if "%" in entry:
            tree.skipped.append(f"{prefix}{entry}: hdc cannot carry a % in a name")
            continue
        try:
            mode = path.stat().st_mode
        except OSError as error:
            tree.skipped.append(f"{prefix}{entry}: {error.strerror}")
            continue
        if stat.S_ISDIR(mode):
            has_files |= _walk_into(path, f"{prefix}{entry}/", (*above, here), tree)
        elif stat.S_ISREG(mode):
            tree.files.append(f"{prefix}{entry}")
            has_files = True
        else:
            tree.skipped.append(f"{prefix}{entry}: neither a file nor a directory")
    tree.directories.append(name)
    if not has_files:
        tree.empty.append(name)
    return has_files


def _modes(local: Path, top: str, tree: _Tree) -> Iterator[tuple[str, os.stat_result]]:
    """The directories of a transfer, with their modes."""
    for name in tree.directories:
        with host_reads(local / name):
            status = (local / name).stat()
        yield (top if name == "." else f"{top}/{name}"), status


class _Counter:
    """Bytes of this file and of those before."""

    def __init__(self, before: int, progress: Callable[[int], None]):
        self._done = before
        self._progress = progress

    def __call__(self, chunk: bytes | memoryview) -> None:
        self._done += len(chunk)
        self._progress(self._done)


def _in_directory(name: str, remote: str) -> str:
    if "/" not in name:
        raise BoardError(f"not a directory on the board: {remote}")
    return name


def _place(placing: Placing, name: str) -> Path:
    """The path of a file, the directories above it made. Raises ConfigError, HostError."""
    try:
        path = placing.place(name)
    except NotADirectoryError as error:
        raise ConfigError(f"not a directory on this host: {error}") from error
    with host_writes(Path(path)):
        make_parents(path)
    return Path(path)


def _receive(receiving: Receiving, coming: ReceivedFile, path: Path, seen: _Counter) -> None:
    mode = _FILE_MODE if coming.permissions is None else coming.permissions
    with appearing(path, mode=mode) as file:

        def write(data: bytes | memoryview) -> None:
            file.write(data)
            seen(data)

        receiving.receive(write)
        if coming.atime_ns is not None and coming.mtime_ns is not None:
            file.flush()
            os.utime(file.fileno(), ns=(coming.atime_ns, coming.mtime_ns))
