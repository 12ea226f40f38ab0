"""The database of a lab's state, and its backups.

The database is ``labctl.sqlite`` beside devices.yaml, or tables in the lab's PostgreSQL. A backup
is always a SQLite file with the same tables.
"""

import hashlib
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from labctl.config.lab import LabFile
from labctl.config.shared_limits import SharedLimits
from labctl.database.base import Ask, DamagedDatabase, Database, Row, Schema, lab_database, together
from labctl.database.sqlite import SqliteDatabase
from labctl.errors import ConfigError, printable_line
from labctl.files import host_reads, host_writes, publish, write_atomic
from labctl.state.tables import read

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from labctl.config.quotas import Quota
    from labctl.state.accepted import AcceptedSlowdowns
    from labctl.state.audit import Audit
    from labctl.state.baselines import Baselines
    from labctl.state.events import BoardEvents
    from labctl.state.groups import Groups
    from labctl.state.health import Healths
    from labctl.state.holds import Holds
    from labctl.state.jobs import Jobs
    from labctl.state.leases import BoardLeases
    from labctl.state.reservations import Reservations
    from labctl.state.stored_runs import StoredRuns
    from labctl.state.tokens import AccessTokens
    from labctl.state.workers import Workers


Rows = dict[str, list[dict[str, Any]]]


def _make_tables(connection: "Connection") -> None:
    from labctl.state.sql_tables import make_tables

    make_tables(connection)


SCHEMA = Schema("state_version", 1, _make_tables)


