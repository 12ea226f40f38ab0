"""The page of trends: its order, its axes, its steps, and what counts as a night."""

import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from dashboards import Served, made_lab, served
from nightly_runs import Lab

from labctl.compare.series import series_of
from labctl.records.board import Execution
from labctl.records.run import NightPart
from labctl.web.trends import Axis


@pytest.fixture(scope="module")
def dashboard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Boards rk1, rk2 and rk11 are as fast as ever, rk3 became 10 % slower, rk12 20 %."""
    lab = made_lab(tmp_path_factory.mktemp("lab") / "kitchen")
    after = {"rk1": 50.0, "rk2": 50.0, "rk11": 50.0, "rk3": 55.0, "rk12": 60.0}
    for number, (board, ms) in enumerate(after.items()):
        nights = Lab(lab.root / "runs", seed=number)
        nights._night = 30 * number  # the id of a run has its number
        nights.nights(range(1, 13), 50.0, board=board, execution=execution_of(board))
        nights.nights(range(13, 19), ms, board=board, execution=execution_of(board))
    with served(lab) as found:
        yield found


def execution_of(board: str) -> Execution:
    return Execution.EMULATED if board == "rk11" else Execution.BOARD


def test_many_series_are_small_and_the_worst_comes_first(dashboard: Served) -> None:
    text = dashboard.ask("GET", "/trends?lang=en").text
    cards = text.partition('<ul class="small">')[2].split("<li>")[1:]
    names = [re.search(r"<bdi>(\w+)</bdi>", card)[1] for card in cards]  # type: ignore[index]
    assert names == ["rk12", "rk3", "rk1", "rk2", "rk11"]
    assert [("mark suspected" in card, "EMULATED" in card) for card in cards] == [
        (True, False), (True, False), (False, False), (False, False), (False, True)
    ]  # fmt: skip
    assert all("step suspected slower" in card for card in cards[:2])
    assert not any('class="step' in card for card in cards[2:])
    assert " ms</span>" in cards[0]


def test_a_series_without_new_values_is_marked(tmp_path: Path) -> None:
    lab = made_lab(tmp_path / "kitchen")
    nights = Lab(lab.root / "runs")
    nights.nights(range(1, 4), 50.0, board="rk1")
    nights.nights(range(4, 8), 50.0, board="rk2")  # the four days after
    with served(lab) as found:
        text = found.ask("GET", "/trends?lang=en").text
    cards = text.partition("<section")[2].split("<section")
    flagged = {re.search(r"rk\d", card)[0]: "no value since" in card for card in cards}  # type: ignore[index]
    assert flagged == {"rk1": True, "rk2": False}
    assert text.count('class="series key"') == 4


def test_a_series_has_axes_with_units_and_dates_and_its_step(dashboard: Served) -> None:
    text = dashboard.ask("GET", "/trends?board=rk12&lang=en").text
    assert "per token (ms)" in text
    values = text.partition('<svg class="values"')[2].partition("</svg>")[0]
    assert re.findall(r">(\d+)</text>", values) == ["45", "50", "55", "60", "65"]
    dates = text.partition('<svg class="dates"')[2].partition("</svg>")[0]
    found = re.findall(r">(\d{4}-\d\d-\d\d)</text>", dates)
    assert len(found) == 5
    assert found == sorted(found)
    assert text.count("<circle") == 18
    assert text.partition("<section")[2].count('class="step suspected slower"') == 1
    assert text.partition("<section")[2].count('class="level"') == 2
    assert "days: 18" in text
    assert "style=" not in text, "the policy of pages forbids it"


def test_runs_of_one_night_count_as_one(tmp_path: Path) -> None:
    lab = made_lab(tmp_path / "kitchen")
    nights = Lab(lab.root / "runs")
    for commit in (1, 2):
        own = {"night": NightPart(id=f"n{commit}-of-the-nights", side=NightPart.HEAD)}
        nights.night(commit, 50.0, of_run=own)
        nights.night(commit, 50.0, of_run=own, later=timedelta(hours=1))
    with served(lab) as found:
        assert "nights: 2" in found.ask("GET", "/trends?lang=en").text


@pytest.mark.parametrize("ms", [0.00002, 0.037, 5.0, 999.0, 90_000.0])
@pytest.mark.parametrize("spread", [0.0, 0.001, 0.5, 30.0])
def test_an_axis_has_a_few_round_ticks_around_its_values(ms: float, spread: float) -> None:
    made = Lab(sigma=0.0)
    made.night(1, ms)
    made.night(2, ms * (1 + spread))
    (series,) = series_of(made.trials())
    axis = Axis.of(series)
    values = [value for value, _ in axis.ticks]
    assert 2 <= len(values) <= 6
    assert values[0] <= min(series.values) <= max(series.values) <= values[-1]
    assert len({text for _, text in axis.ticks}) == len(values)
    assert all(0 <= axis.place(value) <= 100 for value in series.values)
