"""What is told of a trial while it runs, and that what a board leaves out is left out."""

from typing import Any

from labctl.board.job import JobProgress, Started
from labctl.cli.run_view import progress_text
from labctl.engines.llama_cpp.engine import LlamaCpp
from labctl.runs.observer import TrialProgress, remaining_of_trial, trial_progress

SECOND = 1_000_000_000
STARTED = Started(
    directory="/w", pid=1, job_pid=2, boot_id="b", start_mono_ns=10 * SECOND, emulator=None
)
SAMPLE = {
    "mono_ns": 29 * SECOND,
    "stdout": {
        "pieces": 5,
        "lines": 0,
        "bytes": 20,
        "first_ns": 20 * SECOND,
        "last_ns": 28 * SECOND,
    },
    "stderr": {"pieces": 9, "lines": 9, "bytes": 900, "first_ns": 1, "last_ns": 2},
    "temps_mc": {"soc": 61_250, "gpu": 48_000},
}


def told(sample: Any, state: str = "running") -> TrialProgress:
    look = JobProgress.model_validate(
        {
            "state": state,
            "boot_id": "b",
            "mono_ns": 30 * SECOND,
            "stdout_bytes": 20,
            "stderr_bytes": 900,
            "sample": sample,
            "status": None,
        }
    )
    engine = LlamaCpp()
    return trial_progress(engine, engine.parameters({"tokens": 8}), STARTED, look)


def test_a_trial_is_told_with_phase_tokens_rate_and_heat() -> None:
    progress = told(SAMPLE)
    assert (progress.elapsed_s, progress.remaining_s) == (20, 4)
    assert progress_text(progress) == "generating, 5/8 tokens, 0.500 tokens/s, 61.2 °C"


def test_what_the_board_does_not_tell_is_not_told() -> None:
    cool = told({key: value for key, value in SAMPLE.items() if key != "temps_mc"})
    assert progress_text(cool) == "generating, 5/8 tokens, 0.500 tokens/s"
    for nothing in (None, {"mono_ns": 1}, "garbage"):
        assert progress_text(told(nothing)) == "started"


def test_a_job_that_ended_is_being_fetched() -> None:
    assert progress_text(told(SAMPLE, state="finished")) == "fetching its output"


def test_what_the_last_such_trial_took_is_what_is_left_where_nothing_else_is_known() -> None:
    # The board had to cool: what a trial takes begins with its program. An end that is over is
    # not reported any more.
    left = [
        remaining_of_trial(TrialProgress("loading", elapsed_s), 100.0)
        for elapsed_s in (None, 35, 70, 105, 140)
    ]
    assert left == [100, 65, 30, None, None]
    assert remaining_of_trial(TrialProgress("loading", 35), None) is None
    assert remaining_of_trial(told(SAMPLE), 100.0) == 4