def _write_backup(database: Database, path: Path) -> None:
    """Copy the state to a new file. Raises ConfigError, HostError."""

    def read(connection: "Connection") -> Rows:
        SCHEMA.check(SCHEMA.found(connection))  # tables unknown here would be missing
        return _rows(connection)

    rows = database.change(read)  # exclusive, so that all tables are of one moment
    with host_writes(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        made = tempfile.TemporaryDirectory(dir=path.parent, prefix=".labctl-")
    with made as folder:
        copy = SqliteDatabase(Path(folder) / path.name, "the backup", "")

        def write(connection: "Connection") -> None:
            SCHEMA.prepare(connection)
            _replace_rows(connection, rows)

        with closing(copy):
            copy.change(write)
        publish(copy.path, path)


def _read_backup(path: Path) -> Rows:
    """Return the rows of a backup. Raises ConfigError."""
    with host_reads(path):
        if not path.is_file():
            raise ConfigError(f"no file {path}")
        content = path.read_bytes()
    with (
        tempfile.TemporaryDirectory() as folder,
        closing(SqliteDatabase(Path(folder) / "state.sqlite", "the backup", "")) as copy,
    ):
        write_atomic(copy.path, content)
        try:
            if SCHEMA.table not in copy.tables():
                raise ConfigError(f"{path} is not a backup of a lab's state")

            def read(connection: "Connection") -> Rows:
                SCHEMA.prepare(connection)
                return _rows(connection)

            return copy.change(read)
        except DamagedDatabase as error:
            raise ConfigError(f"{path} is not a backup of a lab's state: it is damaged") from error


def _replace_rows(connection: "Connection", rows: Rows) -> None:
    """Replace all rows of the tables by these rows."""
    from labctl.state.sql_tables import UNTYPED

    for table, these in rows.items():
        connection.execute(UNTYPED[table].delete())
        if these:
            connection.execute(UNTYPED[table].insert(), these)


def _rows(connection: "Connection") -> Rows:
    from labctl.state.sql_tables import UNTYPED

    return {
        name: [dict(row) for row in connection.execute(table.select()).mappings()]
        for name, table in UNTYPED.items()
    }


FILE_NAME = "labctl.sqlite"
BACKUPS = "backups"
#: Number of automatic backups to keep: at most one a day, so they cover weeks.
_KEPT = 14
_HINT = (
    "if the file is damaged: move it away, then `labctl state restore FILE`; backups are in the"
    " lab's folder backups/"
)


T = TypeVar("T")


def _no_rows(_question: str, _values: Mapping[str, object]) -> list[Row]:
    return []


def lab_state(lab: LabFile) -> "LabState":
    """Return the state of a lab. Raises ConfigError for an invalid database."""
    database = lab_database(lab) or SqliteDatabase(lab.root / FILE_NAME, "the lab's state", _HINT)
    return LabState(lab, database)


class LabState:
    """State of one lab. Nothing is created before the first write.

    Its parts are imported on use, because most commands need only one or two.
    """

    def __init__(self, lab: LabFile, database: Database):
        self.quotas: Mapping[str, Quota] = lab.lab.quotas
        self.shared_limits = SharedLimits(
            lab.lab.shared_limits, {name: board.shares for name, board in lab.lab.boards.items()}
        )
        self.lease_seconds = lab.lease_seconds
        self._database = database
        self._key = (str(lab.root.absolute()), lab.database or "")
        self._file = lab.root / FILE_NAME
        self._backups = lab.root / BACKUPS

    @cached_property
    def baselines(self) -> "Baselines":
        """Named runs that other runs are compared with."""
        from labctl.state.baselines import Baselines

        return Baselines(self)

    @cached_property
    def accepted(self) -> "AcceptedSlowdowns":
        """Slowdowns of nights that people accepted."""
        from labctl.state.accepted import AcceptedSlowdowns

        return AcceptedSlowdowns(self)

    @cached_property
    def leases(self) -> "BoardLeases":
        """The leases of the lab's boards."""
        from labctl.state.leases import BoardLeases

        return BoardLeases(self)

    @cached_property
    def reservations(self) -> "Reservations":
        """The periods in which boards are kept for users or for maintenance."""
        from labctl.state.reservations import Reservations

        return Reservations(self)

    @cached_property
    def holds(self) -> "Holds":
        """Holding boards for people, and releasing them."""
        from labctl.state.holds import Holds

        return Holds(self)

    @cached_property
    def audit(self) -> "Audit":
        """The audit log."""
        from labctl.state.audit import Audit

        return Audit(self)

    @cached_property
    def events(self) -> "BoardEvents":
        """The history of the lab's boards."""
        from labctl.state.events import BoardEvents

        return BoardEvents(self)

    @cached_property
    def health(self) -> "Healths":
        """The health of the lab's boards, with its evidence."""
        from labctl.state.health import Healths

        return Healths(self)

    @cached_property
    def groups(self) -> "Groups":
        """The groups of jobs: batches and nights."""
        from labctl.state.groups import Groups

        return Groups(self)

    @cached_property
    def jobs(self) -> "Jobs":
        """The queue of the lab."""
        from labctl.state.jobs import Jobs

        return Jobs(self)

    @cached_property
    def tokens(self) -> "AccessTokens":
        """Tokens of the lab's dashboard."""
        from labctl.state.tokens import AccessTokens

        return AccessTokens(self)

    @cached_property
    def workers(self) -> "Workers":
        """The processes of lab hosts that run jobs."""
        from labctl.state.workers import Workers

        return Workers(self)

    @cached_property
    def stored_runs(self) -> "StoredRuns":
        """Archives of run directories in the shared store."""
        from labctl.state.stored_runs import StoredRuns

        return StoredRuns(self)

    @property
    def identity(self) -> str | None:
        """Name of this state on the boards; None before the first write."""
        rows = self.ask("SELECT id FROM state_identity ORDER BY id", {})
        if not rows:
            return None
        values, damaged = read("state_identity", ("id",), rows[0])
        # Boards need an identity that never changes.
        digest = hashlib.sha256(repr(rows[0]).encode()).hexdigest()
        return f"damaged-{digest[:16]}" if damaged else str(values["id"])

    @property
    def now(self) -> str:
        """SQL of the current time: seconds since 1970 by the database's clock."""
        return self._database.now

    def moment(self) -> float:
        """Return the current time: seconds since 1970 by the database's clock. Raises HostError."""
        from labctl.state.events import clock

        return self.change(lambda connection: clock(connection, self.now))

    def ask(self, question: str, values: Mapping[str, object]) -> list[Row]:
        """Return rows; empty if nothing was ever stored. Raises HostError, ConfigError."""
        return self.asking(lambda ask: ask(question, values))

    def asking(self, do: Callable[[Ask], T]) -> T:
        """Return the result of ``do``, which runs several queries, maybe repeatedly.

        Each query sees the state at its own time. All results are empty if nothing was ever stored.
        Raises HostError, ConfigError.
        """

        def answer(ask: Ask) -> T:
            found = self._version_by(ask)
            SCHEMA.check(found)
            return do(ask if found else _no_rows)

        return self._database.asking(answer) if self._database.is_there else do(_no_rows)

    def change(self, do: Callable[["Connection"], T], *, backup: bool = True) -> T:
        """Return the result of ``do``, which changes the state in one exclusive transaction.

        ``do`` may be called several times; its changes are made once. A backup is made before the
        first change of a day, unless the change does not need it.
        """
        if backup and self._is_backup_due() and self._version() > 0:
            self.backup()
        is_new = not self._database.is_there

        def prepared(connection: "Connection") -> T:
            if not SCHEMA.found(connection):
                self._refuse_empty(is_new=is_new)
            SCHEMA.prepare(connection)
            return do(connection)

        return self._database.change(prepared)

    @contextmanager
    def changing(self) -> Iterator["Connection"]:
        """Open one transaction by hand; unlike :meth:`change`, it does not wait or make backups."""
        with self._database.writing() as connection:
            SCHEMA.prepare(connection)
            yield connection

    def together(self, item: T, do: Callable[[Sequence[T]], None]) -> None:
        """Process an item in one transaction together with items of other threads.

        Raises the errors of ``do``.
        """
        together((self._key, do.__qualname__), item, do)

    def backup(self, path: Path | None = None) -> Path:
        """Copy the state to a new SQLite file; return its path. Raises ConfigError, HostError.

        The default path is below backups/; the oldest backups there are then removed.
        """
        if not self._version():
            raise ConfigError("the lab has no state yet: nothing to back up")
        if path is None:
            name = f"labctl-{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}.sqlite"
            _write_backup(self._database, self._backups / name)
            with host_writes(self._backups):
                for old in self._known_backups()[:-_KEPT]:
                    old.unlink(missing_ok=True)
            return self._backups / name
        if path.exists():
            raise ConfigError(f"{path} exists", hint="name a new file")
        _write_backup(self._database, path)
        return path

    def restore(self, path: Path, *, force: bool = False) -> None:
        """Replace the whole state by a backup; the present state is backed up first.

        Leases in force stay, if the present state still has them; leases of the backup do not
        return. Tokens revoked after the backup stay revoked. Raises ConfigError while workers or
        holders of boards live, unless ``force``.
        """
        from labctl.state.leases import leases_kept
        from labctl.state.tokens import revoked_kept

        rows = _read_backup(path)
        if not force and not self._is_empty():
            self._refuse_if_in_use()
        if not self._is_empty() and self._version():
            self.backup()

        def replace(connection: "Connection") -> None:
            SCHEMA.prepare(connection)
            with leases_kept(connection), revoked_kept(connection):
                _replace_rows(connection, rows)

        self._database.change(replace)

    def _refuse_if_in_use(self) -> None:
        workers = [
            f"worker {one.name} on {one.host} is {one.damaged or 'alive'}"
            for one in self.workers.list()
            if one.is_alive or one.damaged
        ]
        holders = [
            f"board {one.board} is in use by {one.holder}: {one.purpose}"
            f" (process {one.pid} on {one.host})"
            if one.damaged is None
            else f"the lease of board {one.board} is {one.damaged}"
            for one in self.leases.list()
        ]
        if workers or holders:
            raise ConfigError(
                printable_line(f"the lab is in use: {'; '.join(workers + holders)}"),
                hint="stop them, or wait a minute for those that died; --force restores anyway",
            )

    def _version(self) -> int:
        return self._database.asking(self._version_by) if self._database.is_there else 0

    def _version_by(self, ask: Ask) -> int:
        if SCHEMA.table not in self._database.tables(ask):
            self._refuse_empty()
            return 0
        return SCHEMA.version_in(ask(SCHEMA.question, {}))

    def _is_empty(self) -> bool:
        """Return True for a file without labctl's tables: labctl never creates such a file."""
        its = self._database
        return its.is_there and not its.is_shared and SCHEMA.table not in its.tables()

    def _refuse_empty(self, *, is_new: bool = False) -> None:
        """Raise DamagedDatabase: a file without tables is not the state of a new lab."""
        if is_new or self._database.is_shared:
            return
        cure = f"remove {self._file}: the lab begins anew, without holds, queue and baselines"
        if backups := self._known_backups():
            cure = f"restore the last backup: `labctl state restore {backups[-1]}`"
        raise DamagedDatabase(f"{self._database} is empty, or is not labctl's", hint=cure)

    def _known_backups(self) -> list[Path]:
        return sorted(self._backups.glob("labctl-*T*Z.sqlite"))

    def _is_backup_due(self) -> bool:
        today = f"labctl-{datetime.now(UTC):%Y%m%d}T"
        return not any(path.name.startswith(today) for path in self._known_backups())
