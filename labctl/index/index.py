"""The index in an SQL database: writes and queries rows of runs and trials.

Tables and writes use SQLAlchemy. A query is a text of SQL with named values, for both SQLite and
PostgreSQL.
"""

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

from labctl.database.base import DamagedDatabase, Database
from labctl.database.questions import select
from labctl.distribution import labctl_version
from labctl.errors import ConfigError
from labctl.index.filters import (
    KINDS,
    STORED_STATES,
    VERDICTS,
    Filter,
    run_condition,
    trial_condition,
)
from labctl.index.rows import (
    TABLES,
    VERSION,
    Entry,
    ModelRow,
    ProbeRow,
    Row,
    RunRow,
    TagRow,
    TrialRow,
    columns,
    from_columns,
    in_columns,
    moment,
)

if TYPE_CHECKING:
    from sqlalchemy import Connection

_JSON = tuple(name for name, (kind, _) in columns(TrialRow).items() if kind is dict)
#: Internal columns of the index.
_INNER = ("stamp", "folder", "recorded")
#: Columns of runs of a night only.
_OF_NIGHT = ("night", "night_side")
CheckedT = TypeVar("CheckedT", RunRow, TrialRow, ProbeRow)
_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d")
#: Largest difference (s) between correctly set clocks of hosts.
_CLOCKS_SECONDS = 60.0
#: Place of each run in time. An id begins with the time by its host's clock; but a run never comes
#: after a run that its folder recorded later, even if the clock was wrong.
_PLACES = select(
    "id AS placed, CASE WHEN recorded IS NULL THEN id ELSE MIN(id) OVER"
    " (PARTITION BY folder, recorded IS NULL ORDER BY recorded DESC) END AS place",
    "run",
)
#: Maximum number of runs that are queried by their ids.
_FEW = 100


@dataclass(frozen=True)
class IndexedRun:
    """A run with the facts that lists show."""

    run: RunRow
    models: tuple[ModelRow, ...]
    tags: tuple[str, ...]
    #: True if it began in the future by the database's clock: a host's clock was wrong.
    is_ahead: bool = False

    def document(self) -> dict[str, object]:
        """Return the run for JSON."""
        run = self.run
        return {
            **{
                name: value
                for name, value in in_columns(run).items()
                if name not in _INNER and (run.night or name not in _OF_NIGHT)
            },
            **({"ahead_of_clock": True} if self.is_ahead else {}),
            "models": [asdict(model) for model in self.models],
            "tags": list(self.tags),
        }


def run_columns() -> dict[str, type]:
    """Return name -> kind of all keys of :meth:`IndexedRun.document`."""
    own = {name: kind for name, (kind, _) in columns(RunRow).items() if name not in _INNER}
    return {**own, "ahead_of_clock": bool, "models": list, "tags": list}


@dataclass(frozen=True)
class IndexedTrial:
    """A trial, with its run."""

    trial: TrialRow
    run: RunRow
    tags: tuple[str, ...]


@dataclass(frozen=True)
class Stamps:
    """The index's knowledge about run directories or probe files."""

    #: id -> stamp, in this folder.
    own: Mapping[str, str]
    #: Ids of runs in folders of other hosts.
    others: frozenset[str]


