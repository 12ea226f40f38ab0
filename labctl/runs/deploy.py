"""``labctl deploy``: send tools and models to several boards at once, and prune their stores.

A failing board does not disturb the others. Sending to one board: ``deploy.send``.
"""

import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TypeVar

from labctl import interrupts
from labctl.board.agent import BoardAgent
from labctl.board.prune import Pruner
from labctl.config.lab import Board, LabFile
from labctl.deploy.plan import DeployPlan, Object, agents_in, refuse
from labctl.deploy.send import DeployOptions, Sources, Stopwatch
from labctl.errors import BoardBusy, BoardNoSpace, HostError, InfraError, LabctlError
from labctl.progress import Pace, Throughput
from labctl.retry import wait_until
from labctl.runs.board.deploy_preview import DeployPreview, preview_deploy, send
from labctl.runs.board.lab_lease import BoardUse
from labctl.runs.board.own_tokens import is_own_token
from labctl.runs.board.session import BoardSession, hold_board
from labctl.runs.inputs.deploy_inputs import Wanted
from labctl.transport.base import Transport

#: Interval of looks for a free board. While another labctl of this host has the board, a look sends
#: nothing to it; if a labctl of another host has it, a look reads the board's facts and lease.
TURN_SECONDS = 5.0

T = TypeVar("T")


def at_once(items: Sequence[T], work: Callable[[T], None], stop: Callable[[], None]) -> None:
    """Do the work for each item in its own thread, and wait for the last.

    If this thread is interrupted, ``stop`` ends the others. Raises the errors of the work.
    """
    if len(items) < 2:  # in this thread, which notices an interrupt at once
        for item in items:
            work(item)
        return
    with ThreadPoolExecutor(len(items)) as pool:
        futures = [pool.submit(work, item) for item in items]
        try:
            for future in futures:
                interrupts.result(future)
        except BaseException:
            stop()
            raise


def when_free(work: Callable[[], T], waits: Callable[[BoardBusy], None]) -> T:
    """Do work on a board once nobody else uses it; ``waits`` gets the error of each refusal.

    ``waits`` may raise to give up. Raises the errors of the work.
    """
    done: list[T] = []

    def is_done() -> bool:
        try:
            done.append(work())
        except BoardBusy as error:
            waits(error)
        return bool(done)

    wait_until(is_done, timeout=math.inf, interval=TURN_SECONDS)
    return done[0]


def board_document(board: str, found: Mapping[str, object] | LabctlError) -> dict[str, object]:
    """Return the findings on a board as JSON, or the error that ended the work on it."""
    if isinstance(found, LabctlError):
        return {"board": board, "error": found.document()}
    return {"board": board, **found}


@dataclass
class BoardTask:
    """One board, its files to send, and the outcome. ``error`` ends the task."""

    board: Board
    wanted: Wanted
    #: None while somebody else uses the board.
    preview: DeployPreview | None = None
    error: LabctlError | None = None
    is_done: bool = False
    watch: Stopwatch | None = None
    #: The sent files, once all have arrived.
    sent: tuple[Object, ...] = ()

    def document(self) -> dict[str, object]:
        """Return the outcome as a JSON document."""
        preview, error = self.preview, self.error
        found: dict[str, object] = {
            "board": self.board.name,
            "error": error and error.document(),
        }
        if preview is not None:
            found |= {
                "wanted": [item.document() for item in preview.plan.objects],
                "missing": [item.document() for item in preview.plan.missing],
                "sent": [item.document() for item in self.sent],
                "missing_bytes": preview.plan.bytes,
                "arrived_bytes": preview.plan.arrived_bytes,
                "expected_seconds": preview.seconds,
                "link_bytes_per_second": preview.bytes_per_second,
                "memory": [fit.document() for fit in preview.fits],
                "warnings": preview.warnings,
                "problems": [problem.message for problem in preview.problems],
                "sent_bytes": self.watch.sent_bytes if self.watch else 0,
            }
        return found


