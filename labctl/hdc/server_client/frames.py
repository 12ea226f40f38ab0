"""Frames between hdc clients and servers: a length (u32, big-endian), then the bytes."""

import select
import socket
import struct
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from labctl import interrupts
from labctl.errors import CommandTimeout, DeviceLost, ProtocolError
from labctl.hdc.messages import Buffer
from labctl.hdc.server_client.tunnel import TunnelLost
from labctl.hdc.wire import MAX_DATA_BYTES

if TYPE_CHECKING:
    from labctl.hdc.server_client.tunnel import Connection

_LENGTH = struct.Struct(">I")


class Frames:
    """A connection for frames. ``timeout`` (s) limits a whole read and each write."""

    def __init__(self, sock: "Connection", label: str):
        self.label = label
        self._socket = sock
        self._buffer = bytearray(_LENGTH.size)
        self._filled = 0
        self._in_head = True
        self._whole = True
        self._peer_gone = False

    @property
    def is_whole(self) -> bool:
        """True if another frame may be sent: no frame was sent only in part."""
        return self._whole

    def send(self, *parts: Buffer, timeout: float) -> None:
        """Send one frame. Raises CommandTimeout.

        Does not fail if the server has ended the connection: its reason can still be read.
        """
        if self._peer_gone:
            return
        if not self._whole:
            raise DeviceLost(f"the link to {self.label} is broken: a frame was sent in part")
        self._whole = False
        views = [memoryview(part) for part in (_LENGTH.pack(sum(map(len, parts))), *parts)]
        self._socket.settimeout(max(timeout, 0.001))
        try:
            while views:
                with interrupts.waiting():
                    sent = self._socket.sendmsg(views)
                while views and sent >= len(views[0]):
                    sent -= len(views.pop(0))
                if views:
                    views[0] = views[0][sent:]
        except TimeoutError:
            raise CommandTimeout(
                f"{self.label} took no bytes for {timeout:g} s",
                hint="the board may be frozen, or its storage stuck",
            ) from None
        except OSError:
            self._peer_gone = True
        self._whole = True

    def read(self, timeout: float, *, at_most: int = MAX_DATA_BYTES) -> bytes | None:
        """Return the next frame; None if the server ended the connection after the last frame.

        Raises CommandTimeout (bytes received so far are kept), DeviceLost (ended within a frame),
        ProtocolError (larger than ``at_most`` bytes).
        """
        deadline = time.monotonic() + timeout
        while True:
            while self._filled < len(self._buffer):
                if not self._more(deadline, timeout):
                    return None
            whole, self._filled = self._buffer, 0
            self._in_head = not self._in_head
            if self._in_head:
                self._buffer = bytearray(_LENGTH.size)
                return bytes(whole)
            (size,) = _LENGTH.unpack(whole)
            if size > at_most:
                raise ProtocolError(
                    f"{self.label} sent {bytes(whole)!r} instead of the length of a frame",
                    hint="is this the port of an hdc server (usually 8710)?",
                )
            self._buffer = bytearray(size)

    def _more(self, deadline: float, timeout: float) -> bool:
        seconds = max(deadline - time.monotonic(), 0.001)
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        with interrupts.waiting():  # Ctrl-C only here: received bytes must not be lost
            poll.poll(seconds * 1000)
        self._socket.settimeout(0.001)
        try:
            count = self._socket.recv_into(memoryview(self._buffer)[self._filled :])
        except TimeoutError:
            raise CommandTimeout(
                f"no answer from {self.label} within {timeout:.3g} s",
                hint="the board may be frozen or overloaded, or the step needs more time",
            ) from None
        except OSError as error:
            lost = self._lost(error.strerror or str(error))
            raise (lost.of_host() if isinstance(error, TunnelLost) else lost) from error
        self._filled += count
        if count == 0 and (self._filled or not self._in_head):
            raise self._lost("the hdc server ended in the middle of a frame")
        return count > 0

    def _lost(self, reason: str) -> DeviceLost:
        return DeviceLost(f"lost {self.label}: {reason}", hint="does the hdc server still run?")

    def has_more(self) -> bool:
        """Return True if bytes have arrived, or the connection has ended."""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return bool(self._filled or not self._in_head or poll.poll(0))

    def cut(self) -> None:
        """Cut the connection; waiting threads get an error."""
        with suppress(OSError):  # the peer may have closed it first
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Release the connection. Idempotent."""
        self._socket.close()
