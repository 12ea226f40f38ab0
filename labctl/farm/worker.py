"""The loop that claims jobs for boards of this host, and runs each attempt in its own thread.

Only the table of jobs decides who has a board. The loop looks when an attempt ends, when a lab's
queue engine wakes it, and every two seconds by itself: a lost notice costs two seconds at most. If
the database is away meanwhile, running jobs continue, and their ends are reported when it is back.
"""

import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from queue import Empty, SimpleQueue

from labctl import interrupts
from labctl.database.base import DamagedDatabase, UnwritableDatabase, patience
from labctl.distribution import labctl_version
from labctl.errors import Blame, ExitStatus, HostError, InfraError, LabctlError, LeaseLost
from labctl.farm.host_lacks import HostLacks
from labctl.farm.interrupts import on_interrupt, raise_first
from labctl.farm.job import Executor, FarmJob, JobResult
from labctl.farm.preparing import Inputs, Preparing
from labctl.farm.queue_engine import QueueEngine
from labctl.retry import retry_infra
from labctl.state.health import BoardHealth
from labctl.state.job import Job, worker_name
from labctl.state.job_order import Suits, in_order
from labctl.state.lease import steady_seconds
from labctl.state.state import LabState
from labctl.state.uses import QUEUED_KINDS, UseKind
from labctl.state.waiting import Waiting

_DATABASE_AWAY_SECONDS = 7 * 86_400.0
#: The rest after a look is this many times as long: looks take a fifth of a busy worker's time.
_REST = 4.0
#: Number of jobs that a worker reports as left to others.
_MOST_LEAVES = 1000