@dataclass
class SendProgress:
    """Bytes of a delivery that are on the board or under way; its rate and remaining time."""

    total_bytes: int
    #: Bytes of each object that are proven on the board, by SHA-256.
    _arrived: dict[str, int] = field(default_factory=dict)
    #: Bytes that were sent and not yet confirmed.
    _in_flight: int = 0
    _sent: int = 0
    _throughput: Throughput = field(default_factory=Throughput)

    @property
    def done_bytes(self) -> int:
        """Bytes on the board or under way."""
        return min(self.total_bytes, sum(self._arrived.values()) + self._in_flight)

    def sent(self, count: int) -> None:
        """Count bytes that left this host."""
        self._sent += count
        self._in_flight += count

    def arrived(self, item: Object, done_bytes: int) -> None:
        """Note the number of an object's bytes that are proven on the board."""
        came = done_bytes - self._arrived.get(item.sha256, 0)
        self._in_flight = max(0, self._in_flight - came)
        self._arrived[item.sha256] = done_bytes

    def lost(self) -> None:
        """Drop the bytes under way: the link broke."""
        self._in_flight = 0

    def pace(self, now_s: float) -> Pace:
        """Return the rate of the sent bytes, and the remaining time at this rate."""
        per_second = self._throughput.per_second(now_s, self._sent)
        left = self.total_bytes - self.done_bytes
        return Pace(per_second, left / per_second if per_second else None)


class FleetView:
    """Receives the events of each board, from several threads. This class shows nothing."""

    def step(self, step: str, done: int, total: int | None) -> None:
        """Report the progress of a step on this host."""

    def waits(self, error: BoardBusy) -> None:
        """Report that another labctl uses the board, and that labctl waits for it."""

    def begun(self, task: BoardTask, count: int) -> None:
        """Report that sending begins, of ``count`` bytes."""

    def sent(self, task: BoardTask, count: int) -> None:
        """Report ``count`` more bytes as sent; ``moved`` reports bytes that arrived."""

    def moved(self, task: BoardTask, item: Object, done_bytes: int) -> None:
        """Report the number of an object's bytes on the board."""

    def lost(self, task: BoardTask, error: InfraError) -> None:
        """Report that the link was lost and is being reopened."""

    def ended(self, task: BoardTask) -> None:
        """Report the end of a board: it has everything, or ``task.error`` says why not."""


