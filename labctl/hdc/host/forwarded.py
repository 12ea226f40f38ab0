"""One forwarded connection: a socket on this host and a context on the board."""

import logging
import os
import select
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from enum import Enum, auto

from labctl.errors import LinkError
from labctl.hdc.host.channel import Channel
from labctl.hdc.wire import Command

#: Small, because the kernel reports room in thirds of its buffer: a slow user must not look dead.
_SEND_BUFFER_BYTES = 128 << 10
#: Data bytes of one packet, as in the reference.
_PIECE_BYTES = 65_535
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)

_log = logging.getLogger("labctl.hdc")


class _State(Enum):
    OPENING = auto()
    OPEN = auto()
    #: No more bytes will arrive, but waiting bytes are still passed to the user.
    DRAINING = auto()
    OVER = auto()


class Connection:
    """One connection: its socket here, and the bytes waiting for it.

    The thread in :meth:`forward` owns the socket and sends the user's bytes; a second thread passes
    the board's bytes to the user. ``open_it`` opens both ends, or returns None if one end is
    refused; from then on, the socket belongs to this connection.
    """

    def __init__(
        self,
        channel: Channel,
        context: bytes,
        open_it: "Callable[[Connection], socket.socket | None]",
    ):
        self.context = context
        self._channel = channel
        self._open = open_it
        self._socket: socket.socket | None = None
        self._changed = threading.Condition()
        self._state = _State.OPENING
        self._is_freed_by_board = False
        #: Readable when it is useless to wait for the user any longer.
        self._wake: int | None = None
        self._queue: deque[bytes] = deque()
        self._waiting_bytes = 0

    def own(self, sock: socket.socket) -> None:
        """Take over the socket of this end."""
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
        with self._changed:
            self._socket = sock

    def opened(self) -> bool:
        """Note that both ends are open; return False if the connection was cut before."""
        with self._changed:
            if self._state is _State.OPENING:
                self._state = _State.OPEN
                self._changed.notify_all()
            return self._state is not _State.OVER

    def wait_until_open(self, timeout: float) -> bool:
        """Wait until the board's end is open; return False after ``timeout`` seconds."""
        with self._changed:
            self._changed.wait_for(lambda: self._state is not _State.OPENING, timeout=timeout)
            return self._state in (_State.OPEN, _State.DRAINING)

    def deliver(self, data: bytes) -> None:
        """Take bytes from the board; block while too many bytes wait for this connection's user."""
        limits = self._channel.limits
        with self._changed:
            has_room = self._changed.wait_for(
                lambda: (
                    self._waiting_bytes < limits.connection_bytes or self._state is not _State.OPEN
                ),
                timeout=limits.connection_stall_seconds,
            )
            if has_room and self._state is _State.OPEN:
                self._queue.append(data)
                self._waiting_bytes += len(data)
                self._changed.notify_all()
        if not has_room:
            _log.warning("a forwarded connection was closed: its bytes were not read")
            self.cut()

    def freed_by_board(self) -> None:
        """Note that the board closed its end; bytes sent before still reach the user."""
        with self._changed:
            self._is_freed_by_board = True
            was_open = self._state is not _State.OPENING
        if was_open:
            self._drain()
        else:
            self.cut()

    def cut(self) -> None:
        """End at once. The user gets a reset, because some bytes may be missing."""
        with self._changed:
            if self._state is _State.OVER:
                return
            self._state = _State.OVER
            self._changed.notify_all()
            if self._wake is not None:
                os.eventfd_write(self._wake, 1)
            if self._socket is None:
                return
            with suppress(OSError):  # it is gone already
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
                # Wakes only the reading thread: the user gets the reset when the socket is closed.
                # Shutting down the other direction would look like a normal end to the user.
                self._socket.shutdown(socket.SHUT_RD)

    def forward(self) -> None:
        """Open the connection and forward its bytes until either end stops."""
        try:
            sock = self._open(self)
            if sock is None:
                self._tell_board()
                self.cut()
            else:
                self._forward(sock)
        except LinkError:
            self.cut()
        finally:
            with self._changed:
                self._state = _State.OVER
                if self._socket is not None:
                    self._socket.close()

    def _forward(self, sock: socket.socket) -> None:
        giver = threading.Thread(target=self._give, args=(sock,), name="hdc forward", daemon=True)
        giver.start()
        try:
            buffer = memoryview(bytearray(_PIECE_BYTES))
            with suppress(OSError):  # its user reset it: the same as the end
                while count := sock.recv_into(buffer):
                    self._channel.send(Command.FORWARD_DATA, self.context, buffer[:count])
            self._tell_board()
            self._drain()
        except LinkError:
            self.cut()
        finally:
            giver.join()

    def _tell_board(self) -> None:
        """Tell the board of the end. It ends both directions: there is no half-close."""
        if not self._is_freed_by_board:
            self._channel.send(Command.FORWARD_FREE_CONTEXT, self.context)

    def _drain(self) -> None:
        with self._changed:
            if self._state is _State.OPEN:
                self._state = _State.DRAINING
                self._changed.notify_all()

    def _give(self, sock: socket.socket) -> None:
        """Pass the board's bytes to the user, then wake the reading thread for the end."""
        with suppress(OSError):  # the user no longer reads
            while (data := self._next()) is not None:
                if not self._push(sock, memoryview(data)):
                    break
            if self._state is not _State.OVER:
                sock.shutdown(socket.SHUT_WR)
        with self._changed:
            if self._state is not _State.OVER:
                self._state = _State.OVER
                self._changed.notify_all()
                with suppress(OSError):
                    sock.shutdown(socket.SHUT_RD)

    def _push(self, sock: socket.socket, data: memoryview) -> bool:
        """Pass all waiting bytes to the user; return False if the connection was cut before."""
        while data:
            try:
                data = data[sock.send(data, socket.MSG_DONTWAIT) :]
            except BlockingIOError:
                if not self._wait_for_room(sock):
                    return False
        return True

    def _wait_for_room(self, sock: socket.socket) -> bool:
        """Wait until the user reads more or the connection is cut; False if it was cut before."""
        with self._changed:
            if self._state is _State.OVER:
                return False
            try:
                self._wake = wake = os.eventfd(0, os.EFD_CLOEXEC)
            except OSError as error:
                _log.warning("a forwarded connection is cut: %s", error)
                self.cut()
                return False
        try:
            poll = select.poll()
            poll.register(sock, select.POLLOUT)
            poll.register(wake, select.POLLIN)
            poll.poll()
        finally:
            with self._changed:
                self._wake = None
            os.close(wake)
        return True  # each wait first checks if the connection is cut

    def _next(self) -> bytes | None:
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._state is not _State.OPEN)
            if self._state is _State.OVER or not self._queue:
                return None
            data = self._queue.popleft()
            self._waiting_bytes -= len(data)
            self._changed.notify_all()
            return data
