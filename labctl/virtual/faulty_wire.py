"""The connection of a host, with faults injected into its packets."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Protocol

from labctl.daemon.hooks import Buffer, Line, Storage, Wire
from labctl.errors import ProtocolError
from labctl.virtual.delay_queue import DelayQueue
from labctl.virtual.fault_script import (
    Delay,
    Drop,
    Duplicate,
    Freeze,
    HalfFrame,
    Injected,
    Kind,
    Lie,
    Slow,
    ThermalZone,
    Timed,
    Truncate,
)
from labctl.virtual.operation import FaultMatch, Operation
from labctl.virtual.packets import PACKETS
from labctl.virtual.storage import FaultyStorage

#: Bytes that may be queued for a slow link before a writer must wait.
_BACKLOG_BYTES = 1 << 20
#: Faults injected before a packet is handled, so that the packet's work already sees them.
_BEFORE = (Drop, Freeze, ThermalZone)


class BoardFaults(Protocol):
    """The faults of the board, as seen by one of its connections."""

    def chosen(self, kind: Kind, text: str) -> list[Injected]:
        """Return the faults that affect an operation that begins."""

    def apply(self, injected: Injected, wire: "FaultyWire", channel: int) -> None:
        """Apply a fault now."""

    def forget(self, wire: "FaultyWire") -> None:
        """Drop the observer of a closed connection."""


class FaultyWire(Wire):
    """Tracks the operations on one connection and applies due faults to them."""

    def __init__(self, line: Line, faults: BoardFaults):
        super().__init__(line)
        self._faults = faults
        self._packets = PACKETS[line.protocol]
        self._operations: dict[int, Operation] = {}
        self._room = asyncio.Event()
        self._room.set()
        self._in = DelayQueue(partial(line.hold, held=False))
        self._out = DelayQueue(self._room.set)
        self._over = False
        self._mute = False

    # Called by the daemon

    def incoming(self, channel: int, command: int, data: memoryview) -> None:
        """Handle a packet from the host."""
        key = self._packets.key(channel, command)
        operation = self._operations.get(key) or self._begun(key, command, data)
        if operation is None:
            self._take(channel, command, data)
            return
        operation.move("in", len(data))
        matches = self._newly_due(operation)
        first = [match for match in matches if isinstance(match.fault, _BEFORE)]
        if self._cut_by(channel, first):
            return
        if not self._pretended(operation, channel):
            delay, copies = self._lateness(operation, "in")
            for _ in range(copies):
                self._take(channel, command, data, delay=delay, rate=self._rate(operation))
        self._cut_by(channel, [match for match in matches if match not in first])
        if command == self._packets.end:
            self._operations.pop(channel, None)

    def outgoing(self, channel: int, command: int, *data: Buffer) -> None:
        """Handle a packet to the host."""
        if self._over or self._mute:
            return
        operation = self._operations.get(self._packets.key(channel, command))
        body = b"".join(data)
        if operation is None:
            self._give(self._line.encode(channel, command, body))
            return
        shorter = self._packets.shortened(
            command, operation.kind, body, partial(self._shortened, operation)
        )
        if shorter is None:
            return
        body = shorter
        raw = self._line.encode(channel, command, body)
        before = operation.moved
        operation.move("out", len(body))
        matches = self._newly_due(operation)
        for match in matches:
            if isinstance(match.fault, Drop) and not match.fault.after:
                self._line.write(raw[: max(match.fault.after_bytes - before, 0)])
        if self._cut_by(channel, matches):
            return
        for match, _ in operation.active(HalfFrame):
            match.apply()
            self._mute = True
            self._give(raw[: len(raw) // 2])
            return
        delay, copies = self._lateness(operation, "out")
        for _ in range(copies):
            self._give(raw, delay=delay, rate=self._rate(operation))
        if command == self._packets.end:
            self._operations.pop(channel, None)

    def storage(self, channel: int) -> Storage:
        """Return the files of a transfer, with its faults."""
        operation = self._operations.get(channel)
        return FaultyStorage(operation) if operation else super().storage(channel)

    async def drained(self) -> None:
        """Wait while too many written bytes are queued here."""
        await self._room.wait()

    def lost(self) -> None:
        """Note that the connection ended."""
        self._over = True
        self._faults.forget(self)
        self._operations.clear()
        self._in.clear()
        self._out.clear()
        self._room.set()

    # Injected faults

    def freeze(self) -> None:
        """Freeze: read nothing, answer nothing."""
        self._in.hold()
        self._out.hold()
        self._line.hold(held=True)

    def thaw(self) -> None:
        """Continue after a freeze."""
        self._out.release()
        self._in.release()

    def cut(self) -> None:
        """Cut the connection."""
        self._over = True
        self._line.abort()

    def hang_up(self, channel: int) -> None:
        """End the work of a channel normally."""
        # Not at once: the caller may be the work to be ended.
        asyncio.get_running_loop().call_soon(self._line.finish, channel)

    def inject(self, raw: bytes) -> None:
        """Send bytes that are not a packet."""
        self._give(raw)

    # Internal

    def _begun(self, channel: int, command: int, data: memoryview) -> Operation | None:
        begun = self._packets.begun_by(command, data)
        if begun is None:
            return None
        if channel != 0:
            self._operations.pop(0, None)  # the handshake is over
        operation = Operation(*begun, matches=[FaultMatch(i) for i in self._faults.chosen(*begun)])
        self._operations[channel] = operation
        return operation

    def _newly_due(self, operation: Operation) -> list[FaultMatch]:
        matches = [match for match, _ in operation.active(Timed) if not match.due]
        for match in matches:
            match.due = True
        return matches

    def _cut_by(self, channel: int, matches: list[FaultMatch]) -> bool:
        """Inject faults. Return True if the connection is closed now."""
        for match in matches:
            assert isinstance(match.fault, Timed)
            act: Callable[[], None] = partial(self._faults.apply, match.injected, self, channel)
            if match.fault.after:
                asyncio.get_running_loop().call_later(match.fault.after, act)
            else:
                act()
        return self._over

    def _pretended(self, operation: Operation, channel: int) -> bool:
        """Report that a reboot begins, but do nothing."""
        lies = operation.all(Lie) if operation.kind == "reboot" else []
        for match, _ in lies:
            match.apply()
            self._packets.accept_reboot(channel, self.outgoing)
        return bool(lies)

    def _shortened(self, operation: Operation, output: bytes) -> bytes:
        for match, fault in operation.all(Truncate):
            kept = max(fault.after_bytes - operation.printed, 0)
            operation.printed += len(output)
            if kept < len(output):
                match.apply()
                output = output[:kept]
        return output

    def _lateness(self, operation: Operation, direction: str) -> tuple[float, int]:
        """Return the delay (s) of the packet just counted, and how often it is sent."""
        number, delay, copies = operation.packets[direction], 0.0, 1
        for match, late in operation.active(Delay):
            if late.direction == direction and late.packet in (None, number):
                match.apply()
                delay += late.by
        for match, double in operation.active(Duplicate):
            if double.direction == direction and double.packet == number:
                match.apply()
                copies += 1
        return delay, copies

    def _rate(self, operation: Operation) -> int | None:
        rates = []
        for match, slow in operation.active(Slow):
            match.apply()
            rates.append(slow.rate)
        return min(rates, default=None)

    def _take(
        self,
        channel: int,
        command: int,
        data: memoryview,
        *,
        delay: float = 0.0,
        rate: int | None = None,
    ) -> None:
        if self._in.idle and not delay and rate is None:
            self._line.deliver(channel, command, data)
            return
        self._line.hold(held=True)
        later = partial(self._deliver, channel, command, bytes(data))
        self._in.put(len(data), later, delay=delay, rate=rate)

    def _deliver(self, channel: int, command: int, data: bytes) -> None:
        try:
            self._line.deliver(channel, command, memoryview(data))
        except ProtocolError:
            self.cut()

    def _give(self, raw: bytes, *, delay: float = 0.0, rate: int | None = None) -> None:
        if self._out.idle and not delay and rate is None:
            self._line.write(raw)
            return
        self._out.put(len(raw), partial(self._line.write, raw), delay=delay, rate=rate)
        if self._out.waiting_bytes > _BACKLOG_BYTES:
            self._room.clear()
