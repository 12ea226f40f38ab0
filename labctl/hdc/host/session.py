"""The host side of one hdc session over TCP: many channels at once over one connection.

One thread reads: it passes packets to their channels and sends the heartbeats. A caller sends in
its own thread. Every wait has a time-out, and ends with the reason when the link breaks.
"""

import os
import select
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Self

from labctl import interrupts
from labctl.errors import CommandTimeout, DeviceLost, HostError, LinkError
from labctl.hdc.host.channel import LIMITS, Channel, Limits
from labctl.hdc.host.handshake import BoardHandshake, Consent, FindKey, Handshake
from labctl.hdc.host.link import Forwarding, expect, quoted
from labctl.hdc.messages import Buffer, Heartbeat
from labctl.hdc.wire import Command, PacketDecoder, encode_prefix
from labctl.tcp import dial

if TYPE_CHECKING:
    from labctl.hdc.host.channel import PortChannel
    from labctl.hdc.keys import HostKey

_STALL_LOOK_SECONDS = 0.5

_NO_WAITING = Consent()


def _key_of_this_user() -> "HostKey":
    from labctl.hdc.keys import HostKey  # its library is slow to load and seldom needed

    return HostKey.of_this_user()


def lost(label: str, reason: str) -> DeviceLost:
    """Return the error for a broken link."""
    return DeviceLost(
        f"lost the board at {label}: {reason}", hint="is the board powered, and its hdcd running?"
    )


