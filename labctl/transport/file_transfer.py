"""Single files over a link and their verification: the common part of all transports.

Both sides hash what they read or wrote; files of this host appear complete or not at all.
"""

import hashlib
import logging
import os
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from labctl.errors import BoardError, ConfigError, DeviceLost, IntegrityError, LinkError
from labctl.files import appearing, host_writes
from labctl.progress import BytesDone
from labctl.retry import retry_infra
from labctl.transport.base import TransferOptions, Transport, check_remote_path, remote_words

#: Hash programs of boards, best first. toybox and coreutils print ``HEX FILE``.
_TOOLS = (
    ("sha256", "sha256sum"),
    ("sha512", "sha512sum"),
    ("sha1", "sha1sum"),
    ("md5", "md5sum"),
)
#: Sizes reported by /proc and /sys for files that the kernel makes when they are read: 0 or a page.
_PSEUDO_BYTES = os.sysconf("SC_PAGE_SIZE")
#: Minimum speed at which a board reads and hashes, or syncs, a file: without SHA instructions, with
#: a slow eMMC or card. Time-outs grow with the file's size by this speed.
SLOW_BYTES_PER_SECOND = 5_000_000
#: Minimum speed of a link, used likewise.
_SLOW_LINK_BYTES_PER_SECOND = 100_000
#: Maximum size of one command's words: it must fit every link.
_BATCH_BYTES = 40_000
#: Files up to the first size are received together, up to the second size per command.
_SMALL_BYTES = 128 << 10
_TOGETHER_BYTES = 1 << 20


class Digest:
    """A hash in progress, and its number of bytes.

    With ``part_bytes`` it is the hash of the hashes of parts of that size; several threads of a
    board can compute them in parallel.
    """

    def __init__(self, algorithm: str, part_bytes: int = 0):
        self.algorithm = algorithm
        self.size_bytes = 0
        self._part_bytes = part_bytes
        self._hash = hashlib.new(algorithm)
        self._parts = hashlib.new(algorithm)
        self._hex: str | None = None

    @classmethod
    def known(cls, algorithm: str, hexadecimal: str, size_bytes: int) -> "Digest":
        """Return a hash that was computed elsewhere, from its text."""
        digest = cls(algorithm)
        digest._hex, digest.size_bytes = hexadecimal, size_bytes
        return digest

    def update(self, data: bytes | memoryview) -> None:
        """Add bytes to the hash."""
        rest = memoryview(data)
        while self._part_bytes and self._in_part + len(rest) >= self._part_bytes:
            count = self._part_bytes - self._in_part
            self._hash.update(rest[:count])
            self._parts.update(self._hash.digest())
            self._hash = hashlib.new(self.algorithm)
            self.size_bytes += count
            rest = rest[count:]
        self._hash.update(rest)
        self.size_bytes += len(rest)

    @property
    def hexadecimal(self) -> str:
        """The hash so far, in lower-case hex."""
        if self._hex is not None:
            return self._hex
        if not self._part_bytes:
            return self._hash.hexdigest()
        whole = self._parts.copy()
        if self._in_part:
            whole.update(self._hash.digest())
        return whole.hexdigest()

    @property
    def _in_part(self) -> int:
        """Number of bytes of the unfinished part."""
        return self.size_bytes % self._part_bytes

    def require(self, expected: "Digest", what: str) -> None:
        """Raise IntegrityError unless both hashes are the same."""
        if (self.hexadecimal, self.size_bytes) != (expected.hexadecimal, expected.size_bytes):
            raise IntegrityError(
                f"{what}: the bytes differ",
                hint="try again; if it happens again, suspect the board's storage or cable",
                details=f"{expected.algorithm} here {expected.hexadecimal} "
                f"({expected.size_bytes} bytes), on the board {self.hexadecimal} "
                f"({self.size_bytes} bytes)",
            )


def running_total(progress: BytesDone | None) -> BytesDone:
    """Return a function that takes the size of each piece and reports the sum to ``progress``."""
    total = 0

    def seen(count: int) -> None:
        nonlocal total
        total += count
        if progress:
            progress(total)

    return seen


