"""SQLite index: a row a run, a row a trial. Per-token arrays stay in the run directory."""

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from labctl.errors import HostError
from labctl.records import RunRecord, TrialRecord

SCHEMA_VERSION = 2

_SCHEMA = """
CREATE TABLE run (
    id TEXT PRIMARY KEY,
    recipe TEXT NOT NULL,
    board TEXT NOT NULL,
    target TEXT NOT NULL,
    execution TEXT NOT NULL,
    started TEXT NOT NULL,
    trials_planned INTEGER NOT NULL
) STRICT;
CREATE TABLE trial (
    run TEXT NOT NULL REFERENCES run (id) ON DELETE CASCADE,
    number INTEGER NOT NULL,
    variant TEXT NOT NULL,
    repeat INTEGER NOT NULL,
    model_sha256 TEXT NOT NULL,
    quantization TEXT,
    state TEXT NOT NULL,
    blame TEXT,
    failure TEXT,
    generated_tokens INTEGER,
    ttft_ns INTEGER,
    p50_ns INTEGER,
    tokens_per_second REAL,
    started TEXT NOT NULL,
    PRIMARY KEY (run, number)
) STRICT;
"""


@dataclass(frozen=True)
class IndexedRun:
    """A run as lists show it."""

    id: str
    recipe: str
    board: str
    execution: str
    started: str
    trials_planned: int
    trials_recorded: int
    trials_ok: int
    trials_failed: int


class Index:
    """The index in one SQLite file, safe for several processes."""

    def __init__(self, path: Path):
        self._path = path

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            # isolation_level None: transactions are opened explicitly, by BEGIN IMMEDIATE.
            with closing(sqlite3.connect(self._path, timeout=30, isolation_level=None)) as db:
                db.execute("PRAGMA foreign_keys = ON")
                db.execute("BEGIN IMMEDIATE")
                version = db.execute("PRAGMA user_version").fetchone()[0]
                if version == 0:
                    for statement in _SCHEMA.split(";"):
                        db.execute(statement)
                    db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
                elif version != SCHEMA_VERSION:
                    raise HostError(
                        f"{self._path} was written by another version of labctl",
                        hint="move it away: it is made again from the run directories",
                    )
                yield db
                db.execute("COMMIT")
        except (sqlite3.Error, OSError) as error:
            raise HostError(
                f"the index {self._path} cannot be used: {error}",
                hint="move it away: it is made again from the run directories",
            ) from error

    def add(self, run: RunRecord, trials: list[TrialRecord]) -> None:
        """Insert or replace a run with all its trials."""
        with self._connection() as db:
            _insert(db, run, trials)

    def replace(self, runs: Iterable[tuple[RunRecord, list[TrialRecord]]]) -> None:
        """Hold these runs and no others; who reads meanwhile sees all of the old or the new."""
        with self._connection() as db:
            db.execute("DELETE FROM run")
            for run, trials in runs:
                _insert(db, run, trials)

    def forget(self) -> None:
        """Remove the file, damaged or not: the run directories know better."""
        self._path.unlink(missing_ok=True)

    def runs(self, *, limit: int) -> list[IndexedRun]:
        """Return the runs, newest first."""
        with self._connection() as db:
            rows = db.execute(
                """
                SELECT run.id, recipe, board, execution, run.started, trials_planned,
                    count(trial.number),
                    coalesce(sum(state = 'ok' AND repeat > 0), 0),
                    coalesce(sum(state = 'failed' AND repeat > 0), 0)
                FROM run LEFT JOIN trial ON trial.run = run.id
                GROUP BY run.id ORDER BY run.id DESC LIMIT ?
                """,
                (limit,),
            ).fetchall()
        return [IndexedRun(*row) for row in rows]


def _insert(db: sqlite3.Connection, run: RunRecord, trials: list[TrialRecord]) -> None:
    db.execute("DELETE FROM run WHERE id = ?", (run.id,))
    db.execute(
        "INSERT INTO run VALUES (?, ?, ?, ?, ?, ?, ?)",
        (
            run.id,
            run.recipe,
            run.board,
            run.target,
            run.facts.execution,
            run.started.isoformat(),
            run.trials_planned,
        ),
    )
    db.executemany(
        f"INSERT INTO trial VALUES ({', '.join('?' * 14)})",  # noqa: S608 - marks only
        [_trial_row(run.id, trial) for trial in trials],
    )


def _trial_row(run_id: str, trial: TrialRecord) -> tuple[str | int | float | None, ...]:
    timing, failure = trial.timing, trial.failure
    return (
        run_id,
        trial.number,
        trial.variant,
        trial.repeat,
        trial.model.sha256,
        trial.model.quantization,
        trial.state,
        failure.blame if failure else None,
        failure.kind if failure else None,
        timing.generated_tokens if timing else None,
        timing.ttft_ns if timing else None,
        timing.p50_ns if timing else None,
        timing.tokens_per_second if timing else None,
        trial.started.isoformat(),
    )
