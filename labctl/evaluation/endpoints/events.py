"""Server-sent events, from a server that is not trusted.

Format: WHATWG HTML, "Server-sent events". Older versions of llama-server send ``error:`` instead of
an event that contains ``error``. The last event counts even without the empty line after it.
"""

from collections.abc import Callable

from labctl.config.printed import read_json
from labctl.errors import OutputNotUnderstood

#: Largest line and answer, in bytes. A token with its likeliest alternatives takes less than 1 kB.
MOST_LINE_BYTES = 1 << 20
MOST_BYTES = 64 << 20


class EventReader:
    """Takes pieces of a stream; calls ``take`` with each event's data and the stamp of its piece.

    Raises OutputNotUnderstood if a line or the stream is too long.
    """

    def __init__(self, take: Callable[[int, bytes], None], *, most_bytes: int = MOST_BYTES):
        self._take = take
        self._most_bytes = most_bytes
        self._rest = bytearray()
        self._looked_at = 0
        self._data: list[bytes] = []
        self._size = self._stamp_ns = 0

    def feed(self, piece: bytes, stamp_ns: int) -> None:
        """Read one piece, which may end anywhere."""
        self._stamp_ns = stamp_ns
        self._size += len(piece)
        self._rest += piece
        if self._size > self._most_bytes:
            raise OutputNotUnderstood(f"the server's answer has no end: {self._size} bytes so far")
        begin = 0
        while (end := self._rest.find(b"\n", self._looked_at)) >= 0:
            self._line(bytes(self._rest[begin:end]).removesuffix(b"\r"), stamp_ns)
            begin = self._looked_at = end + 1
        if begin:
            del self._rest[:begin]
        self._looked_at = len(self._rest)
        if len(self._rest) + sum(map(len, self._data)) > MOST_LINE_BYTES:
            raise OutputNotUnderstood(
                f"the server sent a line of more than {MOST_LINE_BYTES} bytes"
            )

    def close(self) -> None:
        """Take the last event of a stream without a final empty line, unless it is incomplete."""
        self._line(bytes(self._rest).removesuffix(b"\r"), self._stamp_ns)
        last = b"\n".join(self._data)
        try:
            if last != b"[DONE]":
                read_json(last)
        except ValueError:
            return
        self._line(b"", self._stamp_ns)

    def _line(self, line: bytes, stamp_ns: int) -> None:
        name, _, value = line.partition(b":")
        if not line and self._data:
            data, self._data = b"\n".join(self._data), []
            self._take(stamp_ns, data)
        elif name == b"data":
            self._data.append(value.removeprefix(b" "))
        elif name == b"error" and value:
            self._data.append(b'{"error":' + value + b"}")
