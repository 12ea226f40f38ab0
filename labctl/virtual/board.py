"""Virtual boards: a directory, a daemon on loopback, and a sandbox to run commands in."""

import asyncio
import ipaddress
import signal
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from labctl import interrupts
from labctl.adb.daemon.daemon import Daemon as AdbDaemon
from labctl.adb.daemon.phone import Phone
from labctl.daemon.authorisation import Authorisation
from labctl.daemon.limits import allow_boards
from labctl.errors import ConfigError, HostError, HostTimeout
from labctl.files import host_writes
from labctl.hdc.daemon.board import Board
from labctl.hdc.daemon.daemon import Daemon as HdcDaemon
from labctl.hdc.daemon.version_profile import Version
from labctl.locks import locked
from labctl.virtual.android import show_android
from labctl.virtual.control import ControlSocket
from labctl.virtual.effects_log import EffectsLog
from labctl.virtual.fault_injector import FaultInjector
from labctl.virtual.fault_script import FaultScript
from labctl.virtual.sandbox import WORKDIR, Sandbox, boot, kill_boot, kill_process, most_wasteful

#: Protocol that a virtual board's daemon speaks.
Protocol = Literal["hdc", "adb"]
PROTOCOLS: tuple[Protocol, ...] = get_args(Protocol)

_LOCK_FILE = ".labctl-lock"


@dataclass(frozen=True)
class VirtualBoard:
    """Settings of a virtual board. ``port`` 0 lets the system choose.

    ``emulator`` and ``preload`` make ARM64 programs run (see :func:`labctl.virtual.sandbox.boot`).
    ``faults`` are the faults to inject. ``protocol`` decides the daemon, and what its shell has of
    OpenHarmony or Android. ``version`` is the imitated release of hdcd.
    ``authorisation`` says which hosts are admitted; None admits all. Commands run as the invoking
    user: this is a test double, not a jail.
    """

    name: str
    directory: Path
    host: str = "127.0.0.1"
    port: int = 0
    emulator: tuple[str, ...] = ()
    preload: Path | None = None
    faults: FaultScript | None = None
    protocol: Protocol = "hdc"
    version: Version = "3.2.0c"
    authorisation: Authorisation | None = None
    #: The board's kernel has PID namespaces; its shell may make them if this host permits it.
    pid_namespaces: bool = True
    #: Reported memory size; None: this host's.
    memory_bytes: int | None = None
    #: Log file of every change below its workdir, with connection and epoch; see
    #: :mod:`labctl.virtual.effects_log`. Several boards may share it.
    effects: Path | None = None


@dataclass(frozen=True)
class Served:
    """A running virtual board."""

    name: str
    host: str
    port: int
    directory: Path
    workdir: Path
    boot_id: str
    note: str | None
    faults: FaultInjector
    """Faults that are injected from the start; more can be added."""

    def document(self, emulator: Iterable[str]) -> dict[str, object]:
        """Return the board's location and boot as JSON, with the words of its emulator."""
        return {
            "name": self.name,
            "address": self.address,
            "directory": str(self.directory),
            "workdir": str(self.workdir),
            "boot_id": self.boot_id,
            "note": self.note,
            "emulator": list(emulator),
        }

    @property
    def address(self) -> str:
        """Address of the board as in devices.yaml."""
        return f"{self.host}:{self.port}"