@dataclass(frozen=True)
class BoardHash:
    """Hash function of the board.

    ``command`` has the words before the path; its output begins with the hash in hex. Empty: the
    board has no such program. ``part_bytes``: see :class:`Digest`.
    """

    algorithm: str
    command: tuple[str, ...] = ()
    part_bytes: int = 0

    def digest(self) -> Digest:
        """Return an empty hash of the same kind as the board's."""
        return Digest(self.algorithm, self.part_bytes)

    def ask(self, transport: Transport, remote: str, size_bytes: int, timeout: float) -> Digest:
        """Return the hash and size of a file on the board; ``size_bytes`` sets the time-out.

        Raises LinkError, IntegrityError if the board cannot hash it.
        """
        asked = remote_words(*self.command, remote)
        command = f"{asked} && wc -c <{remote_words(remote)}"
        result = transport.run(command, timeout=hash_timeout(timeout, size_bytes))
        words = result.text.split()
        length = hashlib.new(self.algorithm).digest_size * 2
        understood = len(words) > 1 and len(words[0]) == length and words[-1].isdecimal()
        if result.exit_status != 0 or not understood:
            raise IntegrityError(
                f"the board cannot hash {remote}", details=result.text[-2000:] or None
            )
        return Digest.known(self.algorithm, words[0].lower(), int(words[-1]))


def hash_timeout(timeout: float, size_bytes: int) -> float:
    """Return the time-out (s) to hash a file on the board; ``timeout`` is for the request."""
    return timeout + size_bytes / SLOW_BYTES_PER_SECOND


def batches(
    items: Sequence[str],
    *,
    cost: Callable[[str], int] = lambda word: len(os.fsencode(remote_words(word))) + 1,
    room: int = _BATCH_BYTES,
) -> Iterator[list[str]]:
    """Yield items in order, in groups of limited cost; default: the words of one command."""
    batch: list[str] = []
    left = room
    for item in items:
        needed = cost(item)
        if batch and needed > left:
            yield batch
            batch, left = [], room
        batch.append(item)
        left -= needed
    if batch:
        yield batch


def in_folder(folder: str, *words: str, names: Iterable[str]) -> str:
    """Return a command with files of a folder: with their short names, many fit."""
    places = (f"./{name}" for name in names)
    return f"cd {remote_words(folder)} && {remote_words(*words, *places)}"


def find_board_hash(transport: Transport, timeout: float) -> BoardHash:
    """Find the board's hash program; without one, SHA-256 of the bytes read back is used."""
    names = remote_words(*(name for _, name in _TOOLS))
    found = transport.run(
        f"for name in {names}; do command -v $name >/dev/null && echo $name; done; :",
        timeout=timeout,
    )
    present = found.text.split()
    for algorithm, name in _TOOLS:
        if name in present:
            return BoardHash(algorithm, (name,))
    return BoardHash("sha256")


__all__ = ["appearing", "new_file", "open_source", "set_aside"]


@contextmanager
def open_source(path: Path) -> Iterator[BinaryIO]:
    """Open a regular file for reading. Raises ConfigError if it is not regular or cannot be read.

    Files of /proc and /sys are refused: links use a file's size, and these have a wrong size.
    """
    with ExitStack() as held:
        try:
            if not path.is_file():
                raise ConfigError(f"not a file on this host: {path}")
            file = held.enter_context(path.open("rb", buffering=0))
            size = os.fstat(file.fileno()).st_size
            made_when_read = (
                size <= _PSEUDO_BYTES and len(os.pread(file.fileno(), size + 1, 0)) != size
            )
        except OSError as error:
            raise ConfigError(f"cannot read {path}: {error.strerror}") from error
        if made_when_read:
            raise ConfigError(
                f"the content of {path} does not match its size ({size} bytes), as for files"
                " of /proc and /sys",
                hint="copy it first, and send the copy",
            )
        yield file


@contextmanager
def set_aside(raw: bytes) -> Iterator[Path]:
    """Create a temporary file with this content on this host. Raises HostError."""
    with ExitStack() as held:
        with host_writes(Path(tempfile.gettempdir())):
            file = held.enter_context(tempfile.NamedTemporaryFile(prefix="labctl-"))
            file.write(raw)
            file.flush()
        yield Path(file.name)


