"""A connection to an adb server, with a time-out for each wait."""

import select
import socket
import time
from collections.abc import Sequence
from typing import Self

from labctl import interrupts
from labctl.errors import CommandTimeout, DeviceLost, ProtocolError, printable_line

_PIECE_BYTES = 1 << 18
#: Maximum size of a text from a server or a device that is shown in a message.
_SHOWN_BYTES = 500

Buffer = bytes | bytearray | memoryview


def shown(text: bytes) -> str:
    """Return a stranger's text as one short line for a message."""
    return printable_line(text[:_SHOWN_BYTES].decode(errors="replace").strip())


class Connection:
    """Sends and receives bytes. ``label`` names the peer in messages.

    Ctrl-C is raised only between the steps: received bytes are never lost.
    """

    def __init__(self, sock: socket.socket, label: str):
        self.label = label
        self.socket = sock
        self._received = bytearray()
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)

    def send(self, parts: Sequence[Buffer], *, timeout: float) -> None:
        """Send all parts; ``timeout`` (s) limits each wait for room.

        Raises CommandTimeout, DeviceLost.
        """
        views = [memoryview(part) for part in parts]
        self.socket.settimeout(max(timeout, 0.001))
        try:
            while views:
                with interrupts.waiting():
                    sent = self.socket.sendmsg(views)
                while views and sent >= len(views[0]):
                    sent -= len(views.pop(0))
                if views:
                    views[0] = views[0][sent:]
        except TimeoutError:
            raise self._silent(timeout, "took no bytes for") from None
        except OSError as error:
            raise self._lost(error.strerror or str(error)) from error

    def receive(self, timeout: float) -> bytes:
        """Return the next bytes; empty at the end. Raises CommandTimeout, DeviceLost."""
        if not self._received and not self._fill(time.monotonic() + timeout, timeout):
            return b""
        data = bytes(self._received)
        self._received.clear()
        return data

    def read(self, count: int, timeout: float) -> bytes:
        """Return exactly ``count`` bytes.

        Raises CommandTimeout, and DeviceLost if the connection ends before that.
        """
        deadline = time.monotonic() + timeout
        while len(self._received) < count:
            if not self._fill(deadline, timeout):
                raise self._lost("the connection ended in the middle of an answer")
        data = bytes(memoryview(self._received)[:count])
        del self._received[:count]
        return data

    def read_answer(self, timeout: float) -> bytes:
        """Return a text after its length in four hex digits, as the server sends texts."""
        digits = self.read(4, timeout)
        try:
            count = int(digits, 16) if digits.isalnum() else -1
        except ValueError:
            count = -1
        if count < 0:
            raise self.odd(digits)
        return self.read(count, timeout)

    @property
    def has_more(self) -> bool:
        """True if bytes have arrived, or the connection has ended."""
        return bool(self._received or self._poll.poll(0))

    def odd(self, data: bytes) -> ProtocolError:
        """Return the error for bytes that the protocol does not allow here."""
        return ProtocolError(
            f"{self.label} sent {data[:16]!r}, which adb's protocol does not allow here",
            hint="is this the port of an adb server (usually 5037)?",
        )

    def close(self) -> None:
        """Release the connection. Idempotent."""
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def _fill(self, deadline: float, timeout: float) -> bool:
        """Receive more bytes; return False at the end."""
        with interrupts.waiting():
            ready = self._poll.poll(max(deadline - time.monotonic(), 0) * 1000)
        if not ready:
            raise self._silent(timeout, "gave no answer within")
        try:
            data = self.socket.recv(_PIECE_BYTES, socket.MSG_DONTWAIT)
        except BlockingIOError:  # a false alarm of the kernel
            return True
        except OSError as error:
            raise self._lost(error.strerror or str(error)) from error
        self._received += data
        return bool(data)

    def _silent(self, timeout: float, what: str) -> CommandTimeout:
        return CommandTimeout(f"{self.label} {what} {timeout:.3g} s")

    def _lost(self, reason: str) -> DeviceLost:
        return DeviceLost(f"lost {self.label}: {reason}")
