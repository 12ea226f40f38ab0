"""Hashes on both sides of a link."""

import hashlib
from dataclasses import dataclass

from labctl.errors import IntegrityError
from labctl.progress import BytesDone
from labctl.transport.base import Transport, remote_words

#: What boards may have, best first. toybox and coreutils print ``HEX  FILE``.
_TOOLS = (
    ("sha256", "sha256sum"),
    ("sha512", "sha512sum"),
    ("sha1", "sha1sum"),
    ("md5", "md5sum"),
)
#: A slow board without SHA instructions reading from a slow eMMC still hashes this much.
_HASH_BYTES_PER_SECOND = 5_000_000


class Digest:
    """A hash in the making, and how many bytes went into it.

    With ``part_bytes`` it is the hash of the hashes of parts of that size, which several threads
    of a board can make at once.
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
        """Return a hash that was computed elsewhere."""
        digest = cls(algorithm)
        digest._hex, digest.size_bytes = hexadecimal, size_bytes
        return digest

    def update(self, data: bytes | memoryview) -> None:
        """Take more bytes in."""
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
        """The hash so far, in lower case."""
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
        """Bytes of the part that is not complete."""
        return self.size_bytes % self._part_bytes

    def require(self, expected: "Digest", what: str) -> None:
        """Raise IntegrityError unless both are the same."""
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

    ``command`` are the words before the path; its output begins with the hash in hex. None: no
    such program is there. ``part_bytes``: see :class:`Digest`.
    """

    algorithm: str
    command: tuple[str, ...] | None
    part_bytes: int = 0

    def digest(self) -> Digest:
        """Begin a hash that can be compared with the board's."""
        return Digest(self.algorithm, self.part_bytes)

    def ask(self, transport: Transport, remote: str, size_bytes: int, timeout: float) -> Digest:
        """Return the hash and size of a file on the board; ``size_bytes`` sets the time-out.

        Raises LinkError, IntegrityError when the board cannot say.
        """
        assert self.command is not None
        asked = remote_words(*self.command, remote)
        command = f"{asked} && wc -c <{remote_words(remote)}"
        result = transport.run(command, timeout=hash_patience(timeout, size_bytes))
        words = result.text.split()
        length = hashlib.new(self.algorithm).digest_size * 2
        understood = len(words) > 1 and len(words[0]) == length and words[-1].isdecimal()
        if result.exit_status != 0 or not understood:
            raise IntegrityError(
                f"the board cannot hash {remote}", details=result.text[-2000:] or None
            )
        return Digest.known(self.algorithm, words[0].lower(), int(words[-1]))


def hash_patience(timeout: float, size_bytes: int) -> float:
    """Return the time-out in s to hash a file on the board; a small answer may take ``timeout``."""
    return timeout + size_bytes / _HASH_BYTES_PER_SECOND


def find_board_hash(transport: Transport, timeout: float) -> BoardHash:
    """Find the board's hash program; without one, SHA-256 of the bytes read back."""
    names = remote_words(*(name for _, name in _TOOLS))
    found = transport.run(
        f"for name in {names}; do command -v $name >/dev/null && echo $name; done; :",
        timeout=timeout,
    )
    present = found.text.split()
    for algorithm, name in _TOOLS:
        if name in present:
            return BoardHash(algorithm, (name,))
    return BoardHash("sha256", None)
