import csv
import io
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import vl_convert
from hypothesis import given
from hypothesis import strategies as st
from measured_runs import PAIR, Made, measured
from records_made import MS, timing, trial

from labctl.records.board import Execution
from labctl.records.telemetry import TelemetrySample
from labctl.records.trial import TrialRecord, TrialState
from labctl.report.figures.catalogue import NAMES, figures_of
from labctl.report.figures.figure import Figure
from labctl.report.figures.files import write_figure
from labctl.report.figures.measured import MeasuredRun
from labctl.report.figures.svg import with_tips
from labctl.report.figures.theme import MOST_SERIES
from labctl.report.page.language import Code
from labctl.stats.describe import geometric_mean, median
from labctl.stats.intervals import geometric_interval

HOSTILE = "</script><b onload='x'>\"&=cmd|' /C calc'!A0\\"

#: Keys of Vega whose text is an expression.
EVALUATED = ("signal", "expr", "update", "test", "init", "events", "labelExpr")


def figure(name: str, *runs: MeasuredRun, language: Code = "en") -> Figure:
    return next(one for one in figures_of(runs, language=language).drawn if one.name == name)


def rows(of: Figure, kind: str) -> list[dict[str, Any]]:
    return [dict(row) for row in of.rows if row.get("kind") == kind]


