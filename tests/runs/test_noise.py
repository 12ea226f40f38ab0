"""The repeats that `labctl plan` tells, at the noise that the repository knows of a board."""

import math
from pathlib import Path

import pytest
from records_made import BEGAN, model, plan, planned_run, run, timing, trial

from labctl.config.recipe import ComparisonLimits
from labctl.records.board import Execution
from labctl.records.run import RunEnd
from labctl.records.trial import TrialState
from labctl.runs.planning.needed_repeats import Noise, RepeatsNeeded
from labctl.runs.record.history import Wanted, known_noise
from labctl.runs.record.repository import RunRepository

LIKE = {"threads": 4, "build_key": "old"}
WANTED = Wanted(model().sha256, {"threads": 4, "build_key": "new"}, Execution.BOARD)


def made(lab: Path, name: str, times: list[float], **changes: object) -> None:
    directory = planned_run(lab, run(f"20261120T223000Z-q2-{name}"), plan())
    for number, ms in enumerate(times, 1):
        directory.add(
            trial(
                number,
                slug=f"t{number}",
                timing=timing([ms]),
                **{"comparability": LIKE, "repeat": number, **changes},
            )
        )
    directory.finish(RunEnd(state="finished", finished=BEGAN))


def test_noise_is_that_inside_runs_pooled_over_those_of_the_same_kind(tmp_path: Path) -> None:
    """An older build counts: its noise is the board's. What lies between runs does not."""
    made(tmp_path, "00000a", [100.0, 100.0 * math.exp(0.02)])
    made(tmp_path, "00000b", [120.0, 120.0, 120.0 * math.exp(0.03)])
    made(tmp_path, "00000c", [100.0, 200.0], comparability={"threads": 2})
    made(tmp_path, "00000d", [100.0, 200.0], execution=Execution.EMULATED)
    made(tmp_path, "00000e", [100.0, 200.0], state=TrialState.FAILED)
    made(tmp_path, "00000f", [100.0, 200.0], repeat=0)
    found = known_noise(RunRepository(tmp_path), "rk1", {"q2": WANTED})
    squares = 0.02**2 / 2 + 0.03**2 * 2 / 3
    assert found["q2"].sigma == pytest.approx(math.sqrt(squares / 3), rel=1e-5)
    assert (found["q2"].repeats, found["q2"].runs) == (5, 2)
    assert known_noise(RunRepository(tmp_path), "rk2", {"q2": WANTED}) == {}
    other = Wanted("0" * 64, {}, Execution.BOARD)
    assert known_noise(RunRepository(tmp_path), "rk1", {"q2": other}) == {}


def test_a_plan_tells_how_many_repeats_a_comparison_needs() -> None:
    noise = {"q2": Noise(0.01, 15, 3), "q8": Noise(0.02, 10, 2)}
    needed = RepeatsNeeded(noise, ComparisonLimits())
    assert (needed.same, needed.different) == (12, 6)
    assert needed.text == (
        "noise per repeat of the token time: q2 1.00% (15 repeats of 3 runs), q8 2.00% (10 repeats"
        " of 2 runs); with 90% probability, `labctl compare --figure tpot_ms` finds: equal variants"
        " (± 3%) with 12 interleaved repeats; a difference of 5% with 6 interleaved repeats"
    )
    assert needed.document()["repeats_for_same"] == 12
    loud = RepeatsNeeded({"q2": Noise(0.5, 15, 3)}, ComparisonLimits())
    assert loud.text.endswith("a difference of 5% with more than 200 interleaved repeats")


def test_a_plan_says_where_the_noise_is_not_known() -> None:
    needed = RepeatsNeeded({}, ComparisonLimits())
    assert needed.text.startswith("repeats needed for a comparison: unknown")
    assert needed.document()["repeats_for_same"] is None