class Index:
    """The index in a database; safe with several processes, and if one is killed.

    Args:
        database: a file of this folder alone, or a database that several folders share.
        folder: this host's folder of runs. In a shared database, rows of other folders stay
            unchanged, except rows of a run that this folder adds.
    """

    def __init__(self, database: Database, folder: str = ""):
        self._database = database
        self._folder = folder

    def add(self, entries: Iterable[Entry]) -> None:
        """Insert or replace runs with all their rows, in one transaction."""
        known = list(entries)

        def add(connection: "Connection") -> None:
            _delete(connection, [entry.run.id for entry in known])
            rows: dict[str, list[Row]] = {
                "run": [replace(entry.run, folder=self._folder) for entry in known],
                "model": [model for entry in known for model in entry.models],
                "tag": [TagRow(entry.run.id, tag) for entry in known for tag in entry.tags],
                "trial": [trial for entry in known for trial in entry.trials],
                "parameter": [row for entry in known for row in entry.parameters],
            }
            from labctl.index.tables import TABLE

            for name, these in rows.items():
                if these:
                    connection.execute(TABLE[name].insert(), [_values(row) for row in these])

        self._change(add)

    def remove(self, ids: Sequence[str]) -> None:
        """Remove runs."""
        self._change(lambda connection: _delete(connection, ids))

    def make_again(self) -> None:
        """Empty a damaged index. Other folders add their runs again."""
        try:
            self._database.change(_make_tables)
        except DamagedDatabase:
            self._database.discard()

    def version(self) -> str | None:
        """Return the version of the tables; None without tables; "" if it is unknown.

        Raises ConfigError if hosts with a newer labctl share the tables and need their contents.
        """
        names = self._database.tables()
        if "index_version" not in names:
            return "" if names & set(TABLES) else None
        found, maker = self._ask("SELECT version, labctl FROM index_version", {})[0]
        if found != VERSION and self._database.is_shared:
            own = labctl_version()
            if _parts(maker) > _parts(own):
                raise ConfigError(
                    f"a newer labctl, {maker}, made the index in {self._database}; this is {own}",
                    hint="update labctl on this host",
                )
        return str(found)

    def stamps(self) -> Stamps:
        """Return the index's knowledge about run directories."""
        return self._stamps("SELECT id, stamp, folder FROM run")

    def probe_files(self) -> Stamps:
        """Return the index's knowledge about probe files; a file's name is its stamp."""
        return self._stamps("SELECT file, file, folder FROM probe")

    def add_probes(self, rows: Sequence[ProbeRow]) -> None:
        """Insert or replace probes, in one transaction."""
        from labctl.index.tables import TABLE

        def add(connection: "Connection") -> None:
            _delete_probes(connection, [row.file for row in rows])
            values = [_values(replace(row, folder=self._folder)) for row in rows]
            connection.execute(TABLE["probe"].insert(), values)

        self._change(add)

    def remove_probes(self, files: Sequence[str]) -> None:
        """Remove probes."""
        self._change(lambda connection: _delete_probes(connection, files))

    def probes(self, board: str | None = None) -> list[ProbeRow]:
        """Return the probes of all boards, or of one, newest first."""
        of_board = () if board is None else ("board = :board",)
        values = {} if board is None else {"board": board}
        question = select(columns(ProbeRow), "probe", *of_board, order="taken DESC, file")
        return [_checked(from_columns(ProbeRow, row)) for row in self._ask(question, values)]

    def count(self, wanted: Filter) -> int:
        """Return the number of runs that meet a filter."""
        condition, values = run_condition(wanted)
        found: int = self._ask(select("COUNT(*)", "run", condition), values)[0][0]
        return found

    def verdicts(self) -> dict[str, int]:
        """Return the number of runs by verdict; for runs without a verdict, by state."""
        question = "SELECT COALESCE(verdict, state), COUNT(*) FROM run GROUP BY 1 ORDER BY 1"
        return dict(self._ask(question, {}))

    def recipes(self) -> list[tuple[str, str | None, int]]:
        """Return each pair of recipe and board of timing runs, with the number of runs."""
        question = (
            "SELECT recipe, board, COUNT(*) FROM run WHERE kind = 'timing' AND state <> 'damaged'"
            " GROUP BY 1, 2 ORDER BY 1, 2"
        )
        return self._ask(question, {})

    def runs(
        self, wanted: Filter | None = None, *, limit: int | None = None, skip: int = 0
    ) -> list[IndexedRun]:
        """Return the runs that meet a filter, newest first: skip ``skip``, return ``limit``.

        Ordered by time; runs of one folder in the order in which the folder recorded them.
        """
        condition, values = run_condition(wanted or Filter())
        question = select(
            (*columns(RunRow), self._database.now),
            f"run JOIN ({_PLACES}) AS places ON placed = id",
            condition,
            order="place DESC, recorded DESC",
            limit=limit,
            skip=skip,
        )
        found = self._ask(question, values)
        rows = [_checked(from_columns(RunRow, row)) for *row, _ in found]
        now = max((row[-1] for row in found), default=0.0) + _CLOCKS_SECONDS
        beyond = moment(datetime.fromtimestamp(now, UTC))
        ids = [row.id for row in rows]
        models: dict[str, list[ModelRow]] = {}
        for model in self._of_runs("model", ModelRow, ids):
            models.setdefault(model.run, []).append(model)
        tags = self._tags(ids)
        return [
            IndexedRun(
                row, tuple(models.get(row.id, ())), tags.get(row.id, ()), row.started > beyond
            )
            for row in rows
        ]

    def trials(self, wanted: Filter | None = None) -> list[IndexedTrial]:
        """Return the trials that meet a filter, oldest run first, then by number."""
        condition, values = trial_condition(wanted or Filter())
        question = select(
            (f"trial.{name}" for name in columns(TrialRow)),
            "trial JOIN run ON run.id = trial.run",
            condition,
            order="trial.number",
        )
        found = self._ask(question, values)
        runs = {one.run.id: one for one in reversed(self.runs(wanted))}
        place = {run: number for number, run in enumerate(runs)}
        rows = sorted(map(_trial, found), key=lambda row: place[row.run])
        return [IndexedTrial(row, runs[row.run].run, runs[row.run].tags) for row in rows]

    def tags(self) -> list[str]:
        """Return all tags in use."""
        return self.names("tag", "tag")

    def names(self, table: str, column: str) -> list[str]:
        """Return the different texts of a column of :data:`TABLES`, sorted."""
        question = select(f"DISTINCT {column}", table, f"{column} IS NOT NULL", order=column)
        return [name for (name,) in self._ask(question, {})]

    def executions(self) -> dict[str, str | None]:
        """Return the execution of the last run or probe of each board, by the board's name."""
        of_runs = select(
            "board, execution, MAX(started)",
            "run",
            "board IS NOT NULL AND imported_from IS NULL",
            group="board, execution",
        )
        of_probes = select(
            "board, execution, MAX(taken)", "probe", "damage IS NULL", group="board, execution"
        )
        found = [*self._ask(of_runs, {}), *self._ask(of_probes, {})]
        return {board: execution for board, execution, _ in sorted(found, key=lambda one: one[2])}

    def parameters(self) -> list[tuple[str, str]]:
        """Return all names of engine parameters with each of their values."""
        return self._ask("SELECT DISTINCT name, value FROM parameter ORDER BY name, value", {})

    def _tags(self, ids: Sequence[str]) -> dict[str, tuple[str, ...]]:
        found: dict[str, tuple[str, ...]] = {}
        for row in self._of_runs("tag", TagRow, ids):
            found[row.run] = (*found.get(row.run, ()), row.tag)
        return found

    def _of_runs(self, table: str, kind: type[Any], ids: Sequence[str]) -> list[Any]:
        """Return the rows of a few runs; for many runs, all rows between the first and the last."""
        if not ids:
            return []
        condition, values = "run BETWEEN :low AND :high", {"low": min(ids), "high": max(ids)}
        if len(ids) <= _FEW:  # few runs may be far apart
            values = {f"run{number}": one for number, one in enumerate(ids)}
            condition = f"run IN ({', '.join(f':{key}' for key in values)})"
        found = self._ask(select(columns(kind), table, condition, order="1, 2"), values)
        return [kind(*row) for row in found]

    def _stamps(self, question: str) -> Stamps:
        found = self._ask(question, {})
        own = {name: stamp for name, stamp, folder in found if folder == self._folder}
        return Stamps(own, frozenset(name for name, _, _ in found if name not in own))

    def _ask(self, question: str, values: dict[str, str]) -> list[tuple[Any, ...]]:
        return self._database.ask(question, values)

    def _change(self, do: Callable[["Connection"], None]) -> None:
        if self._database.is_shared:
            self.version()

        def change(connection: "Connection") -> None:
            if _version(connection) != VERSION:
                _make_tables(connection)
            do(connection)

        self._database.change(change)