@dataclass
class Fleet:
    """The boards of one deploy. Each board is held only for a look or a delivery.

    ``wait``: wait for boards in use while serving the others; otherwise such boards are refused.
    """

    tasks: Sequence[BoardTask]
    lab: LabFile
    connect: Callable[[Board], Transport]
    view: FleetView
    pace: Callable[[int], None] | None = None
    wait: bool = True
    #: Minimum rate that ``pace`` allows each board, for estimates.
    limit_bytes_per_second: float | None = None
    _stopped: threading.Event = field(default_factory=threading.Event)
    #: Boards in use whose users were reported.
    _announced: set[str] = field(default_factory=set)

    @property
    def waiting(self) -> list[BoardTask]:
        """Tasks whose board was in use at the last look, or had no look yet."""
        return [task for task in self.tasks if task.error is None and task.preview is None]

    @property
    def alive(self) -> list[BoardTask]:
        """Tasks whose board was free, to be served now."""
        return [v for v in self.tasks if v.error is None and v.preview and not v.is_done]

    def find_free(self) -> bool:
        """Wait for free boards and survey them; return False if no board is left. Sends nothing."""

        def is_one_free() -> bool:
            self._each(self.waiting, self._look)
            return bool(self.alive) or not self.waiting

        wait_until(is_one_free, timeout=math.inf, interval=TURN_SECONDS)
        return bool(self.alive)

    def look_again(self) -> None:
        """Look again at the free boards, now that all files are here."""
        self._each(self.alive, self._look)

    def refuse_impossible(self) -> None:
        """End the tasks that would fail later."""
        for task in self.alive:
            if task.preview is not None:
                self._guarded(task, lambda v: refuse(_problems(v), v.board.name))

    @property
    def is_whole(self) -> bool:
        """True if all files for the free boards are on this host."""
        return not any(_to_fetch(task) for task in self.alive)

    def bring_agents(self) -> None:
        """Send the agent to boards for which a model must be downloaded or quantized.

        The agent knows more about a board than its shell: a board without the target's instructions
        is refused before gigabytes are fetched for it.
        """
        tasks = [task for task in self.alive if task.wanted.takes_long(_missing(task))]
        self._each(tasks, self._bring_agent)

    def fetch(self) -> None:
        """Fetch and make files that the free boards and this host lack."""
        for wanted in {task.wanted.target: task.wanted for task in self.alive}.values():
            served = [task for task in self.alive if task.wanted is wanted]
            try:
                wanted.fetch({sha for task in served for sha in _missing(task)}, self.view.step)
            except LabctlError as error:
                for task in served:
                    self._end(task, error)

    def leave(self) -> None:
        """Send nothing to the free boards."""
        for task in self.alive:
            task.is_done = True

    def deliver(self) -> None:
        """Send every board its missing files; each file is read once for all boards."""
        sources = Sources()
        self._each(self.alive, lambda task: self._deliver(task, sources))

    @contextmanager
    def _held(self, task: BoardTask) -> Iterator[tuple[BoardSession, DeployPreview]]:
        with (
            self.connect(task.board) as transport,
            hold_board(task.board, transport, self.lab, BoardUse("deploy", kind="deploy")) as held,
        ):
            held.claim.refuse_if_taken(orphans=True)
            prepared = task.wanted.look(self.view.step)
            task.preview = preview_deploy(held, prepared, self.limit_bytes_per_second)
            yield held, task.preview

    def _look(self, task: BoardTask) -> None:
        with self._held(task):
            pass

    def _bring_agent(self, task: BoardTask) -> None:
        with self._held(task) as (held, _):
            held.bring_agent(lambda _item, _done: self._go_on())

    def _deliver(self, task: BoardTask, sources: Sources) -> None:
        with self._held(task) as (held, preview):
            if _to_fetch(task):  # somebody removed a file from the board
                task.preview = None
                return
            refuse(_problems(task), task.board.name)
            self._send(task, held, preview.plan, sources)
            task.is_done = True

    def _send(
        self, task: BoardTask, held: BoardSession, plan: DeployPlan, sources: Sources
    ) -> None:
        def moved(item: Object, done_bytes: int) -> None:
            self._go_on()
            self.view.moved(task, item, done_bytes)

        held.bring_agent(moved)
        watch = task.watch = Stopwatch()

        def pace(count: int) -> None:
            self._go_on()
            if self.pace:
                self.pace(count)
            self.view.sent(task, count)

        def lost(error: InfraError) -> None:
            self._go_on()
            self.view.lost(task, error)

        options = DeployOptions(progress=moved, pace=pace, on_loss=lost, sources=sources)
        if plan.missing:
            held.hold_to_send()
            self.view.begun(task, plan.bytes)
        # A limited speed says nothing about the link.
        with watch.noted(held.rate_file) if self.pace is None else nullcontext():
            send(held, plan, options, watch)
        task.sent = plan.missing
        self.view.ended(task)

    def _go_on(self) -> None:
        if self._stopped.is_set():
            raise HostError("interrupted")

    def _guarded(self, task: BoardTask, work: Callable[[BoardTask], None]) -> None:
        try:
            work(task)
        except BoardBusy as error:
            if not self.wait:
                self._end(task, error)
                return
            task.preview = None
            if task.board.name not in self._announced:
                self._announced.add(task.board.name)
                self.view.waits(error)
        except LabctlError as error:
            self._end(task, error)

    def _end(self, task: BoardTask, error: LabctlError) -> None:
        task.error = error
        self.view.ended(task)

    def _each(self, tasks: Sequence[BoardTask], work: Callable[[BoardTask], None]) -> None:
        at_once(tasks, lambda task: self._guarded(task, work), self._stopped.set)


def _problems(task: BoardTask) -> Sequence[LabctlError]:
    return task.preview.problems if task.preview else ()


def _missing(task: BoardTask) -> set[str]:
    return {item.sha256 for item in task.preview.plan.missing} if task.preview else set()


def _to_fetch(task: BoardTask) -> bool:
    return bool(task.wanted.to_fetch(_missing(task)))


def pruner_of(held: BoardSession) -> tuple[Pruner, str]:
    """Return the pruner of a board's unused files, and the SHA-256 of the agent that it uses.

    If a full board has no room for this version's agent, uses an older agent on the board. Raises
    the errors of :meth:`BoardSession.bring_agent`.
    """
    transport, workdir, fence = held.transport, held.board.workdir, held.fence
    try:
        held.bring_agent(lambda _item, _done: None)
    except BoardNoSpace:
        there = agents_in(held.store)
        if not there:
            raise
        fence.agent = held.store.path(there[0].sha256)
    assert fence.agent is not None
    agent = BoardAgent(transport, fence.agent, workdir, fence)
    pruner = Pruner(
        transport, workdir, agent, held.claim.leases, lambda lease: is_own_token(lease.token)
    )
    return pruner, fence.agent.rpartition("/")[2]
