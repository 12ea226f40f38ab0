"""The queue engine of a lab with several hosts: procrastinate, in the lab's own PostgreSQL schema.

The table ``job`` has the jobs, their order and their results. The engine only dispatches them: one
task for each board wakes the worker of that board (NOTIFY), runs once at a time (a lock for each
board), and outlives a worker that dies (heartbeats). It knows no job: its tables hold nothing that
a backup would need.

Nothing depends on its locks: a worker that was suspended continues beside its successor, and only
the board's epoch decides.
"""

import hashlib
import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from labctl.config.lab import LabFile
from labctl.database import patience
from labctl.database.postgresql import LINK, PostgresDatabase
from labctl.errors import ConfigError, HostError, ToolMissing

if TYPE_CHECKING:
    from procrastinate import App
    from procrastinate.connector import BaseConnector
    from sqlalchemy import Connection

SERVE = "labctl.serve"
#: A channel of PostgreSQL has 63 characters, of which procrastinate takes 23.
_LONGEST_QUEUE = 40
# The errors raised here contain what matters of these messages.
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
        """Make the engine's tables, once. Raises HostError."""
        from procrastinate.schema import SchemaManager

        if "procrastinate_jobs" in self._database.tables():
            return

        def make(connection: "Connection") -> None:
            driver: Any = connection.connection.driver_connection
            (there,) = driver.execute("SELECT to_regclass('procrastinate_jobs')").fetchone()
            if there is None:
                driver.execute(SchemaManager.get_schema())

        self._database.change(make)

    def connector(self, *, connections: int = 4) -> "BaseConnector":
        """Return an asynchronous connection to the engine's tables."""
        made: BaseConnector = _procrastinate().PsycopgConnector(
            conninfo=self._url, min_size=1, max_size=connections, timeout=20, kwargs=self._link
        )
        return made

    def wake(self, boards: Iterable[str]) -> None:
        """Let the workers of these boards look for a job at once. Raises HostError."""
        procrastinate = _procrastinate()
        self.prepare()
        connector = procrastinate.SyncPsycopgConnector(
            conninfo=self._url, min_size=1, max_size=1, timeout=20, kwargs=self._link
        )
        with engine_errors(), procrastinate.App(connector=connector).open() as app:
            for board in boards:
                with already_awake():
                    serving(app, board).defer(board=board)

    @property
    def _link(self) -> dict[str, Any]:
        return {**LINK, "options": f"-c search_path={self._database.schema}"}


def wake_workers(lab: LabFile, boards: Iterable[str]) -> None:
    """Let the workers of these boards look at once; where that fails, they look soon themselves."""
    if lab.database is not None:
        with suppress(HostError, ConfigError), patience(0.0):
            QueueEngine(lab).wake(boards)


def serving(app: "App", board: str) -> Any:
    """Return the task of a board, to be deferred; there is one that waits at most."""
    return app.configure_task(SERVE, queue=queue_of(board), lock=board, queueing_lock=board)


def queue_of(board: str) -> str:
    """Return the name of a board's queue."""
    name = f"board-{board}"
    if len(name) <= _LONGEST_QUEUE:
        return name
    return f"board-{hashlib.sha256(board.encode()).hexdigest()[:32]}"


@contextmanager
def already_awake() -> Iterator[None]:
    """Pass over a task that waits already."""
    try:
        yield
    except _procrastinate().exceptions.AlreadyEnqueued:
        return


@contextmanager
def engine_errors() -> Iterator[None]:
    """Turn the engine's errors into HostError."""
    try:
        yield
    except engine_error_types() as error:
        raise host_error(error) from None


def engine_error_types() -> tuple[type[Exception], ...]:
    """Return what the engine raises where it cannot use the database."""
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
            hint="pip install 'labctl[farm]'",
        ) from error
    return procrastinate