def _parts(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", version)]


def _version(connection: "Connection") -> str | None:
    from sqlalchemy import inspect, select

    from labctl.index.tables import MADE

    if not inspect(connection).has_table(MADE.name):
        return None
    found: str | None = connection.execute(select(MADE.c.version)).scalar()
    return found


def _make_tables(connection: "Connection") -> None:
    """Create empty tables; drop tables of any version."""
    from sqlalchemy import MetaData, Table, inspect

    from labctl.index.tables import MADE, METADATA

    there = inspect(connection).get_table_names()
    for name in (*reversed(TABLES), MADE.name):
        if name in there:
            Table(name, MetaData()).drop(connection)
    METADATA.create_all(connection)
    connection.execute(MADE.insert().values(version=VERSION, labctl=labctl_version()))


def _delete(connection: "Connection", ids: Sequence[str]) -> None:
    from sqlalchemy import bindparam

    from labctl.index.tables import TABLE

    if not ids:
        return
    for name, table in TABLE.items():
        if name == "probe":
            continue
        key = table.c.id if name == "run" else table.c.run
        connection.execute(
            table.delete().where(key == bindparam("gone")), [{"gone": one} for one in ids]
        )


def _delete_probes(connection: "Connection", files: Sequence[str]) -> None:
    from sqlalchemy import bindparam

    from labctl.index.tables import TABLE

    if files:
        table = TABLE["probe"]
        gone = [{"gone": file} for file in files]
        connection.execute(table.delete().where(table.c.file == bindparam("gone")), gone)


def _values(row: Row) -> dict[str, object]:
    values = in_columns(row)
    if isinstance(row, TrialRow):
        values |= {name: json.dumps(values[name]) for name in _JSON}
    # PostgreSQL's texts cannot have NUL; a name in a model file can.
    return {
        name: value.replace("\0", "\ufffd") if isinstance(value, str) else value
        for name, value in values.items()
    }


def _trial(row: tuple[Any, ...]) -> TrialRow:
    values = dict(zip(columns(TrialRow), row, strict=True))
    try:
        known = {name: json.loads(values[name], parse_constant=_no_constant) for name in _JSON}
    except (TypeError, ValueError, RecursionError):
        raise _damage("trial") from None
    if not all(isinstance(one, dict) for one in known.values()):
        raise _damage("trial")
    return _checked(from_columns(TrialRow, {**values, **known}.values()))


def _no_constant(name: str) -> float:
    raise ValueError(name)


#: Columns with known values, beyond their type. Any other text is damage.
_WORDS = {"kind": KINDS, "verdict": (*VERDICTS, None)}
_MOMENTS = ("started", "taken", "finished")


def _checked(row: CheckedT) -> CheckedT:
    """Return a row if it is valid. Raises DamagedDatabase: the index is then rebuilt from the runs.

    Columns have types in the database, so only values are checked.
    """
    for name, value in in_columns(row).items():
        is_wrong = (
            (isinstance(value, bytes))
            or (isinstance(value, float) and not math.isfinite(value))
            or (name in _MOMENTS and value is not None and not _MOMENT.match(value))
            or (name in _WORDS and value not in _WORDS[name])
        )
        if is_wrong:
            raise _damage(type(row).__name__)
    if isinstance(row, RunRow) and row.state not in STORED_STATES:
        raise _damage("run")
    return row


def _damage(table: str) -> DamagedDatabase:
    hint = "labctl makes it again from the run directories"
    return DamagedDatabase(f"the index of runs has a damaged row in {table}", hint=hint)
