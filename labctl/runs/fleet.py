"""Several boards served at once: what one of them does wrong is its own affair."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from labctl.config.lab import Board
from labctl.deploy import DeployOptions, Object, Sources, Stopwatch, deploy, refuse
from labctl.errors import HostError, InfraError, LabctlError
from labctl.runs.deploying import Offer, make_offer
from labctl.runs.prepare import Prepared
from labctl.runs.session import BoardMeeting, bring_agent, meet_board
from labctl.transport import Transport

T = TypeVar("T")


def at_once(items: Sequence[T], work: Callable[[T], None], stop: Callable[[], None]) -> None:
    """Do the work for all items in threads of their own, and wait for the last.

    When this thread is interrupted, ``stop`` makes the others end. Raises what the work raises.
    """
    if len(items) < 2:  # in this thread: it hears an interrupt at once
        for item in items:
            work(item)
        return
    with ThreadPoolExecutor(len(items)) as pool:
        futures = [pool.submit(work, item) for item in items]
        try:
            for future in futures:
                future.result()
        except BaseException:
            stop()
            raise


@dataclass
class Visit:
    """One board, what is for it, and how it went. ``error`` ends it."""

    board: Board
    transport: Transport
    prepared: Sequence[Prepared]
    offer: Offer | None = None
    error: LabctlError | None = None
    met: BoardMeeting | None = None
    watch: Stopwatch | None = None
    #: What was brought, once it is all there.
    sent: tuple[Object, ...] = ()


class FleetView:
    """Told what happens to each board, from several threads. This one shows nothing."""

    def moved(self, visit: Visit, item: Object, done_bytes: int) -> None:
        """So much of an object is on the board."""

    def lost(self, visit: Visit, error: InfraError) -> None:
        """The link is lost, and taken up again."""

    def ended(self, visit: Visit) -> None:
        """It has everything, or ``visit.error`` says why not."""


@dataclass
class Fleet:
    """The boards of one deploy; they are held until the context ends."""

    visits: Sequence[Visit]
    lab_root: Path
    view: FleetView
    pace: Callable[[int], None] | None = None
    _held: ExitStack = field(default_factory=ExitStack)
    _stopped: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> "Fleet":
        return self

    def __exit__(self, *_error: object) -> None:
        self._held.close()

    @property
    def alive(self) -> list[Visit]:
        """Those that nothing has happened to yet."""
        return [visit for visit in self.visits if visit.error is None]

    def meet(self) -> None:
        """Lock every board and see what it lacks; nothing is sent."""
        self._each(self._meet)

    def refuse_impossible(self) -> None:
        """End the visits that would break off in the middle."""
        for visit in self.alive:
            if visit.offer is not None:
                self._guarded(visit, lambda v: refuse(_problems(v), v.board.name))

    def deliver(self) -> None:
        """Bring every board what its offer says; files are read once for all."""
        sources = Sources()
        self._each(lambda visit: self._deliver(visit, sources))

    def _meet(self, visit: Visit) -> None:
        meeting = meet_board(visit.board, visit.transport, lab_root=self.lab_root)
        visit.met = self._held.enter_context(meeting)
        visit.offer = make_offer(visit.met, visit.prepared, self.lab_root)

    def _deliver(self, visit: Visit, sources: Sources) -> None:
        met, offer = visit.met, visit.offer
        if met is None or offer is None:
            raise ValueError("a board has to be met before it is served")

        def moved(item: Object, done_bytes: int) -> None:
            self._go_on()
            self.view.moved(visit, item, done_bytes)

        session = bring_agent(met, self.lab_root, moved)
        watch = visit.watch = Stopwatch()

        def pace(count: int) -> None:
            self._go_on()
            if self.pace:
                self.pace(count)
            watch(count)

        def lost(error: InfraError) -> None:
            self._go_on()
            self.view.lost(visit, error)

        options = DeployOptions(
            progress=moved,
            pace=pace,
            on_loss=lost,
            sources=sources,
        )
        deploy(session.store, offer.plan, options)
        visit.sent = offer.plan.missing
        if self.pace is None:  # a speed that was wanted says nothing about the link
            watch.note(met.rate_file)
        self.view.ended(visit)

    def _go_on(self) -> None:
        if self._stopped.is_set():
            raise HostError("interrupted")

    def _guarded(self, visit: Visit, work: Callable[[Visit], None]) -> None:
        try:
            work(visit)
        except LabctlError as error:
            visit.error = error
            self.view.ended(visit)

    def _each(self, work: Callable[[Visit], None]) -> None:
        at_once(self.alive, lambda visit: self._guarded(visit, work), self._stopped.set)


def _problems(visit: Visit) -> Sequence[LabctlError]:
    return visit.offer.problems if visit.offer else ()
