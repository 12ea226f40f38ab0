"""The figures and the answer of a load test, of a server of one slot of 100 ms."""

import json
from pathlib import Path
from typing import Any

import pytest
import vl_convert
from load_tests_made import LOST, Load, made_load_test

from labctl.evaluation.serving.directory import LoadTestDirectory
from labctl.evaluation.serving.results import LoadTestResults, results_of
from labctl.records.board import Execution
from labctl.records.serving import LatencyLimits
from labctl.report.figures.figure import Figure
from labctl.report.figures.loads import load_figures
from labctl.report.page.language import Code, Language
from labctl.report.page.load_answers import load_answers

LIMITS = LatencyLimits(ttft_ns=1_000_000_000)
RATES = [Load(None, requests=120), Load(5.0, requests=120), Load(30.0, requests=120)]


def measured(tmp_path: Path, *loads: Load, **options: Any) -> LoadTestResults:
    path = made_load_test(tmp_path / "runs", "t", loads, "finished", **options)
    return results_of(LoadTestDirectory(path))


def figure(results: LoadTestResults, name: str) -> Figure:
    drawn, _ = load_figures(results, Language("en"))
    return next(one for one in drawn if one.name == name)


def values(of: Figure, **wanted: object) -> list[dict[str, Any]]:
    return [dict(row) for row in of.rows if wanted.items() <= row.items()]


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize(
    "loads",
    [
        RATES,
        [Load(None, requests=20)],
        [Load(5.0, failure=LOST), Load(None, failure=LOST)],
        [Load(5.0, stop="interrupted", requests=0)],
        [],
    ],
    ids=["rates", "one load", "all failed", "no request", "no load"],
)
def test_every_figure_compiles_or_says_why_not(
    loads: list[Load], language: Code, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    results = measured(tmp_path, *loads, limits=LIMITS)
    drawn, missing = load_figures(results, Language(language))
    assert drawn or missing
    for one in drawn:
        for chart in (one.chart("light"), one.chart("dark", width=340)):
            vl_convert.vegalite_to_vega(json.loads(json.dumps(chart)), show_warnings=True)
    out, err = capfd.readouterr()
    assert out + err == ""


def test_a_percentile_of_few_requests_is_not_drawn(tmp_path: Path) -> None:
    many = figure(measured(tmp_path / "many", *RATES, limits=LIMITS), "times-over-rate")
    assert [row["load"] for row in values(many, part="ttft", series="p99")] == ["5.00/s", "30.0/s"]
    assert [row["text"] for row in values(many, kind="limit")] == ["limit 1.00 s"]
    few = figure(measured(tmp_path / "few", Load(5.0), Load(30.0)), "times-over-rate")
    assert values(few, series="p50")
    assert not values(few, series="p99")
    assert not values(few, kind="limit")


def test_throughput_stands_over_the_offered_rate(tmp_path: Path) -> None:
    drawn = figure(measured(tmp_path, *RATES, limits=LIMITS), "throughput-over-rate")
    answers = values(drawn, series="answers")
    assert [round(row["at"]) for row in answers] == [5, 30]
    assert [row["rate"] for row in answers] == pytest.approx([5, 10], rel=0.05)
    assert len(values(drawn, kind="knee")) == 1


def test_every_failed_request_is_in_the_figure_of_errors(tmp_path: Path) -> None:
    results = measured(tmp_path, Load(5.0), Load(30.0, failure=LOST))
    drawn = figure(results, "errors-over-time")
    failed = sum(row["to"] - row["from"] for row in values(drawn, kind="failed"))
    answered = sum(row["to"] - row["from"] for row in values(drawn, kind="answered"))
    assert (answered, failed) == (60, 60)


def test_the_figures_of_an_emulated_board_say_so(tmp_path: Path) -> None:
    results = measured(tmp_path, *RATES)
    endpoint = results.record.endpoint.model_copy(update={"execution": Execution.EMULATED})
    record = results.record.model_copy(update={"endpoint": endpoint})
    drawn, _ = load_figures(LoadTestResults(record, results.stages, results.knee), Language("en"))
    for one in drawn:
        assert one.warning.startswith("EMULATED")
        assert {row["execution"] for row in one.rows} == {"emulated"}


def test_the_answer_names_the_limit_that_breaks(tmp_path: Path) -> None:
    results = measured(tmp_path, *RATES, limits=LIMITS)
    first, why, sure, _ = load_answers(results, Language("en"))
    assert first == (
        "Up to 5.00 requests/s the server follows, and 95% of the requests or more keep every"
        " limit; at 30.0 it does not."
    )
    assert why.startswith("At 30.0 requests/s 12% of the requests keep every limit: p99 of TTFT is")
    assert why.endswith("limit 1.00 s.")
    assert "by loads of 120 requests" in sure


def test_streams_have_a_highest_number_that_keeps_the_limits(tmp_path: Path) -> None:
    results = measured(tmp_path, Load(None, requests=20), limits=LIMITS)
    first, _ = load_answers(results, Language("en"))
    assert first.startswith("Up to 1 stream, the most that was tried, 95% of the requests")
    slow = measured(tmp_path / "slow", Load(None, requests=20), limits=LatencyLimits(ttft_ns=1))
    first, why, _ = load_answers(slow, Language("en"))
    assert first == "No number of streams keeps the limits; the lowest was 1 stream."
    assert why.startswith("At 1 stream 0% of the requests keep every limit: p50 of TTFT is 100 ms")


def test_no_limit_that_is_kept_is_blamed_for_unknown_times(tmp_path: Path) -> None:
    limits = LatencyLimits(ttft_ns=10**9, tpot_ns=10**9)  # answers of one piece have no TPOT
    first, why, *_ = load_answers(measured(tmp_path, *RATES, limits=limits), Language("en"))
    assert first.startswith("The server followed no rate")
    assert why.endswith(" 0% of the requests keep every limit: times of the others are unknown.")


@pytest.mark.parametrize("limits", [LIMITS, None])
def test_failed_requests_are_blamed_and_no_limit_that_is_kept(
    limits: LatencyLimits | None, tmp_path: Path
) -> None:
    loads = (Load(1.0, requests=120), Load(5.0, requests=120, failure=LOST, each=5))
    answers = list(load_answers(measured(tmp_path, *loads, limits=limits), Language("en")))
    assert "At 5.00 requests/s 24 of 120 requests failed." in answers
    assert not any("limit 1.00 s" in one or "behind" in one for one in answers)


def test_a_load_without_an_answer_is_no_load_that_keeps_the_limits(tmp_path: Path) -> None:
    loads = (Load(None, requests=120), Load(None, requests=120, failure=LOST))
    answers = " ".join(load_answers(measured(tmp_path, *loads, limits=LIMITS), Language("en")))
    assert "the most that was tried" not in answers
    assert "no request was answered." in answers