@contextmanager
def new_file(path: Path) -> Iterator[BinaryIO]:
    """Create a file for writing, in a directory used only by this process. Raises HostError."""
    with host_writes(path), path.open("xb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


#: Takes each piece of a transfer.
Take = Callable[[bytes | memoryview], object]

_LOG = logging.getLogger("labctl.transport")


class FileTransfer(ABC):
    """Moves files over any link.

    A transport implements :meth:`transmit` and :meth:`collect`. All methods raise LinkError,
    BoardError, HostError; ConfigError for a local file that cannot be read.
    """

    def __init__(self, transport: Transport, options: TransferOptions):
        self.transport = transport
        self.options = options
        self.board_hash = transport.files_hash(options.timeout)

    @abstractmethod
    def transmit(self, local: Path, remote: str, sent: Take) -> None:
        """Write a local file to the board; call ``sent`` with each piece after sending it."""

    @abstractmethod
    def collect(self, remote: str, came: Take) -> None:
        """Read a file of the board; call ``came`` with each piece."""

    def push(self, local: Path, remote: str) -> None:
        """Send a file and verify it; see :meth:`Transport.push`."""
        check_remote_path(remote)
        digest = self.send(local, remote, running_total(self.options.progress))
        self.on_board(remote, digest).require(digest, f"{local} pushed to {remote}")

    def pull(self, remote: str, local: Path) -> None:
        """Receive a file and verify it; see :meth:`Transport.pull`."""
        check_remote_path(remote)
        with appearing(local) as file:
            digest = self.fetch(remote, file.write, running_total(self.options.progress))
            self.on_board(remote, digest).require(digest, f"{remote} pulled to {local}")

    def send(self, local: Path, remote: str, seen: BytesDone) -> Digest:
        """Send a file; return the hash of the sent bytes."""
        digest = self.board_hash.digest()
        with named(f"sending {local} to {remote}"):
            self.transmit(local, remote, both(digest, seen))
        return digest

    def send_all(
        self, local: Path, names: Iterable[str], folder: str, seen: BytesDone
    ) -> dict[str, Digest]:
        """Send files of ``local`` into ``folder``; return the hashes of the sent bytes by name."""
        return {name: self.send(local / name, f"{folder}/{name}", seen) for name in names}

    def receive_all(
        self, folder: str, sizes: Mapping[str, int], local: Path, seen: BytesDone
    ) -> dict[str, Digest]:
        """Receive files of ``folder`` into ``local``; return the hashes of their bytes by name.

        Many small files with expected ``sizes`` come together, by the board's ``cat``. The others
        come one by one. The caller syncs them all.
        """
        digests: dict[str, Digest] = {}
        small = [name for name, size in sizes.items() if size <= _SMALL_BYTES]
        for names in batches(small) if len(small) > 1 else ():
            for batch in batches(names, cost=sizes.__getitem__, room=_TOGETHER_BYTES):
                digests |= self._receive_together(folder, batch, sizes, local, seen)
        for name in sizes:
            if name not in digests:
                digests[name] = self.receive(f"{folder}/{name}", local / name, seen)
        return digests

    def _receive_together(
        self,
        folder: str,
        names: Sequence[str],
        sizes: Mapping[str, int],
        local: Path,
        seen: BytesDone,
    ) -> dict[str, Digest]:
        """Receive small files with one command; return {} if the board does not give them all."""
        size_bytes = sum(sizes[name] for name in names)
        came = self.transport.run(
            in_folder(folder, "cat", names=names) + " 2>/dev/null",
            timeout=self.options.timeout + size_bytes / _SLOW_LINK_BYTES_PER_SECOND,
        )
        if came.exit_status != 0 or len(came.output) != size_bytes:
            return {}
        digests: dict[str, Digest] = {}
        rest = memoryview(came.output)
        for name in names:
            content, rest = rest[: sizes[name]], rest[sizes[name] :]
            digests[name] = self.board_hash.digest()
            digests[name].update(content)
            with host_writes(local / name), (local / name).open("xb") as file:
                file.write(content)
            seen(len(content))
        return digests

    def receive(self, remote: str, local: Path, seen: BytesDone) -> Digest:
        """Receive a file as ``local``, which must not exist; return the hash of its bytes."""
        with new_file(local) as file:
            return self.fetch(remote, file.write, seen)

    def fetch(self, remote: str, write: Take, seen: BytesDone) -> Digest:
        """Receive a file piece by piece; return the hash of the received bytes."""
        digest = self.board_hash.digest()
        take = both(digest, seen)

        def came(piece: bytes | memoryview) -> None:
            take(piece)
            write(piece)

        with named(f"receiving {remote}"):
            self.collect(remote, came)
        return digest

    def on_board(self, remote: str, expected: Digest) -> Digest:
        """Return the present hash of a file on the board, of the same kind as ``expected``."""
        if self.board_hash.command:
            # The request changes nothing: the copy stays valid even if the link is lost now.
            return retry_infra(
                lambda: self.board_hash.ask(
                    self.transport, remote, expected.size_bytes, self.options.timeout
                ),
                on=(DeviceLost,),
                timeout=self.options.timeout,
                on_retry=lambda error: _LOG.warning("requesting a hash again: %s", error),
            )
        # The board has no hash program: read the bytes back and compare them here.
        return self.fetch(remote, lambda _chunk: None, lambda _count: None)


@contextmanager
def named(what: str) -> Iterator[None]:
    """Add the operation ``what`` to errors of a link or board."""
    try:
        yield
    except (LinkError, BoardError, IntegrityError) as error:
        raise error.during(what) from error


def both(digest: Digest, seen: BytesDone) -> Take:
    """Return a function that hashes a piece and reports its size."""

    def take(piece: bytes | memoryview) -> None:
        digest.update(piece)
        seen(len(piece))

    return take