@dataclass
class Worker:
    """One worker process.

    Args:
        state: the lab's state.
        host: name of this lab host.
        boards: boards that it serves.
        executor: carries out the jobs.
        engine: the queue engine that wakes it; None in a lab of one host.
        understands: returns True if this labctl can run a job; any other job stays in the queue for
            a worker of another version.
        lacks: returns what is missing on this host for a job; the job stays in the queue until
            then.
        inputs: returns what a job needs on this host; the job stays in the queue while it is
            missing.
        prepare: brings the inputs here, in its own thread.
        builds: returns a value that changes with each build on this host.
        note: gets lines for people.
        log: gets a line for each attempt that begins or ends.
        group: the only group whose jobs it runs, on boards that no living worker serves; it is then
            not in the lab's list of workers, and a first signal interrupts its jobs. None: all
            jobs.
        is_over: returns True when a worker of a group must end; called at each look.
        on_begin: gets an attempt and its board before it begins.
        on_run: gets an attempt that ended and its run, before the end is reported to the queue;
            returns False if another run is the job's result.
        stop_job: interrupts a cancelled job.
        reaches: returns True if this host reaches a board; None: it does not know yet.
    """

    state: LabState
    host: str
    boards: Sequence[str]
    executor: Executor
    engine: QueueEngine | None = None
    understands: Callable[[Job], bool] = lambda _job: True
    lacks: Callable[[Job], str | None] = lambda _job: None
    inputs: Callable[[Job], Inputs] = lambda _job: {}
    prepare: Callable[[Job], None] = lambda _job: None
    builds: Callable[[], object] = lambda: None
    note: Callable[[str], None] = lambda _line: None
    log: Callable[[str], None] = lambda _line: None
    group: str | None = None
    is_over: Callable[[], bool] = lambda: False
    on_begin: Callable[[Job, str], None] = lambda _job, _board: None
    on_run: Callable[[Job, str], bool] = lambda _job, _run: True
    stop_job: Callable[[str], None] = lambda _job: None
    reaches: Callable[[str], bool | None] = lambda _board: True
    name: str = ""
    #: Interval (s) between two looks, also while the database cannot be used.
    look_seconds: float = 2.0
    #: This worker retries a board on which infrastructure interrupted a job after this time (s).
    away_seconds: float = 15.0
    #: Gets an item when there may be something to do.
    _woken: "SimpleQueue[None]" = field(default_factory=SimpleQueue)
    _stopping: threading.Event = field(default_factory=threading.Event)
    #: Set when running jobs must end and the worker stops waiting.
    _breaking_off: threading.Event = field(default_factory=threading.Event)
    #: Board -> its attempt, until the end is reported.
    _running: "dict[str, _Attempt]" = field(default_factory=dict)
    #: Time at which a sign of life is overdue, by a clock that counts while the host sleeps.
    _sign_due: float = 0.0
    #: Board -> time of its retry, by the monotonic clock.
    _away: dict[str, float] = field(default_factory=dict)
    #: Job -> reason of its cancellation while it ran.
    _cancelled: dict[str, str] = field(default_factory=dict)
    #: Kind and SHA-256 of a waiting content -> a job with this content.
    _contents: dict[tuple[str, str], Job] = field(default_factory=dict)
    #: Contents that only a newer labctl can run.
    _strange: set[tuple[str, str]] = field(default_factory=set)
    _lacking: HostLacks = field(init=False)
    _reported_lacks: set[str] = field(default_factory=set)
    #: Kind and SHA-256 of contents that it leaves to others now; below, the contents last reported.
    _left: set[tuple[str, str]] = field(default_factory=set)
    _leaves: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Begin with nothing missing."""
        self._lacking = HostLacks(self.builds)
        self.name = self.name or worker_name(self.host)

    @cached_property
    def _preparing(self) -> Preparing:
        on_end = partial(self._woken.put, None)
        return Preparing(self.inputs, self.prepare, self.note, on_end)

    def run(self, *, until_empty: bool = False) -> None:
        """Serve until SIGTERM or Ctrl-C, or until no job waits that this worker could run.

        A first signal lets running jobs end; a second one interrupts them, and they are resumed
        later: then it raises KeyboardInterrupt. Raises HostError for a database that cannot be used
        at the start, or is damaged.
        """
        if self.engine is not None:
            self.engine.prepare()
        with on_interrupt(self.stop if self.group is None else self.break_off):
            while True:
                self._serve(until_empty=until_empty)
                # This worker is no longer listed: whoever submits a job starts another worker.
                if self.group is not None and self._stopping.is_set():
                    raise KeyboardInterrupt
                if self._stopping.is_set() or not until_empty or self._is_empty():
                    return

    @contextmanager
    def beside(self) -> Iterator[Callable[[], None]]:
        """Serve in its own thread; at the end of the context interrupt running jobs.

        Yields a function that raises the error that ended the thread early, such as a damaged
        database.
        """
        errors: list[BaseException] = []

        def serve() -> None:
            try:
                self._serve(until_empty=False)
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=serve, name="jobs of a group")
        thread.start()
        try:
            yield lambda: raise_first(errors)
        finally:
            self.break_off()
            thread.join()

    def stop(self) -> None:
        """End after the jobs that run now; called again, interrupt them."""
        if self._stopping.is_set():
            self.break_off()
        elif running := sorted(self._running):
            self.note(f"ends after the jobs on {', '.join(running)}")
        self._stopping.set()
        self._woken.put(None)

    def break_off(self) -> None:
        """End, and interrupt the jobs that run now: they are resumed later."""
        self._stopping.set()
        if not self._breaking_off.is_set():
            self._breaking_off.set()
            if self.group is None:
                self.note("the running jobs are interrupted; they are resumed later")
        self.executor.stop()
        self._woken.put(None)

    def _serve(self, *, until_empty: bool) -> None:
        """Serve as one worker of the lab's list, from its first to its last sign of life."""
        errors: list[BaseException] = []
        self._show_life()
        with self._signs_of_life():
            try:
                with self._wakes():
                    self._serve_boards(until_empty=until_empty)
            except BaseException as error:
                errors.append(error)
                self._stopping.set()
                self.break_off()
            while self._running:
                try:
                    self._rest()
                    with suppress(HostError), patience(0.0):
                        self._look_through()
                except KeyboardInterrupt as pressed:
                    errors.append(pressed)
                    self.break_off()
        if self.group is None:
            with suppress(HostError), patience(0.0):  # it counts as gone soon
                self.state.workers.remove(self.name)
        raise_first(errors)

    def _wakes(self) -> AbstractContextManager[None]:
        if self.engine is None:
            return nullcontext()
        return self.engine.waking(self.boards, lambda: self._woken.put(None), self.note)

    def _serve_boards(self, *, until_empty: bool) -> None:
        """Begin jobs until this worker must stop, or no job is left for it."""
        said = ""
        while not self._stopping.is_set():
            looked = time.monotonic()
            try:
                with patience(note=self.note, stopping=self._stopping):
                    self._mend()
                    self._begin()
                    self._tell_leaves()
                    is_idle = self.group is not None or not self._running
                    if until_empty and is_idle and self._is_empty():
                        return
                said = ""
            except (DamagedDatabase, UnwritableDatabase):
                raise  # waiting does not help
            except HostError as error:
                if error.message != said:
                    self.note(f"{error.message}; the running jobs continue")
                said = error.message
            except KeyboardInterrupt as end:
                if end.__cause__ is None:  # a signal; else it no longer waits for the database
                    raise
            if self._running:
                interrupts.sleep(min(self.look_seconds, _REST * (time.monotonic() - looked)))
            self._rest()

    def _rest(self) -> None:
        """Wait until there may be something to do; note the attempts that have ended."""
        with suppress(Empty):
            interrupts.get(self._woken, self.look_seconds)
            while True:
                self._woken.get_nowait()
        for board, attempt in list(self._running.items()):
            if attempt.is_over:
                del self._running[board]

    def _mend(self) -> None:
        """Free the jobs of dead workers, and stop cancelled jobs."""
        if steady_seconds() >= self._sign_due:  # this host slept: its own jobs are not lost
            self._show_life()
        self.state.jobs.free_lost()
        self._look_through()

    def _begin(self) -> None:
        """Claim jobs for free boards, and begin them."""
        wanted = {board for board, _kind in self._wanted()} - self._served_by_others()
        if not (free := {board for board in wanted if not self._is_paused(board)}):
            return
        free -= {lease.board for lease in self.state.leases.list()}
        if free := {board for board in free if self.reaches(board)}:
            suits = self._suits()
            claimed = self.state.jobs.claim(
                sorted(free), self.name, suits=lambda: suits, group=self.group
            )
            # Attempts change jobs one after the other, as they end.
            for job in sorted(claimed, key=lambda one: one.expected_seconds or 0.0):
                attempt = self._running[str(job.board)] = _Attempt(job)
                threading.Thread(target=self._work, args=(attempt,), name=f"job {job.id}").start()

    def _tell_leaves(self) -> None:
        """Report at once the jobs that this worker does not run: they need not wait for it."""
        leaves = sorted({content for _kind, content in self._left} | self._lacking.left)
        told = tuple(leaves[:_MOST_LEAVES])
        if told != self._leaves:
            self._leaves = told
            if self.group is None:
                self._give_sign()
            else:
                self.state.groups.tell_leaves(self.group, self.name, told)

    def _served_by_others(self) -> set[str]:
        """Return the boards that a group leaves to living workers."""
        if self.group is None:
            return set()
        return {board for one in self.state.workers.list() if one.is_alive for board in one.boards}

    def _wanted(self) -> set[tuple[str, UseKind]]:
        """Return the boards of this worker for which jobs wait, with their kinds."""
        return {one for one in self.state.jobs.wanted_boards() if one[0] in self.boards}

    def _is_paused(self, board: str) -> bool:
        """Return True if this worker uses a board, it failed lately, or its tools are missing."""
        is_broken = time.monotonic() < self._away.get(board, 0.0)
        return board in self._running or is_broken or self._lacking.pauses(board)

    def _is_empty(self) -> bool:
        """Return True if no job waits that this worker could run, now or soon."""
        if self.group is not None:
            return self.is_over()
        wanted = {one for one in self._wanted() if self.reaches(one[0]) is not False}
        known = {one.board: one for one in self.state.health.list()} if wanted else {}
        fit = {
            one for one in wanted if self._may_do(known.get(one[0], BoardHealth(one[0])), one[1])
        }
        if not fit:
            return True
        suits = self._suits()
        return not self._preparing.is_busy and not any(
            (board, job.kind) in fit and suits(job, board)
            for job in self.state.jobs.waiting(self.boards)
            for board in job.boards
        )

    def _may_do(self, health: BoardHealth, kind: UseKind) -> bool:
        is_fit = kind in QUEUED_KINDS and health.may_do(kind)
        return is_fit or self.state.health.has_untrusted_use(health)

    def _suits(self) -> Suits:
        """Return a function that returns False for jobs that this worker does not run."""
        left = self._left = self._left_to_others()
        groups = {} if self.group is None else self.state.workers.of_groups()
        # A job that runs here may wait again: it counted as dead while this process was suspended.
        here = {attempt.job.id for attempt in self._running.values()}

        def suits(job: Waiting, board: str) -> bool:
            if job.is_foreground:
                return True  # its board is kept free for it
            if not self._is_mine(job):
                owner = groups.get(job.group or "")
                return owner is not None and owner.runs(job, board)  # and so is this one
            is_left = any((job.kind, content) in left for content in job.contents)
            return job.id not in here and not is_left and is_here(job)

        def is_here(job: Waiting) -> bool:
            return not self._lacking.jobs([job.id])

        return suits

    def _left_to_others(self) -> set[tuple[str, str]]:
        """Return contents that this labctl or this host cannot run; report each once."""
        waiting = self.state.jobs.waiting_contents(self.boards)
        for one in self._contents.keys() - waiting.keys():
            del self._contents[one]
        for one in waiting.keys() - self._contents.keys():
            job = self.state.jobs.get(waiting[one])
            if job is None or job.damaged:
                continue
            self._contents[one] = job
            if not self.understands(job) and one not in self._strange:
                self._strange.add(one)
                self.note(f"job {job.id} ({job.name}) waits for a worker of a newer labctl")
        left = set(self._strange)
        for one, job in self._contents.items():
            # A group's job is tried: it ends and reports what is missing, which may never come.
            if self.group is None and one not in left and (what := self.lacks(job)):
                left.add(one)
                if what not in self._reported_lacks:
                    self.note(f"job {job.id} ({job.name}) and others that need it wait: {what}")
                self._reported_lacks.add(what)
        here = {one: job for one, job in self._contents.items() if one not in left}
        if unready := self._preparing.unready(here):
            self._prepare({one: here[one] for one in unready})
        return left | unready

    def _prepare(self, contents: Mapping[tuple[str, str], Job]) -> None:
        """Prepare contents, the next jobs first, unless another host is free earlier."""
        own = {*self.boards} - self._served_by_others()
        waiting = in_order(self.state.jobs.waiting(sorted(own)), {})
        due = [
            (job.kind, content)
            for job in waiting
            for content in job.contents
            if (job.kind, content) in contents and self._is_mine(job)
            if self._is_first(job, own)
        ]
        self._preparing.begin((one, contents[one]) for one in dict.fromkeys(due))

    def _is_mine(self, job: Waiting) -> bool:
        return not job.is_foreground and self.group in (None, job.group)

    def _is_first(self, job: Waiting, own: set[str]) -> bool:
        """Return True if a board of this host is free for a job before other hosts' boards."""
        alive = (one for one in self.state.workers.list() if one.is_alive)
        others = {board for one in alive for board in one.boards if one.name != self.name} - own
        if others.isdisjoint(job.boards):
            return True
        left = self.state.jobs.remaining()
        mine = min(left.get(board, 0.0) for board in own.intersection(job.boards))
        return mine <= min(left.get(board, 0.0) for board in others.intersection(job.boards))

    def _work(self, attempt: "_Attempt") -> None:
        """Carry out an attempt and report its end; runs in the attempt's thread."""
        job, board = attempt.job, str(attempt.job.board)
        try:
            self.log(f"job {job.id} ({job.name}) runs on {board}, attempt {job.attempts}")
            builds = self.builds()
            result = self._outcome(job, board)
            if not result.is_final and job.id not in self._cancelled:  # another host may succeed
                if result.is_host_lacking and not result.is_passing:
                    self._lacking.note(job.id, board, result, builds)
                else:
                    self._away[board] = time.monotonic() + self.away_seconds
            self._report(job, result)
        finally:
            attempt.is_over = True
            self._woken.put(None)

    def _outcome(self, job: Job, board: str) -> JobResult:
        """Return the result of an attempt; a bug in it ends only this attempt."""
        try:
            self.on_begin(job, board)
            follows = self.state.jobs.follows(job)
            result = self.executor.run(FarmJob.queued(job, follows=follows), board)
            if result.run is not None and not self.on_run(job, result.run):
                # The next attempt, on any host, takes the existing result.
                return JobResult(
                    ExitStatus.INTERRUPTED, reason="another run had finished it before"
                )
        except LabctlError as error:
            return JobResult.of(error)
        except BaseException as error:  # SystemExit, too: its status is not a status of labctl
            reason = f"a bug in labctl: {type(error).__name__}: {error}"
            self.note(f"job {job.id}: {reason}; please report it with these lines:")
            for line in traceback.format_exc().splitlines():
                self.note(line)
            return JobResult(ExitStatus.INFRA, blame=Blame.INFRA, reason=reason)
        return result

    def _report(self, job: Job, result: JobResult) -> None:
        """Report the end of an attempt to the queue; wait for a database that is away.

        The run is on this host's disk: its end may be reported late. Once jobs are interrupted,
        this does not wait: the next worker finds their runs.
        """

        def retry(error: InfraError) -> None:
            if self._breaking_off.is_set():
                raise KeyboardInterrupt from error

        try:
            with patience(_DATABASE_AWAY_SECONDS, note=self.note, stopping=self._breaking_off):
                retry_infra(  # also retries errors without a wait, such as a read-only database
                    lambda: self._tell(job, result),
                    on=(HostError,),
                    timeout=_DATABASE_AWAY_SECONDS,
                    on_retry=retry,
                    stopping=self._breaking_off,
                )
        except (LabctlError, KeyboardInterrupt) as error:
            why = error if isinstance(error, LabctlError) else error.__cause__
            self.note(f"the end of job {job.id} is not reported: {why}")
            return
        if result.is_final and job.id not in self._cancelled:
            self._count(job)

    def _count(self, job: Job) -> None:
        """Count a job of its board; a health check of the board may be due then."""
        try:
            with patience(stopping=self._breaking_off):
                self.state.health.job_done(str(job.board))
        except (LabctlError, KeyboardInterrupt) as error:  # the job's result is kept anyway
            why = error if isinstance(error, LabctlError) else error.__cause__
            self.note(f"note: job {job.id} on {job.board} is not counted: {why}")

    def _tell(self, job: Job, result: JobResult) -> None:
        reason, status = result.reason, result.exit_status
        if result.is_board_broken:
            self.state.health.want_check(str(job.board), f"job {job.id} broke there: {reason}")
        if result.run is not None and result.run != job.run:
            self.state.jobs.start(job, result.run)
        if cancelled := self._cancelled.get(job.id):
            self.state.jobs.finish(job, status, reason=cancelled, state="cancelled")
        elif result.is_final or self._is_hopeless(result):
            self.state.jobs.finish(job, status, blame=result.blame, reason=reason)
        else:
            broken = result.is_board_broken
            counted = result.is_counted and not result.is_host_lacking
            self.state.jobs.requeue(job, reason or "", blame_board=broken, counted=counted)
        self.log(f"job {job.id} ended with status {status}{f': {reason}' if reason else ''}")

    def _is_hopeless(self, result: JobResult) -> bool:
        """Return True if a group's job lacks something here, and waiting does not help."""
        return self.group is not None and result.is_host_lacking and not result.is_passing

    @contextmanager
    def _signs_of_life(self) -> Iterator[None]:
        """Give signs of life in a separate thread: the loop may wait for long."""
        over = threading.Event()

        def live() -> None:
            while not over.wait(self.state.lease_seconds / 4):
                with suppress(HostError), patience(0.0):
                    self._show_life()

        alive = threading.Thread(target=live, name="signs of life")
        alive.start()
        try:
            yield
        finally:
            over.set()
            alive.join()

    def _show_life(self) -> None:
        self._give_sign()
        self.state.jobs.renew(self.name)

    def _give_sign(self) -> None:
        version, now = labctl_version(), steady_seconds()
        if self.group is None:
            self.state.workers.give_sign(
                self.name, self.host, list(self.boards), version, leaves=self._leaves
            )
        self._sign_due = now + self.state.lease_seconds / 2

    def _look_through(self) -> None:
        """Interrupt cancelled jobs; free jobs whose end could not be reported."""
        known = {attempt.job.id for attempt in self._running.values()}
        for job, stop in self.state.jobs.attempts(self.name).items():
            if job not in known:
                found = self.state.jobs.get(job)
                if found is not None and not found.damaged and found.worker == self.name:
                    reason = "its worker could not report its end"
                    with suppress(LeaseLost):
                        self.state.jobs.requeue(found, reason, blame_board=False)
            elif stop is not None and job not in self._cancelled:
                self._cancelled[job] = stop
                self.stop_job(job)


@dataclass
class _Attempt:
    """A claimed job, until the end of its attempt is reported."""

    job: Job
    is_over: bool = False
