"""The queue engine of a lab with several hosts: procrastinate, in the lab's own PostgreSQL schema.

The table ``job`` has the jobs, their order and their results. The engine wakes workers: a task of a
board goes to a worker of that board at once (NOTIFY), and says that there may be a job. The engine
does not know the jobs and decides nothing: a lost task costs one interval of the worker's own
looks.
"""

import asyncio
import hashlib
import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from labctl.config.lab import LabFile
from labctl.database.base import patience
from labctl.database.postgresql import LINK, PostgresDatabase
from labctl.distribution import install_extra
from labctl.errors import ConfigError, HostError, ToolMissing

if TYPE_CHECKING:
    from sqlalchemy import Connection

_WAKE = "labctl.wake"
#: A channel of PostgreSQL has 63 characters, of which procrastinate takes 23.
_LONGEST_QUEUE = 40
#: Time (s) after which the engine counts a process without a sign of life as gone, and after which
#: it retries a database that failed.
_STALL_SECONDS, _AGAIN_SECONDS = 30.0, 2.0
# The errors raised here contain the important parts of these messages.
for _name in ("procrastinate", "psycopg.pool"):
    logging.getLogger(_name).addHandler(logging.NullHandler())


class QueueEngine:
    """The engine of one lab. Raises ConfigError for a lab that has no PostgreSQL, ToolMissing."""

    def __init__(self, lab: LabFile):
        url = lab.database
        if url is None:
            raise ConfigError(
                "several hosts share a queue in a PostgreSQL, and this lab has none",
                hint=f"add `database: postgresql://USER@HOST/DATABASE` to {lab.path}; one host"
                " needs no worker: `labctl run` waits for its turn by itself",
            )
        _procrastinate()
        self._url = url
        self._database = PostgresDatabase(url, lab.name, lab.root)

    def prepare(self) -> None:
        """Create the engine's tables, once. Raises HostError."""
        from procrastinate.schema import SchemaManager

        if "procrastinate_jobs" in self._database.tables():
            return

        def make(connection: "Connection") -> None:
            driver: Any = connection.connection.driver_connection
            (there,) = driver.execute("SELECT to_regclass('procrastinate_jobs')").fetchone()
            if there is None:
                driver.execute(SchemaManager.get_schema())

        self._database.change(make)

    def wake(self, boards: Iterable[str]) -> None:
        """Let the workers of these boards look for a job at once. Raises HostError."""
        procrastinate = _procrastinate()
        self.prepare()
        connector = procrastinate.SyncPsycopgConnector(
            conninfo=self._url, min_size=1, max_size=1, timeout=20, kwargs=self._link
        )
        with engine_errors(), procrastinate.App(connector=connector).open() as app:
            for board in boards:
                task = app.configure_task(_WAKE, queue=queue_of(board), queueing_lock=board)
                with suppress(procrastinate.exceptions.AlreadyEnqueued):
                    task.defer()

    @contextmanager
    def waking(
        self, boards: Iterable[str], wake: Callable[[], None], note: Callable[[str], None]
    ) -> Iterator[None]:
        """Call ``wake``, in another thread, whenever :meth:`wake` names one of these boards.

        While the database is away, ``wake`` is not called and ``note`` gets a line.
        """
        listener = _Listener(self._url, self._link, [*map(queue_of, boards)], wake, note)
        with listener.listening():
            yield

    @property
    def _link(self) -> dict[str, Any]:
        return {**LINK, "options": f"-c search_path={self._database.schema}"}


def wake_workers(lab: LabFile, boards: Iterable[str]) -> None:
    """Let the workers of these boards look at once; if that fails, they look soon by themselves."""
    if lab.database is not None:
        with suppress(HostError, ConfigError), patience(0.0):
            QueueEngine(lab).wake(boards)


def queue_of(board: str) -> str:
    """Return the name of a board's queue."""
    name = f"board-{board}"
    if len(name) <= _LONGEST_QUEUE:
        return name
    return f"board-{hashlib.sha256(board.encode()).hexdigest()[:32]}"


