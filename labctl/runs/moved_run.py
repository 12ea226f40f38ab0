"""Continuation of a run on another board, equal to the one that failed.

Numbers of two boards are two samples, so variants are compared on one board only: a round of
repeats that the first board did not finish is measured again completely on the second. Each record
names its board, and tables say where a run moved.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from labctl.board.probe_files import latest_probe
from labctl.errors import BoardError
from labctl.records import BoardFacts, Execution, RunRecord, TrialRecord
from labctl.runs.board.conditions import BoardConditions
from labctl.runs.board.opening import Opened
from labctl.runs.inputs.prepare import Prepared
from labctl.runs.planning.time_limits import RunClock
from labctl.runs.planning.trials import PlannedTrial
from labctl.runs.record.directory import RunDirectory
from labctl.runs.record.journal import Journal
from labctl.units import size

#: Two boards of one kind are this far apart at most, and so are two probes of one of them.
TOLERANCE = 0.1


def unlike_in_speed(run: RunRecord, board: str, facts: BoardFacts, lab_root: Path) -> Iterator[str]:
    """Yield why a board's numbers do not belong to the same run, by the probes of both.

    A virtual board has no speed.
    """
    if facts.execution is not Execution.BOARD:
        return
    probes = {name: latest_probe(lab_root, name, Execution.BOARD) for name in (run.board, board)}
    for name, probe in probes.items():
        if probe is None:
            yield f"board {name} was never probed, so the speeds of both cannot be compared"
            return
    one, other = (probe for probe in probes.values() if probe is not None)
    for what, was, now in (
        ("memory", one.memory_bytes_per_second(), other.memory_bytes_per_second()),
        ("storage", one.storage_bytes_per_second(), other.storage_bytes_per_second()),
    ):
        if was is None and now is None:
            continue
        if was is None or now is None or abs(was - now) > TOLERANCE * max(was, now):
            yield f"its {what} reads {_rate_text(now)}, that of board {run.board} {_rate_text(was)}"


def _rate_text(rate: int | None) -> str:
    return "at a rate that was not measured" if rate is None else f"{size(rate)}/s"


def try_board(opened: Opened, prepared: Prepared) -> dict[str, str]:
    """Send a run's files to a board that it moves to; their paths there, by SHA-256.

    Raises ConfigError when the board cannot be as the recipe strictly wants it, and what
    :meth:`Opened.take` raises. Nothing of the run is changed by then.
    """
    held = opened.held
    _, paths = opened.take()
    wanted = prepared.recipe.conditions
    conditions = BoardConditions(held.transport, held.fence, wanted, opened.observer.note)
    with conditions.held(held.check_lease):
        return paths


def leave_board(
    directory: RunDirectory,
    journal: Journal,
    trials: Sequence[PlannedTrial],
    done: Mapping[int, TrialRecord],
    *,
    board: str,
    clock: RunClock,
) -> dict[int, TrialRecord]:
    """Return the finished trials that stay when a run moves to a board; archive the others.

    Warm-ups are made again, too: they warmed the other board. The time that all of it took is over.
    """
    last = max(done, default=0)
    undone = (trial.number for trial in trials if trial.number not in done)
    # A repeat that was left out, because it would have shown nothing new, tears no round.
    first = next((n for n in undone if n > last or journal.attempt(n).open), None)
    moved = BoardError(f"the run moved to board {board}, and compares on one board only")
    torn = {trial.repeat for trial in trials if first is not None and trial.number >= first} | {0}
    stay: dict[int, TrialRecord] = {}
    for trial in trials:
        attempt, record = journal.attempt(trial.number), done.get(trial.number)
        if record is not None and trial.repeat not in torn:
            stay[trial.number] = record
            continue
        if attempt.open:
            journal.cut(trial.number, attempt, moved)
        if record is not None:
            clock.remember(record)
        if record is not None or attempt.open:
            directory.set_aside(trial.number, trial.slug, attempt.number)
    return stay