def strings(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from strings(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from strings(inner)
    elif isinstance(value, str):
        yield value


MANY = [measured(run_id=f"20261120T2230{n:02d}Z-q2-{n:06x}", seed=n) for n in range(12)]


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize(
    "runs",
    [
        [measured(throttled=5)],
        [measured(PAIR[:1], repeats=1, execution=Execution.EMULATED)],
        MANY,
        [measured([Made(HOSTILE), Made("q2_k", 9.0)])],
        [measured([Made(f"t{n}", 99.0 / n, parameters=(("threads", n),)) for n in (1, 2)])],
    ],
    ids=["one run", "one trial", "many runs", "hostile names", "sweep"],
)
def test_every_figure_compiles_without_a_warning(
    runs: list[MeasuredRun], language: Code, capfd: pytest.CaptureFixture[str]
) -> None:
    found = figures_of(runs, language=language)
    assert found.drawn
    for one in found.drawn:
        for chart in (with_tips(one.chart("light")), with_tips(one.chart("dark", 340))):
            vl_convert.vegalite_to_vega(json.loads(json.dumps(chart)), show_warnings=True)
    out, err = capfd.readouterr()
    assert out + err == ""


def test_the_names_that_are_offered_are_those_of_the_figures() -> None:
    found = figures_of([measured()])
    own = {one.name for one in (*found.drawn, *found.missing)}
    assert set(NAMES) == {name for name in own if not name.startswith(("sweep", "timeline"))}


@pytest.mark.parametrize("ending", [".svg", ".png"])
def test_every_figure_of_a_run_is_written_as_a_file(tmp_path: Path, ending: str) -> None:
    drawn = figures_of([measured([Made(HOSTILE)], repeats=1, tokens=4)]).drawn
    for one in drawn[:: 1 if ending == ".svg" else 4]:
        path = tmp_path / f"{one.name}{ending}"
        write_figure(one, path, "dark")
        if ending == ".svg":
            texts = "".join(ElementTree.parse(path).getroot().itertext())
            assert one.title in texts
        else:
            assert path.read_bytes().startswith(b"\x89PNG")


def expressions(value: object, key: str = "") -> Iterator[str]:
    """The texts of a Vega specification that Vega evaluates."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from expressions(inner, name)
    elif isinstance(value, list):
        for inner in value:
            yield from expressions(inner, key)
    elif isinstance(value, str) and key in EVALUATED:
        yield value


def test_names_are_data_and_never_a_part_of_an_expression() -> None:
    swept = [Made(f"{HOSTILE}{n}", parameters=((HOSTILE, n), ("b", n % 2))) for n in range(4)]
    found = figures_of([measured([Made(HOSTILE), Made("q2_k")], throttled=1)]).drawn
    for one in (*found, *figures_of([measured(swept, repeats=1, tokens=4)]).drawn):
        chart = one.chart()
        assert not {"calculate", "url", "href", "labelExpr"} & set(strings(chart))
        vega = vl_convert.vegalite_to_vega(with_tips(chart))
        shown = HOSTILE[-8:]  # a long name loses its middle
        assert any(shown in text for text in strings(vega)) or "q2_k" in one.title
        assert not [text for text in expressions(vega) if "onload" in text or "cmd" in text]


def test_the_points_of_the_token_figure_are_the_records_gaps() -> None:
    run = measured(repeats=2, tokens=5)
    found = rows(figure("token-times", run), "repeat")
    for variant in PAIR:
        for one in (t for t in run.trials if t.variant == variant.name):
            assert one.timing
            mine = [
                row["time"]
                for row in found
                if row["series"] == one.variant and row["repeat"] == one.repeat
            ]
            assert mine == [pytest.approx(gap / 1e6, rel=1e-5) for gap in one.timing.token_ns]
    assert {row["position"] for row in found} == {2, 3, 4, 5, 6}


def test_tokens_that_came_while_the_board_throttled_are_marked() -> None:
    found = figure("token-times", measured(throttled=5, tokens=32))
    marked = rows(found, "throttled")
    assert {(row["series"], row["repeat"]) for row in marked} == {("q8_0", 3)}
    assert {row["position"] for row in marked} >= set(range(20, 34))
    assert 2 not in {row["position"] for row in marked}
    assert "held its clock down" in found.caption
    assert "held its clock down" not in figure("token-times", measured()).caption


def test_long_generations_are_joined_to_as_many_points_as_a_page_shows() -> None:
    run = measured(PAIR[:1], repeats=1, tokens=1000)
    found = figure("token-times", run)
    drawn = rows(found, "repeat")
    assert len(drawn) == 250
    assert "Each point stands for 4 tokens" in found.caption
    timed = run.trials[0].timing
    assert timed
    assert drawn[0]["time"] == pytest.approx(median(timed.token_ns[:4]) / 1e6, rel=1e-5)


def test_very_unlike_times_have_a_logarithmic_axis_that_says_so() -> None:
    found = figure("token-times", measured([Made("fast", 20), Made("slow", 50_000)]))
    y = found.spec["layer"][0]["encoding"]["y"]
    assert y["scale"]["type"] == "log"
    assert "log scale" in y["title"]
    low, high = y["scale"]["domain"]
    times = [row["time"] for row in found.rows if "time" in row]
    assert low < min(times)
    assert high > 1.5 * max(times), "room for the labels of TTFT"


def test_ttft_is_labelled_with_its_median() -> None:
    found = rows(figure("token-times", measured()), "ttft")
    assert [row["text"] for row in found] == ["▲ TTFT 1.60 s  q8_0", "▲ TTFT 1.60 s  q2_k"]


def test_many_repeats_become_a_band_of_the_same_medians() -> None:
    found = figure("token-times", *MANY)
    assert not rows(found, "repeat")
    third = [
        one.timing.token_ns[2]
        for run in MANY
        for one in run.trials
        if one.timing and one.variant == "q2_k"
    ]
    (drawn,) = [
        row for row in rows(found, "median") if row["series"] == "q2_k" and row["position"] == 4
    ]
    assert drawn["time"] == pytest.approx(median(third) / 1e6, rel=1e-5)
    assert drawn["low"] < drawn["time"] < drawn["high"]


def test_more_variants_than_colours_leaves_the_first_fastest_and_slowest() -> None:
    variants = [Made(f"v{n}", 100.0 + 10 * n) for n in (5, *range(5), *range(6, 20))]
    run = measured(variants, repeats=2, tokens=4)
    assert len(rows(figure("estimates", run), "estimate")) == 20, "rows need no colours"
    found = figure("token-times", run)
    shown = list(dict.fromkeys(row["series"] for row in rows(found, "repeat")))
    assert len(shown) == MOST_SERIES
    assert {"v5", "v0", "v19"} <= set(shown)
    assert "8 of 20" in found.caption


def test_the_estimate_is_the_tables_with_its_interval() -> None:
    run = measured(repeats=5)
    (q8, q2) = rows(figure("estimates", run), "estimate")
    means = [t.timing.mean_ns for t in run.trials if t.timing and t.variant == "q8_0"]
    assert q8["time"] == pytest.approx(geometric_mean([m or 0 for m in means]) / 1e6, rel=1e-5)
    assert q8["low"] < q8["time"] < q8["high"]
    assert q2["text"].startswith("19")
    assert "±" in q2["text"]


def test_one_repeat_has_no_interval() -> None:
    (row,) = rows(figure("estimates", measured(PAIR[:1], repeats=1)), "estimate")
    assert "low" not in row
    assert "±" not in row["text"]


def test_many_runs_have_an_interval_over_runs_and_not_over_all_repeats() -> None:
    times = [380.0 * 1.1 ** (n % 3) for n in range(12)]
    runs = [
        measured([Made(token_ms=ms)], run_id=f"20261120T2230{n:02d}Z-q2-{n:06x}", seed=n)
        for n, ms in enumerate(times)
    ]
    found = figure("estimates", *runs)
    (row,) = rows(found, "estimate")
    estimates = [
        geometric_mean(
            [one.timing.mean_ns for one in run.trials if one.timing and one.timing.mean_ns]
        )
        for run in runs
    ]
    over_runs = geometric_interval(estimates)
    unit = float(row["low"]) / over_runs.low
    assert float(row["high"]) == pytest.approx(over_runs.high * unit, rel=1e-4)
    assert unit == pytest.approx(float(row["time"]) / over_runs.mean, rel=1e-4)
    assert "interval is over the runs" in found.caption


@pytest.mark.parametrize(
    ("execution", "mark"), [(Execution.EMULATED, "EMULATED"), (Execution.NATIVE_HOST, "NATIVE")]
)
@pytest.mark.parametrize("language", ["en", "zh"])
def test_what_is_no_boards_says_so_in_the_picture(
    execution: Execution, mark: str, language: Code
) -> None:
    for one in figures_of([measured(execution=execution)], language=language).drawn:
        assert mark in json.dumps(one.chart()["title"], ensure_ascii=False)
    for one in figures_of([measured()], language=language).drawn:
        assert mark not in json.dumps(one.chart()["title"])


def test_emulated_series_beside_those_of_boards_have_it_in_their_names() -> None:
    emulated = measured(run_id="20261121T223000Z-q2-fedcba", execution=Execution.EMULATED)
    found = figure("estimates", measured(), emulated)
    shown = [row["series"] for row in rows(found, "estimate")]
    assert [("EMULATED" in name) for name in shown] == [False, False, True, True]
    assert found.warning.startswith("EMULATED in part")
    drawn = figures_of([measured(), emulated]).drawn
    alone = {one.title: one.warning for one in drawn if one.name.startswith("timeline")}
    assert len(alone) == 4
    for title, warning in alone.items():
        assert warning.startswith("EMULATED: ") if "EMULATED" in title else warning == ""


def test_rows_of_what_is_no_board_say_so_in_the_csv() -> None:
    for one in figures_of([measured(execution=Execution.EMULATED)]).drawn:
        read = csv.DictReader(io.StringIO(one.csv()))
        assert {row["execution"] for row in read} == {"emulated"}
    assert "execution" not in figure("estimates", measured()).csv()


def test_runs_without_tokens_say_why_a_figure_is_missing() -> None:
    bare = measured()
    empty = MeasuredRun(bare.run, [trial(timing=None)])
    found = figures_of([empty])
    assert {one.name: one.reason for one in found.missing} == {
        **{one.name: one.reason for one in found.missing},
        "token-times": "no repeat has the times of single tokens",
        "estimates": "no repeat has a time per token",
    }


def test_the_csv_of_a_figure_has_its_rows_and_no_formula() -> None:
    found = figure("estimates", measured([Made("=cmd|' /C calc'!A0")]))
    read = list(csv.DictReader(io.StringIO(found.csv())))
    assert len(read) == len(found.rows)
    assert {row["series"] for row in read} == {"'=cmd|' /C calc'!A0"}
    assert float(read[0]["time"]) == found.rows[0]["time"]


def test_a_box_is_that_of_its_repeats_tokens() -> None:
    run = measured(repeats=2)
    boxes = rows(figure("repeats", run), "box")
    assert [row["row"] for row in boxes] == ["#1 q8_0", "#2 q8_0", "#1 q2_k", "#2 q2_k"]
    mine = [t.timing.token_ns for t in run.trials if t.timing and t.variant == "q2_k"]
    middle = median([gap for gaps in mine for gap in gaps])
    assert boxes[3]["p50"] == pytest.approx(100 * (median(mine[1]) / middle - 1), rel=1e-3)
    assert boxes[3]["values"] == len(mine[1])


def test_too_many_repeats_become_a_row_for_each_variant() -> None:
    found = figure("repeats", measured(repeats=20, tokens=4))
    assert [row["row"] for row in rows(found, "box")] == ["q8_0", "q2_k"]
    assert [row["values"] for row in rows(found, "box")] == [20, 20]


def test_values_outside_of_the_axis_are_counted() -> None:
    run = measured(PAIR[:1], repeats=8, tokens=64)
    slow = run.trials[0].timing
    assert slow
    gaps = (100 * slow.token_ns[0], *slow.token_ns[1:])
    late = run.trials[0].model_copy(update={"timing": slow.model_copy(update={"token_ns": gaps})})
    found = figure("repeats", MeasuredRun(run.run, [late, *run.trials[1:]]))
    assert "Values outside of the axis: " in found.caption


def test_the_ecdf_rises_to_one_through_the_records_times() -> None:
    run = measured(repeats=2, tokens=8)
    steps = [dict(row) for row in figure("ecdf", run).rows if row["series"] == "q2_k"]
    mine = [g for t in run.trials if t.timing and t.variant == "q2_k" for g in t.timing.token_ns]
    assert [row["time"] for row in steps] == [
        pytest.approx(g / 1e6, rel=1e-5) for g in sorted(mine)
    ]
    assert steps[0]["share"] == pytest.approx(1 / 16)
    assert steps[-1]["share"] == 1


def changed(run: MeasuredRun, **changes: object) -> MeasuredRun:
    return replace(run, trials=[one.model_copy(update=changes) for one in run.trials])


def of_trials(*trials: TrialRecord) -> MeasuredRun:
    return MeasuredRun(measured(PAIR[:1], repeats=1, tokens=2).run, trials)


STRANGE = {
    "no trials": of_trials(),
    "nothing but a failure": of_trials(trial(state=TrialState.FAILED, timing=None)),
    "no status of the job": changed(measured(), job=None),
    "one token": of_trials(trial(timing=timing([100]))),
    "tokens all alike": of_trials(trial(1, timing=timing([100, 100]))),
    "tokens that came together": of_trials(trial(timing=timing([9, 0, 9], merged_chunks=(1,)))),
    "a variant 50,000 times slower": of_trials(
        trial(timing=timing([1, 2])), trial(2, variant="slow", timing=timing([50_000, 60_000]))
    ),
    "an older record without its variants": changed(measured(), variant="q8_0"),
    "no telemetry": replace(measured(), telemetry=lambda _trial: ()),
    "telemetry of another boot": replace(
        measured(), telemetry=lambda _trial: [TelemetrySample(mono_ns=n) for n in range(3)]
    ),
}


@pytest.mark.parametrize("name", STRANGE)
def test_strange_runs_have_figures_or_reasons(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    found = figures_of([STRANGE[name]])
    assert all(one.reason for one in found.missing)
    for one in found.drawn:
        vl_convert.vegalite_to_vega(json.dumps(one.chart(), allow_nan=False), show_warnings=True)
    assert "".join(capfd.readouterr()) == ""


@given(st.lists(st.lists(st.integers(0, 10**13), min_size=1, max_size=40), max_size=5))
def test_any_times_make_figures_of_finite_numbers(repeats: list[list[int]]) -> None:
    trials = []
    for number, gaps in enumerate(repeats, 1):
        timed = timing([1.0], token_ns=tuple(gaps), mean_ns=sum(gaps) // len(gaps), p50_ns=1)
        trials.append(trial(number, timing=timed))
    for one in figures_of([of_trials(*trials)]).drawn:
        json.dumps(one.chart(), allow_nan=False)
        assert len(one.csv().splitlines()) == len(one.rows) + 1


def test_an_interval_that_is_wider_than_the_repeats_is_in_the_figure() -> None:
    made = measured([Made("a", 200.0)], repeats=3)
    times = {1: 180, 2: 200, 3: 235}
    trials = [
        one.model_copy(
            update={"timing": one.timing.model_copy(update={"mean_ns": times[one.number] * MS})}
        )
        for one in made.trials
        if one.timing
    ]
    found = figure("estimates", MeasuredRun(made.run, trials))
    (estimate,) = rows(found, "estimate")
    x = found.spec["layer"][0]["encoding"]["x"]
    assert estimate["high"] > 235
    assert x["scale"]["domain"][1] >= estimate["high"]