class _Running:
    """One board being served. It handles reboots itself."""

    def __init__(self, plan: VirtualBoard):
        self._plan = plan
        self._directory = plan.directory.resolve()
        self._guard = ExitStack()
        self._sandbox: Sandbox
        self._daemon: HdcDaemon | AdbDaemon
        self._faults = FaultInjector(plan.faults)
        self._effects: EffectsLog | None = None
        self._control = ControlSocket(
            self._directory, self._faults, plan.authorisation, self._restart_later
        )
        self._work: set[asyncio.Task[None]] = set()
        self._restarting: asyncio.Task[None] | None = None
        self._failures: list[BaseException] = []

    async def start(self) -> Served:
        plan = self._plan
        _require_loopback(plan.host)
        with host_writes(self._directory):
            self._directory.mkdir(parents=True, exist_ok=True)
        try:
            self._guard.enter_context(locked(self._directory / _LOCK_FILE, timeout=0))
        except HostTimeout as error:
            raise ConfigError(
                f"another virtual board already runs in {self._directory}",
                hint="give each board its own directory, or stop the other one",
            ) from error
        try:
            port = await self._boot(plan.port)
            try:
                self._faults.attach(self)
                await self._control.start()
            except BaseException:
                await self._power_off()
                raise
        except BaseException:
            if self._effects:
                self._effects.close()
            self._guard.close()
            raise
        return Served(
            plan.name,
            plan.host,
            port,
            self._directory,
            self._directory / WORKDIR,
            self._sandbox.boot_id,
            self._sandbox.note,
            self._faults,
        )

    async def stop(self) -> None:
        """Simulate a power cut: connections drop, every process of the board is killed.

        Raises earlier errors of background work.
        """
        try:
            await self._control.stop()
            if self._restarting:
                await asyncio.wait([self._restarting])
            await self._cancel_work()
        finally:
            await self._power_off()
            if self._effects:
                self._effects.close()
            self._guard.close()
        if self._effects and self._effects.failure:
            raise self._effects.failure
        for failure in self._failures:
            raise failure

    # For faults

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run ``work`` in the background; the board waits for it when it stops."""
        task = asyncio.create_task(work)
        self._work.add(task)
        task.add_done_callback(self._worked)

    async def restart(self, how: str = "") -> None:
        """Reboot; after ``"bootloader"`` and ``"shutdown"`` the board stays off."""
        if self._restarting:
            return
        self._restarting = asyncio.current_task()
        try:
            port = self._daemon.port
            await self._cancel_work()
            await self._power_off()
            if not how:
                await self._boot(port)
                self._faults.booted()
        finally:
            self._restarting = None

    async def kill_processes(self) -> None:
        """Kill all processes of this boot."""
        await asyncio.to_thread(kill_boot, self._sandbox.boot_id)

    async def oom_kill(self) -> bool:
        """Kill the process that the kernel would choose; return False if there is none."""
        box = self._sandbox
        worst = await asyncio.to_thread(most_wasteful, box.boot_id)
        # Count first, as the kernel does: whoever sees that the process ended must find it counted.
        return worst is not None and kill_process(worst, box.boot_id, box.fakes.count_oom_kill)

    async def throttle(self, celsius: float, khz: int, memory_hz: int, within: float) -> None:
        """Let the chip get hot and slow."""
        await self._sandbox.fakes.throttle(celsius, khz, memory_hz, within)

    def show_sensors(self) -> None:
        """Simulate sensors for the on-board agent."""
        self._sandbox.fakes.show_sensors()

    def show_zone(self, zone: int, reads: str) -> None:
        """Let a thermal zone show a text."""
        self._sandbox.fakes.show_zone(zone, reads)

    def jump_clock(self, seconds: int) -> None:
        """Move the wall clock."""
        self._sandbox.fakes.jump_clock(seconds, self._sandbox.programs)

    # Internal

    async def _boot(self, port: int) -> int:
        plan = self._plan
        with host_writes(self._directory):
            self._sandbox = boot(
                self._directory,
                emulator=plan.emulator,
                preload=plan.preload,
                version=plan.version,
            )
            if plan.effects is not None and self._effects is None:
                workdir = self._directory / WORKDIR
                self._effects = EffectsLog(plan.name, workdir, plan.effects, self._faults)
            if not plan.pid_namespaces:
                self._sandbox.fakes.lack_pid_namespaces()
            if plan.memory_bytes is not None:
                self._sandbox.fakes.show_memory(plan.memory_bytes)
            if plan.protocol == "adb":
                show_android(self._directory, self._sandbox.programs, plan.name)
        self._daemon = self._new_daemon()
        try:
            return await self._daemon.start(plan.host, port)
        except BaseException:
            kill_boot(self._sandbox.boot_id)
            raise

    def _restart_later(self, how: str) -> None:
        self.spawn(self.restart(how))

    def _new_daemon(self) -> HdcDaemon | AdbDaemon:
        plan = self._plan
        board: dict[str, Any] = {
            "name": plan.name,
            "directory": self._directory,
            "shell": self._sandbox.shell,
            "environment": self._sandbox.environment,
            "on_reboot": self._restart_later,
            "interference": self._effects or self._faults,
            "authorisation": plan.authorisation,
        }
        if plan.protocol == "adb":
            return AdbDaemon(Phone(**board))
        return HdcDaemon(Board(**board, version=plan.version))

    async def _power_off(self) -> None:
        self._daemon.cut()
        try:
            await asyncio.to_thread(kill_boot, self._sandbox.boot_id)
        finally:
            await self._daemon.stop()

    async def _cancel_work(self) -> None:
        others = self._work - {asyncio.current_task()}
        for task in others:
            task.cancel()
        if others:
            await asyncio.wait(others)

    def _worked(self, task: "asyncio.Task[None]") -> None:
        self._work.discard(task)
        if not task.cancelled() and (failure := task.exception()):
            self._failures.append(failure)


def _require_loopback(host: str) -> None:
    try:
        loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        loopback = False
    if not loopback:
        raise ConfigError(
            f"a virtual board listens on loopback only, not on {host!r}",
            hint="it runs every command it is sent, as you; use 127.0.0.1",
        )


async def serve_until(
    boards: Sequence[VirtualBoard],
    ready: Callable[[list[Served]], None],
    stopped: asyncio.Event,
) -> None:
    """Serve boards until ``stopped`` is set; call ``ready`` once, when all boards answer."""
    allow_boards(len(boards))
    running: list[_Running] = []
    try:
        served = []
        for plan in boards:
            board = _Running(plan)
            served.append(await board.start())
            running.append(board)
        ready(served)
        await stopped.wait()
    finally:
        # If one board cannot be stopped, still stop the others.
        ends = await asyncio.gather(*(b.stop() for b in running), return_exceptions=True)
        for failure in filter(None, ends):
            raise failure


def serve(boards: Sequence[VirtualBoard], ready: Callable[[list[Served]], None]) -> None:
    """Serve boards until SIGINT, SIGTERM or SIGHUP, then kill the processes on them."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        stopped = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:  # nohup
                loop.add_signal_handler(number, stopped.set)
        interrupts.check()  # a signal before these handlers were set
        await serve_until(boards, ready, stopped)

    asyncio.run(main())


@contextmanager
def serving(*boards: VirtualBoard, timeout: float = 30.0) -> Iterator[list[Served]]:
    """Serve boards in a thread of this process while the context is open (for tests)."""
    answering = threading.Event()
    served: list[Served] = []
    loop = asyncio.new_event_loop()
    stopped = asyncio.Event()

    def ready(boards: list[Served]) -> None:
        served.extend(boards)
        answering.set()

    def run() -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(serve_until(boards, ready, stopped))

    with ThreadPoolExecutor(1, thread_name_prefix="virtual boards") as pool:
        work = pool.submit(run)
        work.add_done_callback(lambda _: answering.set())
        try:
            if not answering.wait(timeout):
                raise HostError(f"virtual boards are not ready within {timeout:g} s")
            if served:
                yield served
        finally:
            if not work.done():
                loop.call_soon_threadsafe(stopped.set)
            work.result()
