"""The faults of one board, waiting and active, and how often each was injected."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

from labctl.daemon.hooks import Interference, Line
from labctl.errors import ConfigError
from labctl.virtual.fault_script import (
    ClockJump,
    Drop,
    Fault,
    FaultScript,
    FaultState,
    Freeze,
    Garbage,
    HangUp,
    Injected,
    KillProcesses,
    Kind,
    OomKill,
    Reboot,
    ThermalZone,
    Throttle,
    Timed,
)
from labctl.virtual.faulty_wire import FaultyWire

T = TypeVar("T")

_ANSWER_SECONDS = 10.0


class Victim(Protocol):
    """The board on which faults act; use it on its event loop only."""

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run ``work`` in the background; the board waits for it when it stops."""

    async def restart(self) -> None:
        """Reboot."""

    async def kill_processes(self) -> None:
        """Kill all processes."""

    async def oom_kill(self) -> bool:
        """Kill the process that the kernel would choose; return False if there is none."""

    async def throttle(self, celsius: float, khz: int, memory_hz: int, within: float) -> None:
        """Let the chip get hot and slow."""

    def show_sensors(self) -> None:
        """Simulate sensors for the on-board agent."""

    def show_zone(self, zone: int, reads: str) -> None:
        """Let a thermal zone show a text."""

    def jump_clock(self, seconds: int) -> None:
        """Move the wall clock."""


class FaultInjector(Interference):
    """Faults of one board. The public methods may be called from any thread."""

    def __init__(self, script: FaultScript | None = None, *, seed: int | None = None):
        """Use ``seed`` instead of the script's seed, if given."""
        script = script or FaultScript(faults=())
        self._seed = script.seed if seed is None else seed
        self._injected: list[Injected] = []
        self._added = 0
        self._wires: set[FaultyWire] = set()
        self._frozen = False
        self._thawing: asyncio.TimerHandle | None = None
        self._board: Victim
        self._loop: asyncio.AbstractEventLoop | None = None
        self._script = script

    # For users and tests

    def add(self, fault: Fault) -> Injected:
        """Inject a fault, on its operations or at once (``on: now``).

        Raises ConfigError if the board does not run.
        """
        return self._there(lambda: self._add(fault))

    def clear(self) -> None:
        """Remove every waiting fault, and :meth:`thaw`. Earlier effects stay."""
        self._there(self._clear)

    def thaw(self) -> None:
        """End a freeze."""
        self._there(self._thaw)

    def states(self) -> list[FaultState]:
        """Return every fault so far, with its counts."""
        return [injected.state for injected in list(self._injected)]

    # For the board

    def attach(self, board: Victim) -> None:
        """Attach a board that runs on this event loop; the delays of the script start now."""
        self._board = board
        self._loop = asyncio.get_running_loop()
        for fault in self._script.faults:
            self._add(fault)

    def booted(self) -> None:
        """Note a restart of the board: a frozen hdcd answers again, sensors are reset."""
        self._thaw()
        if any(isinstance(injected.fault, Throttle | ThermalZone) for injected in self._injected):
            self._board.show_sensors()

    # For the wires

    def wire(self, line: Line) -> FaultyWire:
        """Return the observer of a new connection."""
        wire = FaultyWire(line, self)
        self._wires.add(wire)
        if self._frozen:
            wire.freeze()
        return wire

    def forget(self, wire: FaultyWire) -> None:
        """Drop the observer of a closed connection."""
        self._wires.discard(wire)

    def chosen(self, kind: Kind, text: str) -> list[Injected]:
        """Return the faults that affect an operation that begins."""
        return [injected for injected in self._injected if injected.chooses(kind, text)]

    def apply(self, injected: Injected, wire: FaultyWire | None, channel: int) -> None:
        """Apply a fault now, on an operation or without one."""
        board = self._board
        # Kills are counted when done: there may be no process to kill.
        injected.fired += not isinstance(injected.fault, OomKill | KillProcesses)
        match injected.fault:
            case Freeze(lasting=lasting):
                self._freeze(lasting)
            case Drop():
                for each in list(self._wires) if wire is None else [wire]:
                    each.cut()
            case HangUp() if wire is not None:
                wire.hang_up(channel)
            case Garbage(size=size) if wire is not None:
                wire.inject(injected.random.randbytes(size))
            case Reboot():
                board.spawn(board.restart())
            case KillProcesses():
                board.spawn(self._kill_processes(injected))
            case OomKill():
                board.spawn(self._oom_kill(injected))
            case Throttle(celsius=celsius, mhz=mhz, memory_mhz=memory, within=within):
                hot = board.throttle(celsius, mhz * 1000, memory * 1_000_000, within or 0.0)
                board.spawn(hot)
            case ThermalZone(zone=zone, reads=reads):
                board.show_zone(zone, reads)
            case ClockJump(seconds=seconds):
                board.jump_clock(seconds)

    # Internal

    def _there(self, work: Callable[[], T]) -> T:
        """Run ``work`` on the board's event loop."""
        loop = self._loop
        if loop is None or not loop.is_running():
            raise ConfigError("the virtual board is not running: no fault can be injected")
        try:
            if asyncio.get_running_loop() is loop:
                return work()
        except RuntimeError:
            pass  # this thread has another event loop, or none

        async def there() -> T:
            return work()

        return asyncio.run_coroutine_threadsafe(there(), loop).result(_ANSWER_SECONDS)

    def _add(self, fault: Fault) -> Injected:
        self._added += 1
        injected = Injected(self._added, fault, self._seed)
        self._injected.append(injected)
        if isinstance(fault, Throttle | ThermalZone):
            self._board.show_sensors()
        if fault.on == "now":
            assert isinstance(fault, Timed)
            self._loop_now().call_later(fault.after or 0.0, self.apply, injected, None, 0)
        return injected

    def _loop_now(self) -> asyncio.AbstractEventLoop:
        assert self._loop is not None
        return self._loop

    def _clear(self) -> None:
        self._injected.clear()
        self._thaw()

    def _freeze(self, lasting: float | None) -> None:
        self._frozen = True
        for wire in self._wires:
            wire.freeze()
        if self._thawing:
            self._thawing.cancel()
        self._thawing = self._loop_now().call_later(lasting, self._thaw) if lasting else None

    def _thaw(self) -> None:
        self._frozen = False
        if self._thawing:
            self._thawing.cancel()
            self._thawing = None
        for wire in list(self._wires):
            wire.thaw()

    async def _kill_processes(self, injected: Injected) -> None:
        await self._board.kill_processes()
        injected.fired += 1

    async def _oom_kill(self, injected: Injected) -> None:
        injected.fired += await self._board.oom_kill()
