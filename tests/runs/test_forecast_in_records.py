"""What was foretold of a trial, and what became of it, stand in its record together."""

from dataclasses import replace
from pathlib import Path

import pytest
from forecasts import forecast_of
from played_runs import Setting
from records_made import model

from labctl.engines.base import MemoryNeed
from labctl.performance.prediction import ModelWorkload, Rate, Rates
from labctl.records.board import BoardFacts, Execution
from labctl.runs.planning.forecast import Forecast

#: The played board has 100 ms a token; of the model's 60 MB from DRAM at this rate it is 80.
RATES = Rates(memory={None: Rate(0.75e9, "a test")})


class Foretold(Setting):
    """A run on a board whose speed is known."""

    rates: Rates | None = RATES
    available = 10**9

    def forecast(self) -> Forecast:
        facts = BoardFacts.model_validate(
            {**dict(self.facts()), "memory_available_bytes": self.available}
        )
        work = ModelWorkload(model("m"), MemoryNeed(87_000_000, 0, 0, 0))
        return forecast_of({"m": work}, facts, self.rates)


def test_prediction_measurement_and_bound_are_in_the_record(tmp_path: Path) -> None:
    for trial in Foretold(tmp_path).run().trials:
        assert trial.predicted is not None
        assert (trial.predicted.token_ns, trial.predicted.bound) == (80_000_000, "dram")
        assert trial.measured_to_predicted == pytest.approx(1.25, rel=0.01)
        assert trial.bound is not None
        assert trial.bound.kind == "dram"
        assert trial.bound.share == pytest.approx(0.8, rel=0.01)


def test_what_is_not_known_is_absent(tmp_path: Path) -> None:
    setting = Foretold(tmp_path)
    setting.rates = None
    (first, *_) = setting.run().trials
    assert (first.predicted, first.measured_to_predicted, first.bound) == (None, None, None)


def test_a_stand_in_is_held_against_nothing(tmp_path: Path) -> None:
    setting = Foretold(tmp_path)
    setting.execution = Execution.NATIVE_HOST
    (first, *_) = setting.run().trials
    assert (first.predicted, first.measured_to_predicted, first.bound) == (None, None, None)


def test_near_the_border_of_memory_both_times_are_in_the_record(tmp_path: Path) -> None:
    setting = Foretold(tmp_path)
    setting.available = 90_000_000
    setting.rates = replace(RATES, storage=Rate(20e6, "a test"))
    (first, *_) = setting.run().trials
    assert first.predicted is not None
    assert first.predicted.resident_token_ns == first.predicted.token_ns == 80_000_000
    assert first.predicted.storage_token_ns == 3_000_000_000
    assert first.measured_to_predicted is None  # to which of both?
