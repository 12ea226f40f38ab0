"""Report a trial while it runs, from what its board has on disk: nothing is measured."""

from dataclasses import dataclass
from typing import Any

from labctl.board import JobProgress, JobState, Started
from labctl.engines import Engine, EngineParameters, Seen


@dataclass(frozen=True)
class TrialProgress:
    """A trial under way. ``None`` = not known, or not reported by the board.

    ``done`` of ``total`` in ``unit`` (tokens, lines, bytes); ``remaining_s`` is what is left of
    them at the rate so far. ``elapsed_s`` is from the program's start, by the board's clock.
    """

    phase: str
    elapsed_s: float | None = None
    done: int | None = None
    total: int | None = None
    unit: str = ""
    per_second: float | None = None
    temperature_mc: int | None = None
    remaining_s: float | None = None


#: Before the program starts.
GETTING_READY = TrialProgress("getting the board ready")


def trial_progress(
    engine: Engine[Any], parameters: EngineParameters, started: Started, look: JobProgress
) -> TrialProgress:
    """Return the progress of a trial from one look at its job."""
    elapsed_s = (look.mono_ns - started.start_mono_ns) / 1e9
    if look.state is not JobState.RUNNING:
        return TrialProgress("fetching its output", elapsed_s)
    sample = look.sample
    if sample is None or sample.stdout is None or sample.stderr is None:
        return TrialProgress("started", elapsed_s)
    seen = Seen(sample.stdout, sample.stderr, look.stderr_end or "")
    progress = engine.progress(seen, parameters)
    return TrialProgress(
        phase=progress.phase,
        elapsed_s=elapsed_s,
        done=progress.done,
        total=progress.total,
        unit=progress.unit,
        per_second=progress.per_second,
        temperature_mc=sample.hottest_mc,
        remaining_s=progress.remaining_s(look.mono_ns),
    )


def remaining_of_trial(progress: TrialProgress, expected_s: float | None) -> float | None:
    """Return the remaining time of a trial in s; None if unknown.

    Where its output does not tell, it is what a trial like it took (``expected_s``), less the time
    that the program ran on the board: waiting for the board, or an earlier controller, is none of
    it. An expected end that is over is not reported any more.
    """
    if progress.remaining_s is not None or expected_s is None:
        return progress.remaining_s
    left = expected_s - (progress.elapsed_s or 0.0)
    return left if left > 0 else None
