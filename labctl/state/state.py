"""The database of a lab's state, and its backups.

It is ``labctl.sqlite`` beside devices.yaml, or tables in the lab's PostgreSQL. In both cases a
backup is a SQLite file with the same tables.
"""

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from labctl.config.lab import LabFile
from labctl.database import DamagedDatabase, Database, Schema, SqliteDatabase, lab_database
from labctl.database.base import Ask, Row, together
from labctl.errors import ConfigError, printable_line
from labctl.files import host_reads, host_writes, publish, write_atomic
from labctl.state.tables import SCHEMA, TABLES

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from labctl.config.quotas import Quota
    from labctl.state.audit import Audit
    from labctl.state.baselines import Baselines
    from labctl.state.events import BoardEvents
    from labctl.state.health import Healths
    from labctl.state.holds import Holds
    from labctl.state.jobs import Jobs
    from labctl.state.leases import BoardLeases
    from labctl.state.reservations import Reservations
    from labctl.state.stored_runs import StoredRuns
    from labctl.state.tokens import AccessTokens
    from labctl.state.workers import Workers


Rows = dict[str, list[dict[str, Any]]]


def _write_backup(database: Database, path: Path) -> None:
    """Copy the state to a new file, in the version that it is in. Raises ConfigError, HostError."""
    with database.writing() as connection:  # alone, so that all tables are of one moment
        version = SCHEMA.found(connection)
        SCHEMA.check(version)  # tables that are unknown here would be left out
        rows = _rows(connection, version)
    if not version:
        raise ConfigError("the lab has no state yet: nothing to back up")
    with host_writes(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        made = tempfile.TemporaryDirectory(dir=path.parent, prefix=".labctl-")
    with made as folder:
        copy = SqliteDatabase(Path(folder) / path.name, "the backup", "")
        with closing(copy), copy.writing() as connection:
            Schema(SCHEMA.table, SCHEMA.steps[:version]).migrate(connection)
            _replace_rows(connection, rows)
        publish(copy.path, path)


def _read_backup(path: Path) -> Rows:
    """Return the rows of a backup as this version has them. Raises ConfigError."""
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
            with copy.writing() as connection:
                SCHEMA.migrate(connection)
                return _rows(connection, SCHEMA.version)
        except DamagedDatabase as error:
            raise ConfigError(f"{path} is not a backup of a lab's state: it is damaged") from error


def _replace_rows(connection: "Connection", rows: Rows) -> None:
    """Replace all rows of the tables by these rows."""
    from sqlalchemy import text

    for table, these in rows.items():
        connection.execute(text(f"DELETE FROM {table}"))
        if these:
            names = list(these[0])
            values = ", ".join(f":{name}" for name in names)
            insert = f"INSERT INTO {table} ({', '.join(names)}) VALUES ({values})"
            connection.execute(text(insert), these)


def _rows(connection: "Connection", version: int) -> Rows:
    from sqlalchemy import text

    return {
        table: [dict(row) for row in connection.execute(text(f"SELECT * FROM {table}")).mappings()]
        for table, since in TABLES.items()
        if since <= version
    }


FILE_NAME = "labctl.sqlite"
BACKUPS = "backups"
#: Number of automatic backups to keep: at most one a day, so they cover weeks of changes.
_KEPT = 14
_HINT = (
    "if the file is damaged: move it away, then `labctl state restore FILE`; backups are in the"
    " lab's folder backups/"
)


T = TypeVar("T")


def lab_state(lab: LabFile) -> "LabState":
    """Return the state of a lab. Raises ConfigError for an invalid database."""
    database = lab_database(lab) or SqliteDatabase(lab.root / FILE_NAME, "the lab's state", _HINT)
    return LabState(lab, database)


class LabState:
    """State of one lab. Nothing is created before the first write.

    Its parts are imported on use: most commands need one or two of them.
    """

    def __init__(self, lab: LabFile, database: Database):
        self.quotas: Mapping[str, Quota] = lab.lab.quotas
        self.lease_seconds = lab.lease_seconds
        self._database = database
        self._key = (str(lab.root.absolute()), lab.database or "")
        self._backups = lab.root / BACKUPS

    @cached_property
    def baselines(self) -> "Baselines":
        """Named runs that others are compared with."""
        from labctl.state.baselines import Baselines

        return Baselines(self)

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
        rows = self.ask("SELECT id FROM state_identity", {})
        return str(rows[0][0]) if rows else None

    @property
    def now(self) -> str:
        """SQL of the current time: seconds since 1970 by the database's clock."""
        return self._database.now

    def moment(self) -> float:
        """Return the current time: seconds since 1970 by the database's clock. Raises HostError."""
        from labctl.state.events import clock

        with self.changing() as connection:
            return clock(connection, self.now)

    def ask(self, question: str, values: Mapping[str, object]) -> list[Row]:
        """Return rows; none if nothing was ever stored. Raises HostError, ConfigError."""
        if not self._database.is_there:
            return []
        with self._database.questions() as ask:
            found = self._version_by(ask)
            SCHEMA.check(found)
            if not found:
                return []
            if found == SCHEMA.version:
                return ask(question, values)
        with self.changing():  # tables of an older labctl
            pass
        return self._database.ask(question, values)

    @contextmanager
    def changing(self, *, backup: bool = True) -> Iterator["Connection"]:
        """Open an exclusive transaction, after a backup if one is due.

        A backup is due before the first change of a day, unless the change needs none, and before a
        migration of tables.
        """
        if not backup:
            with self._database.writing() as connection:
                if SCHEMA.found(connection) == SCHEMA.version:
                    yield connection
                    return
        found = self._version()
        if found and (found < SCHEMA.version or (backup and self._is_backup_due())):
            self.backup()
        with self._database.writing() as connection:
            SCHEMA.migrate(connection)
            yield connection

    def together(self, item: T, do: Callable[[Sequence[T]], None]) -> None:
        """Process an item in one transaction with items of other threads.

        Raises what ``do`` raises.
        """
        together((self._key, do.__qualname__), item, do)

    def backup(self, path: Path | None = None) -> Path:
        """Copy the state to a new SQLite file; return its path. Raises ConfigError, HostError.

        The default path is below backups/, where the oldest backups are then removed.
        """

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

        Leases in force stay, if the state still knows them; leases of the backup do not return.
        Tokens revoked after the backup stay revoked. Raises ConfigError while workers or holders of
        boards live, unless ``force``.
        """
        from labctl.state.leases import leases_kept
        from labctl.state.tokens import revoked_kept

        rows = _read_backup(path)
        if not force:
            self._refuse_if_in_use()
        if self._version():
            self.backup()
        with self._database.writing() as connection:
            SCHEMA.migrate(connection)
            with leases_kept(connection), revoked_kept(connection):
                _replace_rows(connection, rows)

    def _refuse_if_in_use(self) -> None:
        workers = [
            f"worker {one.name} on {one.host} is alive"
            for one in self.workers.list()
            if one.is_alive
        ]
        holders = [
            f"board {one.board} is in use by {one.holder}: {one.purpose}"
            f" (process {one.pid} on {one.host})"
            for one in self.leases.list()
        ]
        if workers or holders:
            raise ConfigError(
                printable_line(f"the lab is in use: {'; '.join(workers + holders)}"),
                hint="stop them, or wait a minute for those that died; --force restores anyway",
            )

    def _version(self) -> int:
        if not self._database.is_there:
            return 0
        with self._database.questions() as ask:
            return self._version_by(ask)

    def _version_by(self, ask: Ask) -> int:
        if SCHEMA.table not in self._database.tables(ask):
            return 0
        return SCHEMA.version_in(ask(f"SELECT version FROM {SCHEMA.table}", {}))

    def _known_backups(self) -> list[Path]:
        return sorted(self._backups.glob("labctl-*T*Z.sqlite"))

    def _is_backup_due(self) -> bool:
        today = f"labctl-{datetime.now(UTC):%Y%m%d}T"
        return not any(path.name.startswith(today) for path in self._known_backups())
