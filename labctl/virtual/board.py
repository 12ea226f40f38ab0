"""Virtual boards: a directory, an hdc daemon on loopback, and a sandbox to run commands in."""

import asyncio
import ipaddress
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from labctl.errors import ConfigError, HostError, HostTimeout
from labctl.files import host_writes, locked
from labctl.hdc.daemon import Board, Daemon
from labctl.virtual.sandbox import WORKDIR, Sandbox, boot, kill_boot

_LOCK_FILE = ".labctl-lock"


@dataclass(frozen=True)
class VirtualBoard:
    """What a virtual board is to be. ``port`` 0 lets the system choose.

    ``emulator`` and ``preload`` make ARM64 programs run (see :func:`labctl.virtual.sandbox.boot`).
    Commands run as the invoking user: this is a test double, not a jail.
    """

    name: str
    directory: Path
    host: str = "127.0.0.1"
    port: int = 0
    emulator: tuple[str, ...] = ()
    preload: Path | None = None


@dataclass(frozen=True)
class Served:
    """A virtual board that answers now."""

    name: str
    host: str
    port: int
    directory: Path
    workdir: Path
    boot_id: str
    note: str | None

    @property
    def address(self) -> str:
        """As devices.yaml wants it."""
        return f"{self.host}:{self.port}"


class _Running:
    """One board being served; reboots are its own affair."""

    def __init__(self, plan: VirtualBoard):
        self._plan = plan
        self._directory = plan.directory.resolve()
        self._guard = ExitStack()
        self._sandbox: Sandbox
        self._daemon: Daemon
        self._reboot: asyncio.Task[None] | None = None

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
                hint="give each board a directory of its own, or stop the other one",
            ) from error
        try:
            port = await self._boot(plan.port)
        except BaseException:
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
        )

    async def stop(self) -> None:
        """A power cut: connections drop, every process of the board is killed."""
        try:
            if self._reboot:
                await self._reboot
        finally:
            await self._power_off()
            self._guard.close()

    async def _boot(self, port: int) -> int:
        plan = self._plan
        with host_writes(self._directory):
            self._sandbox = boot(self._directory, emulator=plan.emulator, preload=plan.preload)
        self._daemon = Daemon(
            Board(
                name=plan.name,
                directory=self._directory,
                shell=self._sandbox.shell,
                environment=self._sandbox.environment,
                on_reboot=self._on_reboot,
            )
        )
        try:
            return await self._daemon.start(plan.host, port)
        except BaseException:
            kill_boot(self._sandbox.boot_id)
            raise

    async def _power_off(self) -> None:
        self._daemon.cut()
        try:
            await asyncio.to_thread(kill_boot, self._sandbox.boot_id)
        finally:
            await self._daemon.stop()

    def _on_reboot(self, how: str) -> None:
        port = self._daemon.port
        if self._reboot is None or self._reboot.done():
            self._reboot = asyncio.create_task(self._restart(port, how))

    async def _restart(self, port: int, how: str) -> None:
        await self._power_off()
        if not how:  # "bootloader" and "shutdown" do not come back by themselves
            await self._boot(port)


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
    """Serve boards until ``stopped`` is set; ``ready`` is called once, when all answer."""
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
        # One that cannot be stopped must not keep the others running.
        ends = await asyncio.gather(*(b.stop() for b in running), return_exceptions=True)
        for failure in filter(None, ends):
            raise failure


def serve(boards: Sequence[VirtualBoard], ready: Callable[[list[Served]], None]) -> None:
    """Serve boards until SIGINT, SIGTERM or SIGHUP, then kill what runs on them.

    Raises ConfigError (no loopback address, directory in use), HostError (port taken).
    """

    async def main() -> None:
        loop = asyncio.get_running_loop()
        stopped = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:  # nohup
                loop.add_signal_handler(number, stopped.set)
        await serve_until(boards, ready, stopped)

    asyncio.run(main())


@contextmanager
def serving(*boards: VirtualBoard, timeout: float = 30.0) -> Iterator[list[Served]]:
    """Serve boards from a thread of this process while the context is open (for tests)."""
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