class _Listener:
    """A thread with an event loop, in which procrastinate's worker waits for tasks."""

    def __init__(
        self,
        url: str,
        link: dict[str, Any],
        queues: list[str],
        wake: Callable[[], None],
        note: Callable[[str], None],
    ):
        self._url, self._link, self._queues = url, link, queues
        self._wake, self._note = wake, note
        self._loop = asyncio.new_event_loop()
        self._ending = asyncio.Event()

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Listen until the context ends."""
        thread = threading.Thread(target=self._run, name="queue engine")
        thread.start()
        try:
            yield
        finally:
            self._loop.call_soon_threadsafe(self._ending.set)
            thread.join()
            self._loop.close()

    def _run(self) -> None:
        # If it cannot record the state of a task, nothing is lost: the workers look by themselves.
        self._loop.set_exception_handler(self._unseen)
        self._loop.run_until_complete(self._listen())

    async def _listen(self) -> None:
        said = False
        while not self._ending.is_set():
            try:
                with engine_errors():
                    await self._serve()
                said = False
            except HostError as error:
                if not said:
                    self._note(f"nobody wakes this worker, which looks by itself: {error.message}")
                said = True
            with suppress(TimeoutError):
                await asyncio.wait_for(self._ending.wait(), _AGAIN_SECONDS)

    async def _serve(self) -> None:
        """Take tasks until the end, or until the database fails."""
        from procrastinate.jobs import Status
        from procrastinate.worker import Worker

        procrastinate = _procrastinate()
        connector = procrastinate.PsycopgConnector(
            conninfo=self._url, min_size=1, max_size=4, timeout=20, kwargs=self._link
        )
        app = procrastinate.App(connector=connector)

        @app.task(name=_WAKE)  # type: ignore[untyped-decorator]
        async def wake() -> None:
            self._wake()

        async with app.open_async():
            for task in await app.job_manager.get_stalled_jobs(
                seconds_since_heartbeat=_STALL_SECONDS
            ):
                await app.job_manager.finish_job(task, Status.FAILED, delete_job=True)
            worker: Any = Worker(
                app,
                queues=self._queues,
                delete_jobs="always",
                install_signal_handlers=False,
                shutdown_graceful_timeout=1.0,
                update_heartbeat_interval=_STALL_SECONDS / 3,
                stalled_worker_timeout=_STALL_SECONDS,
            )
            self._wake()  # tasks may have been lost before
            serving = asyncio.create_task(worker.run())
            ending = asyncio.create_task(self._ending.wait())
            await asyncio.wait({serving, ending}, return_when=asyncio.FIRST_COMPLETED)
            ending.cancel()
            worker.stop()
            await serving

    def _unseen(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if not isinstance(context.get("exception"), engine_error_types()):
            loop.default_exception_handler(context)


@contextmanager
def engine_errors() -> Iterator[None]:
    """Turn the engine's errors into HostError."""
    try:
        yield
    except engine_error_types() as error:
        raise host_error(error) from None


def engine_error_types() -> tuple[type[Exception], ...]:
    """Return the errors that the engine raises if it cannot use the database."""
    import psycopg_pool

    return _procrastinate().exceptions.ConnectorException, psycopg_pool.PoolTimeout


def host_error(error: Exception) -> HostError:
    """Return an error of the engine as HostError."""
    words = str(error.__cause__ or error).strip().partition("\n")[0]
    return HostError(
        f"cannot use the lab's queue: {words}",
        hint="is the database running, and reachable from here?",
    )


def _procrastinate() -> Any:
    """Return the library. Raises ToolMissing."""
    try:
        import procrastinate
        import procrastinate.exceptions
    except ModuleNotFoundError as error:
        raise ToolMissing(
            "a lab with several hosts needs the Python package 'procrastinate'",
            hint=install_extra("farm"),
        ) from error
    return procrastinate