class Session:
    """A connected board. Use :meth:`connect`; safe to use from several threads.

    ``label`` names the link in messages, ``handshake`` is the board's report about itself, and
    ``failure`` is set permanently when the link is broken or closed.
    """

    def __init__(
        self,
        sock: socket.socket,
        decoder: PacketDecoder,
        handshake: BoardHandshake,
        label: str,
        limits: Limits = LIMITS,
    ):
        self.label = label
        self.handshake = handshake
        self.failure: LinkError | None = None
        self._limits = limits
        self._socket = sock
        self._decoder = decoder
        self._sending = threading.Lock()
        self._state = threading.Lock()
        self._channels: dict[int, Channel] = {}
        self._blocked_writers = 0
        self._beats = 0
        self._next_beat = time.monotonic() + limits.heartbeat_seconds
        self._reader = threading.Thread(target=self._read, name=f"hdc {label}", daemon=True)
        self._reader.start()

    @classmethod
    def connect(
        cls,
        host: str,
        port: int,
        *,
        timeout: float,
        find_key: FindKey = _key_of_this_user,
        consent: Consent = _NO_WAITING,
        limits: Limits = LIMITS,
    ) -> Self:
        """Connect to a board's hdcd and shake hands, within ``timeout`` seconds in total.

        ``find_key`` returns the key for a locked board. ``consent`` sets the wait for a user who
        allows the key there.

        Raises LinkRefused (nothing listens or no route), NotAuthorised, CommandTimeout (accepted,
        but silent), DeviceLost, ProtocolError, ConfigError (not a host name).
        """
        label = f"{host}:{port}"
        deadline = time.monotonic() + timeout
        sock = dial(
            host,
            port,
            timeout=timeout,
            peer="board",
            hint="is the board on, on this network, and its hdcd listening (tmode port)?"
            " A virtual board is started with `labctl virtual-board`",
        )
        try:
            decoder = PacketDecoder()
            handshake = Handshake(
                sock, decoder, label, deadline=deadline, find_key=find_key, consent=consent
            ).shake()
            sock.settimeout(None)  # from here on, poll() waits
        except BaseException:
            sock.close()
            raise
        return cls(sock, decoder, handshake, label, limits)

    def channel(self, *, timeout: float, parting: int = 1) -> Channel:
        """Open a channel with a random number; see :class:`Channel`.

        Raises LinkError if the session has ended.
        """
        with self._state:
            number = 0
            while number == 0 or number in self._channels:
                number = int.from_bytes(os.urandom(4))
            channel = Channel(self, number, timeout, parting, self._limits)
            self._channels[number] = channel
        self.check()
        return channel

    @property
    def name(self) -> str | None:
        """See :class:`HostLink`."""
        return self.handshake.name

    @property
    def can_compress(self) -> bool:
        """See :class:`HostLink`."""
        return self.handshake.is_3_2

    @contextmanager
    def open_task(
        self,
        command: Command,
        data: bytes,
        *,
        text: str,  # noqa: ARG002
        timeout: float,
    ) -> Iterator[Channel]:
        """See :class:`HostLink`: a board takes the packet."""
        with self.channel(timeout=timeout) as channel:
            channel.send(command, data)
            yield channel

    @contextmanager
    def open_send(
        self,
        remote: str,  # noqa: ARG002
        *,
        timeout: float,
    ) -> Iterator[Channel]:
        """See :class:`HostLink`: the path follows in FILE_CHECK."""
        with self.channel(timeout=timeout) as channel:
            channel.send(Command.WAKEUP_SLAVETASK)
            yield channel

    @contextmanager
    def open_receive(
        self, remote: str, *, timeout: float, compress: bool = False
    ) -> Iterator[Channel]:
        """See :class:`HostLink`."""
        option = "-z " if compress else ""
        request = f"{option}{quoted(remote)} file".encode(errors="surrogateescape")
        with self.channel(timeout=timeout) as channel:
            channel.send(Command.FILE_INIT, request)
            expect(channel, Command.WAKEUP_SLAVETASK)
            yield channel

    @contextmanager
    def connect_port(self, port: int, *, timeout: float) -> Iterator["PortChannel"]:
        """See :class:`HostLink`: a separate channel is the connection."""
        from labctl.hdc.host.channel import connected_port
        from labctl.hdc.host.forwarding import PARTING

        with (
            self.channel(timeout=timeout, parting=PARTING) as channel,
            connected_port(channel, f"tcp:{port}") as connected,
        ):
            yield connected

    def forward(
        self, listen: str, connect: str, *, timeout: float
    ) -> AbstractContextManager[Forwarding]:
        """See :class:`HostLink`."""
        from labctl.hdc.host.forwarding import PARTING, forward

        return forward(partial(self.channel, timeout=timeout, parting=PARTING), listen, connect)

    def reverse(
        self, listen: str, connect: str, *, timeout: float
    ) -> AbstractContextManager[Forwarding]:
        """See :class:`HostLink`."""
        from labctl.hdc.host.forwarding import PARTING, reverse

        return reverse(partial(self.channel, timeout=timeout, parting=PARTING), listen, connect)

    def forget(self, channel: Channel) -> None:
        """Drop all further packets for this channel."""
        with self._state:
            self._channels.pop(channel.number, None)

    def check(self) -> None:
        """Raise the reason if this session has ended."""
        if self.failure is not None:
            raise self.failure.again()

    def send(self, channel: int, command: int, *data: Buffer, timeout: float) -> None:
        """Send one packet. ``timeout`` (s) limits each wait for the board to take bytes.

        Raises CommandTimeout (this ends the session, because half a packet cannot be taken back),
        DeviceLost.
        """
        prefix = encode_prefix(channel, command, sum(map(len, data)))
        if not interrupts.acquire(self._sending, timeout):
            raise CommandTimeout(f"the link to {self.label} was busy for {timeout:g} s")
        try:
            self.check()
            self._write_whole([memoryview(part) for part in (prefix, *data)], timeout)
        finally:
            self._sending.release()

    def close(self) -> None:
        """End the session, its connection and its thread. Idempotent."""
        self._fail(DeviceLost(f"the link to {self.label} was closed"))
        # Both end at once. Exception: Ctrl-C in a thread that was taking a lock leaves it locked
        # forever, so these waits are limited.
        self._reader.join(self._limits.close_seconds)
        if self._sending.acquire(timeout=self._limits.close_seconds):
            try:  # otherwise a thread could poll a reused descriptor
                self._socket.close()
            finally:
                self._sending.release()

    def _write_whole(self, views: list[memoryview], timeout: float) -> None:
        try:
            self._write(views, timeout)
        except LinkError:
            raise
        except BaseException:  # after Ctrl-C, a new packet would be read as the rest of this one
            self._fail(lost(self.label, "a packet was cut short"))
            raise

    def _write(self, views: list[memoryview], timeout: float) -> None:
        while views:
            try:
                sent = self._socket.sendmsg(views, [], socket.MSG_DONTWAIT)
            except BlockingIOError:
                if not self._wait_for_room(timeout):
                    failure = CommandTimeout(
                        f"{self.label} took no bytes for {timeout:g} s",
                        hint="the board may be frozen, or its storage stuck",
                    )
                    self._fail(failure)
                    raise failure from None
                continue
            except OSError as error:
                self._fail(lost(self.label, error.strerror or str(error)))
                self.check()
            while views and sent >= len(views[0]):
                sent -= len(views.pop(0))
            if views:
                views[0] = views[0][sent:]

    def _wait_for_room(self, timeout: float) -> bool:
        self._blocked_writers += 1  # under the sender's lock
        try:
            return self._wait(select.POLLOUT, timeout)
        finally:
            self._blocked_writers -= 1

    def _wait(self, event: int, timeout: float | None) -> bool:
        poll = select.poll()
        poll.register(self._socket, event)
        with interrupts.waiting():
            return bool(poll.poll(None if timeout is None else max(timeout, 0) * 1000))

    def _read(self) -> None:
        try:
            self._dispatch()  # bytes received together with the handshake
            while True:
                seconds = self._beat_if_due()
                if not self._wait(select.POLLIN, seconds):
                    continue
                count = self._socket.recv_into(self._decoder.room())
                if count == 0:
                    raise lost(self.label, "it closed the connection")
                self._decoder.received(count)
                self._dispatch()
        except LinkError as error:
            self._fail(error)
        except OSError as error:
            self._fail(lost(self.label, error.strerror or str(error)))
        finally:
            self._fail(lost(self.label, "its reader ended"))  # nothing more comes

    def _dispatch(self) -> None:
        for number, command, data in self._decoder.packets():
            with self._state:
                channel = self._channels.get(number)
            if channel is not None:
                self._deliver(channel, command, bytes(data))
            elif number and command == Command.CHANNEL_CLOSE and data and data[0]:
                # Never on channel 0. A board ends the handshake with CHANNEL_CLOSE 1 there, and the
                # official host replies with 0. But for hdcd, any CHANNEL_CLOSE on channel 0 ends
                # every task of the session: if a reply from this thread came after the first
                # command, it would end that command silently. hdcd does not wait for a reply.
                self._try_send(number, Command.CHANNEL_CLOSE, bytes([data[0] - 1]))

    def _deliver(self, channel: Channel, command: int, data: bytes) -> None:
        """Pass a packet to its channel. Nothing else is read meanwhile, so the board waits too.

        The protocol can only stop all channels together. So a channel that nobody reads is
        abandoned if others wait.
        """
        began, stall = time.monotonic(), self._limits.stall_seconds
        while not channel.deliver(command, data, timeout=_STALL_LOOK_SECONDS):
            self._beat_if_due()
            if time.monotonic() - began > stall and self._others_wait(channel):
                self.forget(channel)
                channel.abandon(
                    HostError(
                        f"output of {self.label} was not read for {stall:g} s,"
                        " while others waited for the link",
                        hint="read the output as it arrives, or use a separate link",
                    )
                )
                self._try_send(channel.number, Command.CHANNEL_CLOSE, b"\x01")
                return

    def _others_wait(self, channel: Channel) -> bool:
        with self._state:
            others = [other for other in self._channels.values() if other is not channel]
        return self._blocked_writers > 0 or any(other.is_awaited for other in others)

    def _beat_if_due(self) -> float | None:
        """Send a heartbeat when due; return the seconds until the next one, None if unwanted."""
        if not self.handshake.heartbeat:
            return None
        now = time.monotonic()
        if now >= self._next_beat:
            self._next_beat = now + self._limits.heartbeat_seconds
            self._try_send(0, Command.HEARTBEAT, Heartbeat(self._beats).encode())
            self._beats += 1
        return self._next_beat - now

    def _try_send(self, channel: int, command: Command, data: bytes) -> None:
        """Send a small packet from the reading thread, which must never wait for the board.

        Skip it if the link is full: the bytes being sent show that this host is alive, like a
        heartbeat, and the close of an unknown channel needs no reply.
        """
        if self._sending.acquire(blocking=False):
            try:
                if self._wait(select.POLLOUT, 0):
                    self._write([memoryview(encode_prefix(channel, command, len(data)) + data)], 0)
            finally:
                self._sending.release()

    def _fail(self, reason: LinkError) -> None:
        with self._state:
            if self.failure is not None:
                return
            self.failure = reason
            channels = list(self._channels.values())
        with suppress(OSError):  # the peer may have closed it first
            self._socket.shutdown(socket.SHUT_RDWR)
        for channel in channels:
            channel.wake()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()
