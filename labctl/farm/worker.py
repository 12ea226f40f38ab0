"""A lab host's worker: it runs the jobs of the boards that are attached there.

The engine wakes it for a board; only the table of jobs decides which job is next. Each attempt runs
in its own thread through the :class:`~labctl.farm.job.Executor`, as on one host. If the database is
away meanwhile, a running job continues, and its end is reported when the database is back.
"""

import asyncio
import importlib.metadata
import signal
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from labctl import interrupts
from labctl.database import patience
from labctl.errors import ExitStatus, HostError, LeaseLost
from labctl.farm.host_lacks import HostLacks
from labctl.farm.job import QUEUED_KINDS, Executor, FarmJob, JobResult
from labctl.farm.queue_engine import (
    SERVE,
    QueueEngine,
    already_awake,
    engine_error_types,
    engine_errors,
    host_error,
    queue_of,
    serving,
)
from labctl.retry import retry_infra
from labctl.state import Job, LabState
from labctl.state.job import worker_name
from labctl.state.job_order import Suits
from labctl.state.leases import steady_seconds

if TYPE_CHECKING:
    from procrastinate import App, JobContext
    from procrastinate.jobs import Job as EngineTask

_DATABASE_AWAY_SECONDS = 7 * 86_400.0


@dataclass
class HostWorker:
    """One worker process.

    Args:
        engine: the lab's queue engine.
        state: the lab's state.
        host: name of this lab host.
        boards: boards that it serves.
        executor: carries out the jobs.
        understands: returns True if this labctl can run a job; any other job stays in the queue for
            a worker of another version.
        lacks: returns what is missing on this host for a job; the job stays in the queue until that
            is there.
        builds: returns a value that changes with each build on this host.
        note: gets lines for people.
        on_begin: gets an attempt and its board before it begins.
        on_run: gets an attempt that ended and its run, before the end is reported to the queue;
            returns False if another run is the job's result.
        stop_job: interrupts a cancelled job.
        look_after: checks a board's health if a check is due; called while no job has the board.
    """

    engine: QueueEngine
    state: LabState
    host: str
    boards: Sequence[str]
    executor: Executor
    understands: Callable[[Job], bool] = lambda _job: True
    lacks: Callable[[Job], str | None] = lambda _job: None
    builds: Callable[[], object] = lambda: None
    note: Callable[[str], None] = lambda _line: None
    on_begin: Callable[[Job, str], None] = lambda _job, _board: None
    on_run: Callable[[Job, str], bool] = lambda _job, _run: True
    stop_job: Callable[[str], None] = lambda _job: None
    look_after: Callable[[str], object] = lambda _board: None
    name: str = field(default_factory=worker_name)
    #: Interval (s) of the search for leftovers, and of retries while the database is away.
    mend_seconds: float = 2.0
    again_seconds: float = 2.0
    #: A board on which infrastructure interrupted a job is retried from here after this (s).
    away_seconds: float = 15.0
    #: For the engine, a worker has stalled after this time (s) without a sign of life.
    stall_seconds: float = 30.0
    _stopping: threading.Event = field(default_factory=threading.Event)
    _ended: threading.Event = field(default_factory=threading.Event)
    #: When a sign of life is overdue, by a clock that counts while the host sleeps.
    _sign_due: float = 0.0
    _broken: BaseException | None = None
    _running: dict[str, "Future[None]"] = field(default_factory=dict)
    #: Board -> time of its retry, by the monotonic clock.
    _away: dict[str, float] = field(default_factory=dict)
    #: Job -> why somebody cancelled it while it ran.
    _cancelled: dict[str, str] = field(default_factory=dict)
    _left: set[str] = field(default_factory=set)
    _lacking: HostLacks = field(init=False)
    _reported_lacks: set[str] = field(default_factory=set)
    _engine_worker: Any = None
    #: Tasks of the engine that run, and tasks that only seem to run, by id.
    _tasks: set[int | None] = field(default_factory=set)
    _unowned: set[int | None] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Begin with nothing missing."""
        self._lacking = HostLacks(self.builds)

    def run(self, *, drain: bool = False) -> None:
        """Serve until SIGTERM or Ctrl-C, or with ``drain`` until no job is left for its boards.

        A first signal lets running jobs end; a second one interrupts them, and they are resumed
        later. Raises HostError if the database cannot be used at the start.
        """
        self.engine.prepare()
        self._give_sign()
        alive = threading.Thread(target=self._stay_alive, name="signs of life")
        alive.start()
        try:
            with ThreadPoolExecutor(max(len(self.boards), 1), "board") as pool:
                asyncio.run(self._serve(pool, drain=drain))
        finally:
            self._ended.set()
            alive.join()
            with suppress(HostError), patience(0.0):
                self.state.workers.remove(self.name)
        if self._broken is not None:
            raise self._broken

    def stop(self) -> None:
        """End after the jobs that run now; called again, interrupt them."""
        if self._stopping.is_set():
            self.note("the running jobs are interrupted; they are resumed later")
            self.executor.stop()
            return
        self._stopping.set()
        if self._running:
            self.note(f"ends after the jobs on {', '.join(sorted(self._running))}")
        if self._engine_worker is not None:
            self._engine_worker.shutdown_graceful_timeout = None
            self._engine_worker.stop()

    async def _serve(self, pool: ThreadPoolExecutor, *, drain: bool) -> None:
        from procrastinate.worker import Worker

        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._note_unseen)
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, self.stop)
            interrupts.check()  # one that came before these handlers
        while not self._stopping.is_set():
            try:
                with engine_errors():
                    async with self._app(pool).open_async() as app:
                        self._engine_worker = Worker(
                            app,
                            queues=[*map(queue_of, self.boards)],
                            name=self.name,
                            concurrency=len(self.boards) + 2,
                            wait=not drain,
                            # The engine's tasks end with the database; their jobs continue.
                            shutdown_graceful_timeout=1.0,
                            delete_jobs="always",
                            install_signal_handlers=False,
                            update_heartbeat_interval=self.stall_seconds / 3,
                            stalled_worker_timeout=self.stall_seconds,
                            # There is no notice that a dead worker's task no longer locks its
                            # board.
                            fetch_job_polling_interval=self.mend_seconds / 2,
                        )
                        for board in self.boards:
                            with already_awake():
                                await serving(app, board).defer_async(board=board)
                        mending = asyncio.create_task(self._keep_mending(app))
                        # A bug there ends the worker: without it boards would be lost one by one.
                        mending.add_done_callback(lambda _ended: self._engine_worker.stop())
                        try:
                            await self._engine_worker.run()
                        finally:
                            mending.cancel()
                            with suppress(asyncio.CancelledError):
                                await mending
                if drain:
                    return
            except HostError as error:
                self.note(f"{error.message}; the running jobs continue")
            await asyncio.to_thread(self._stopping.wait, self.again_seconds)
        running = [asyncio.wrap_future(future) for future in self._running.values()]
        await asyncio.gather(*running, return_exceptions=True)

    def _app(self, pool: ThreadPoolExecutor) -> "App":
        import procrastinate

        app = procrastinate.App(connector=self.engine.connector())
        loop = asyncio.get_running_loop()

        @app.task(name=SERVE, pass_context=True)
        async def serve(context: "JobContext", board: str) -> None:
            if board not in self.boards:
                return
            future = self._running.get(board)
            if future is None:
                future = self._running[board] = pool.submit(self._work, board)
                future.add_done_callback(
                    lambda ended: loop.call_soon_threadsafe(self._note_end, board, ended)
                )
            self._tasks.add(context.job.id)
            try:
                await asyncio.shield(asyncio.wrap_future(future))
            finally:
                self._tasks.remove(context.job.id)

        return app

    async def _keep_mending(self, app: "App") -> None:
        """Repair the queue until cancelled.

        The engine's periodic tasks do not suit: they use the wall clock. A clock set back stops
        them, a clock set forward starts them all at once.
        """
        while True:
            if self._stopping.is_set():  # before the engine's worker ran: it would not notice
                self._engine_worker.stop()
            with suppress(HostError), engine_errors():
                await self._mend(app)
            await asyncio.sleep(self.mend_seconds)

    async def _mend(self, app: "App") -> None:
        """Free the jobs of dead workers, stop cancelled jobs, wake boards that were not woken."""
        from procrastinate.jobs import Status

        seconds = self.stall_seconds
        stalled = await app.job_manager.get_stalled_jobs(seconds_since_heartbeat=seconds)
        for task in [*stalled, *await self._unowned_tasks(app)]:
            await app.job_manager.finish_job(task, Status.FAILED, delete_job=True)
        with patience(0.0):  # the threads below take it over
            if steady_seconds() >= self._sign_due:  # this host slept: its own jobs are not lost
                await asyncio.to_thread(self._show_life)
            await asyncio.to_thread(self.state.jobs.free_lost)
            self._break_off(await asyncio.to_thread(self.state.jobs.to_stop, self.name))
            wanted = await asyncio.to_thread(self.state.jobs.wanted_boards)
        for board in {board for board, _kind in wanted}:
            if board not in self._running:
                with already_awake():
                    await serving(app, board).defer_async(board=board)

    async def _unowned_tasks(self, app: "App") -> "list[EngineTask]":
        """Return the tasks that belong to this worker only in the engine's table.

        Their begin or end was lost while the database was away. They would lock their boards for
        all workers as long as this one lives. A task just beginning looks the same for a moment, so
        a task is returned only at the second look.
        """
        worker = self._engine_worker.worker_id
        if worker is None:  # not yet known to the engine
            return []
        found = await app.job_manager.list_jobs_async(status="doing", worker_id=worker)
        seen, unowned = self._unowned, [task for task in found if task.id not in self._tasks]
        self._unowned = {task.id for task in unowned}
        return [task for task in unowned if task.id in seen]

    def _work(self, board: str) -> None:
        """Run the jobs of a board one after the other, as long as it is free."""
        try:
            while job := self._claimed(board):
                self._attempt(job, board)
        except HostError as error:
            self.note(f"board {board}: {error.message}")

    def _claimed(self, board: str) -> Job | None:
        """Return the next job for a board; None if there is none, or the board is not free.

        Waits for the database: a job whose claim was committed belongs to this worker.
        """
        try:
            with patience(note=self.note, stopping=self._stopping):
                if self._stopping.is_set() or self._is_away(board):
                    return None
                if self._is_in_service(board):
                    self.look_after(board)  # before users' jobs: it may keep them off a sick board
                    if self._is_away(board):
                        return None
                suits = self._suits()
                jobs = self.state.jobs.claim([board], self.name, suits=lambda: suits)
                return jobs[0] if jobs else None
        except KeyboardInterrupt:  # a thread has no other: it is to stop
            return None

    def _note_unseen(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Report a task that the engine could not record in the database; the repair handles it."""
        error = context.get("exception")
        if isinstance(error, engine_error_types()):
            self.note(host_error(error).message)
        else:
            loop.default_exception_handler(context)

    def _note_end(self, board: str, ended: "Future[None]") -> None:
        del self._running[board]
        if error := ended.exception():  # a bug: a new worker continues
            self._broken = error
            self._stopping.clear()
            self.stop()

    def _is_away(self, board: str) -> bool:
        """Return True if a board is in use, failed lately, or its tools are missing here."""
        is_broken = time.monotonic() < self._away.get(board, 0.0)
        return is_broken or self._lacking.pauses(board) or self.state.leases.get(board) is not None

    def _is_in_service(self, board: str) -> bool:
        return any(map(self.state.health.get(board).may_do, QUEUED_KINDS))

    def _attempt(self, job: Job, board: str) -> None:
        self.note(f"job {job.id} ({job.name}) runs on {board}, attempt {job.attempts}")
        self.on_begin(job, board)
        builds = self.builds()
        result = self.executor.run(FarmJob.queued(job), board)
        if result.run is not None and not self.on_run(job, result.run):
            # The next attempt, on any host, takes the existing result.
            result = JobResult(ExitStatus.INTERRUPTED, reason="another run had finished it before")
        elif not result.is_final and job.id not in self._cancelled:  # another host may succeed
            if result.is_host_lacking and not result.is_passing:
                self._lacking.note(job.id, board, result, builds)
            else:
                self._away[board] = time.monotonic() + self.away_seconds
        try:
            # The run is on this host's disk: its end may be reported late, but must be reported.
            with patience(_DATABASE_AWAY_SECONDS, note=self.note):
                retry_infra(  # also what no wait for the database covers: it may be read-only
                    lambda: self._tell(job, result), on=(HostError,), timeout=_DATABASE_AWAY_SECONDS
                )
        except LeaseLost as error:
            self.note(error.message)

    def _tell(self, job: Job, result: JobResult) -> None:
        reason, status = result.reason, result.exit_status
        if result.is_board_broken:
            self.state.health.want_check(str(job.board), f"job {job.id} broke there: {reason}")
        if result.run is not None and result.run != job.run:
            self.state.jobs.start(job, result.run)
        if cancelled := self._cancelled.get(job.id):
            self.state.jobs.finish(job, status, reason=cancelled, state="cancelled")
        elif result.is_final:
            self.state.jobs.finish(job, status, blame=result.blame, reason=reason)
            self.state.health.job_done(str(job.board))
        else:
            broken = result.is_board_broken
            counted = result.is_counted and not result.is_host_lacking
            self.state.jobs.requeue(job, reason or "", blame_board=broken, counted=counted)
        self.note(f"job {job.id} ended with status {status}{f': {reason}' if reason else ''}")

    def _suits(self) -> Suits:
        """Return a function: False for jobs that this labctl or this host cannot run."""
        waiting = [job for job in self.state.jobs.list() if job.waits]
        strange = {
            job.id: job
            for job in waiting
            if not (job.kind == "foreground" or self.understands(job))
        }
        for job in (job for name, job in strange.items() if name not in self._left):
            self.note(f"job {job.id} ({job.name}) waits for a worker of a newer labctl")
        lacking = self._lacking.jobs(job.id for job in waiting)
        for job in waiting:
            if job.id not in strange and (what := self.lacks(job)):
                lacking.add(job.id)
                if what not in self._reported_lacks:
                    self.note(f"job {job.id} ({job.name}) and others that need it wait: {what}")
                self._reported_lacks.add(what)
        self._left |= set(strange)
        return lambda job, _board: job.id not in strange and job.id not in lacking

    def _stay_alive(self) -> None:
        while not self._ended.wait(self.state.lease_seconds / 4):
            with suppress(HostError), patience(0.0):
                self._show_life()

    def _show_life(self) -> None:
        self._give_sign()
        self._break_off(self.state.jobs.renew(self.name))

    def _break_off(self, jobs: Sequence[Job]) -> None:
        """Interrupt jobs that were cancelled."""
        for job in jobs:
            self._cancelled[job.id] = job.stop or ""
            self.stop_job(job.id)

    def _give_sign(self) -> None:
        version, now = importlib.metadata.version("labctl"), steady_seconds()
        self.state.workers.give_sign(self.name, self.host, list(self.boards), version)
        self._sign_due = now + self.state.lease_seconds / 2
