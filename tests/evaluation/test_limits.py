"""Limits from the times of a run: whose times they are, and how far they can be believed."""

from pathlib import Path

import pytest
from evaluations import recipe_of, recipe_text
from records_made import model, plan, planned_run, run, timing, trial

from labctl.evaluation.limits import limits_of
from labctl.records.board import BoardFacts, Execution
from labctl.records.trial import Check

RUN = "20261120T223000Z-q8-q2-abcdef"
MODELS = {key: model(key) for key in ("q2_k", "q8_0")}
TOKEN_MS = {"q2_k": 100, "q8_0": 250}
RECIPE = recipe_text(
    {key: ["http://far:80"] for key in MODELS},
    budgets={"equal_to": "q2_k", "tokens": [100, 200], "timing_run": RUN},
)


def timed(
    root: Path, checks: tuple[Check, ...] = (), execution: Execution = Execution.BOARD
) -> Path:
    facts = BoardFacts(execution=execution, machine="aarch64", kernel="5.10", boot_id="b1")
    directory = planned_run(root, run(RUN, models=tuple(MODELS.values()), facts=facts), plan())
    for number, (key, identity) in enumerate(MODELS.items(), 1):
        gaps = timing([TOKEN_MS[key]] * 4)
        directory.add(
            trial(
                number, repeat=1, slug=key, variant=key, model=identity, timing=gaps,
                checks=checks if key == "q8_0" else (), execution=execution,
            )
        )  # fmt: skip
    return root


def test_each_model_has_the_tokens_of_its_own_time(tmp_path: Path) -> None:
    found = limits_of(recipe_of(RECIPE), timed(tmp_path), MODELS)
    assert found.by_model == {"q2_k": (100, 200), "q8_0": (40, 80)}
    assert found.token_seconds == pytest.approx({"q2_k": 0.1, "q8_0": 0.25})
    assert (found.seconds, found.run, found.notes) == ((10.0, 20.0), RUN, ())


def test_times_that_are_doubtful_are_noted(tmp_path: Path) -> None:
    hot = (Check(name="frequency", ok=False, detail="down to 816 MHz"),)
    found = limits_of(recipe_of(RECIPE), timed(tmp_path, hot, Execution.EMULATED), MODELS)
    assert found.notes == (
        f"limits come from times of {RUN}, not measured on a board: emulated",
        f"limits of q8_0 come from times whose checks failed in {RUN}: frequency",
    )
