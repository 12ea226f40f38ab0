"""History of a lab's jobs, kept by the database itself, whoever changes them.

A trigger writes each change of a job's state with the database's time; a test adds when the
database came back, and what it restored.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from labctl.state.state import LabState

_LOST = "gave no sign of life"
_TABLE = """
CREATE TABLE {name} (
    number BIGSERIAL PRIMARY KEY,
    at DOUBLE PRECISION NOT NULL DEFAULT extract(epoch FROM clock_timestamp()),
    job TEXT, before TEXT, after TEXT, attempt INTEGER, expires DOUBLE PRECISION, reason TEXT,
    mark TEXT, board TEXT
);
CREATE FUNCTION {name}_note() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO {name} (job, before, after, attempt, expires, reason, board)
    VALUES (NEW.id, OLD.state, NEW.state, OLD.attempts, OLD.expires, NEW.reason,
        CASE WHEN NEW.state = 'running' THEN NEW.board ELSE OLD.board END);
    RETURN NEW;
END $$;
CREATE TRIGGER history AFTER UPDATE OF state ON job FOR EACH ROW
    WHEN (OLD.state IS DISTINCT FROM NEW.state) EXECUTE FUNCTION {name}_note();
"""


@dataclass(frozen=True)
class Change:
    """One change of a job's state, or a mark of the test's."""

    number: int
    at: float
    job: str | None
    before: str | None
    after: str | None
    attempt: int | None
    expires: float | None
    reason: str | None
    mark: str | None
    board: str | None


class History:
    """The history of a lab's jobs."""

    def __init__(self, state: LabState, lab: str):
        self._state = state
        self._name = f"public.history_of_{lab}"
        state.jobs.submit()
        with state.changing() as connection:
            connection.exec_driver_sql(_TABLE.format(name=self._name).replace("%", "%%"))

    def mark(self, what: str) -> None:
        """Note what the test did."""
        from sqlalchemy import text

        with self._state.changing() as connection:
            insert = f"INSERT INTO {self._name} (mark) VALUES (:what)"
            connection.execute(text(insert), {"what": what})

    def changes(self, after: int = 0) -> list[Change]:
        """All changes in their order, behind a number."""
        columns = ", ".join(Change.__dataclass_fields__)
        question = f"SELECT {columns} FROM {self._name} WHERE number > :after ORDER BY number"
        return [Change(*row) for row in self._state.ask(question, {"after": after})]


def freeing_times(changes: list[Change]) -> dict[str, float]:
    """How long (s) each job of a lost worker was not free when somebody could have freed it.

    That is since it expired; where there was no database then, or no worker, since they were back.
    """
    there, found = 0.0, {}
    for change in changes:
        if change.mark is not None:
            there = change.at
        elif change.before == "running" and _LOST in (change.reason or ""):
            found[f"{change.job} {change.number}"] = change.at - max(change.expires or 0.0, there)
    return found


def most_at_once(changes: list[Change], thing: Callable[[Change], str | None]) -> Mapping[str, int]:
    """Of each thing, such as a board or a shared limit, how many jobs used it at once at most."""
    now, most = Counter[str](), Counter[str]()
    for change in changes:
        used = thing(change)
        if used is not None:
            now[used] += (change.after == "running") - (change.before == "running")
            most[used] = max(most[used], now[used])
    return most


def ended_twice(changes: list[Change]) -> list[Change]:
    """Ends of jobs that had ended, but for what a restored backup did not know."""
    ended: set[str | None] = set()
    wrong = []
    for change in changes:
        if change.mark == "restored":
            ended.clear()
        elif change.job is not None:
            if change.job in ended:
                wrong.append(change)
            if change.after in ("done", "cancelled"):
                ended.add(change.job)
    return wrong
