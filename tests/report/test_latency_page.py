"""The page of a latency match: curves, crossings, and what is only extrapolated or quoted."""

import json
import re
from copy import deepcopy
from dataclasses import replace

import pytest
import vl_convert
from latency_made import made_match

from labctl.compare.equal_latency.result import Shift
from labctl.compare.equal_latency.words import sentence
from labctl.report.page.html import html
from labctl.report.page.language import Language
from labctl.report.page.latency import latency_report
from labctl.report.page.markdown import markdown

EN, ZH = Language("en"), Language("zh")


def test_the_answer_is_the_choice_and_the_crossings() -> None:
    report = latency_report(made_match(), EN)
    assert report.answers[0] == "At a deadline of 60 s use q2_k/step: 20.0%."
    assert len(report.answers) == 3


def test_the_chinese_page_answers_in_chinese() -> None:
    found = made_match()
    crossing, choice = found.crossings[0], found.choices[0]
    best = choice.candidates[0]
    candidates = [(), (best,), (best, best), (best, replace(best, extrapolated=True))]
    candidates += [(replace(best, extrapolated=True),), (replace(best, accuracy=0.0),)]
    every = replace(
        found,
        crossings=tuple(
            replace(crossing, kind=kind)
            for kind in ("crossing", "after", "before", "none", "unclear")
        ),
        choices=(
            replace(choice, candidates=(best, best), shown=True),
            *(replace(choice, candidates=some) for some in candidates),
        ),
        shifts=(
            Shift("budget", "q2_k", "q8_0", "steps", "told", -20.0, None, -3.0, "With told q8_0"),
        ),
    )
    report = latency_report(every, ZH)
    shifted = next(one for one in report.tables if one.caption == ZH("From prompt to prompt"))
    told = [*report.answers, shifted.rows[0][0].text]
    assert len(told) == 13
    for one in told:
        assert re.search("[\u4e00-\u9fff]", one)
        assert not re.search(r"\b(?:Use|use|At|With|and|to|than)\b", one)
    assert report.answers[0].startswith("60.0 s 以内用 q2_k/step")


def test_the_chinese_page_has_its_heading_and_notes_in_chinese() -> None:
    heading = sentence("EMULATED timing, not the speed of a board: {model} ({runs})",
                       model="q2_k", runs="r1")  # fmt: skip
    note = sentence("{name} was timed once: no interval includes its noise", name="q8_0")
    found = replace(made_match(), heading=(heading,), notes=(note, "of nobody's template"))
    assert deepcopy(found).heading == ("EMULATED timing, not the speed of a board: q2_k (r1)",)
    assert json.loads(json.dumps(found.document()))["notes"][0] == note
    report = latency_report(found, ZH)
    (mark,) = report.marks
    for told in (mark, report.method[0]):
        assert re.search("[\u4e00-\u9fff]", told)
        assert "timed" not in told
        assert "not the speed" not in told
    assert mark.startswith("EMULATED")
    assert "q2_k" in mark
    assert report.method[1] == "of nobody's template"
    english = latency_report(deepcopy(found), EN)
    assert english.method[0] == "q8_0 was timed once: no interval includes its noise"


def test_the_grid_is_that_of_the_experiment() -> None:
    text = markdown(latency_report(made_match(), EN), EN)
    assert "Limits of equal time: ratio 2.735" in text
    assert "| 100 | 37 | 30.3 min |" in text


def test_figures_compile_and_mark_what_is_extrapolated(
    capfd: pytest.CaptureFixture[str],
) -> None:
    for words in (EN, ZH):
        report = latency_report(made_match(), words)
        assert [one.name for one in report.figures] == [
            *("accuracy-over-budget", "accuracy-over-deadline")
        ]
        for one in report.figures:
            for chart in (one.chart("light"), one.chart("dark", 340)):
                vl_convert.vegalite_to_vega(json.loads(json.dumps(chart)), show_warnings=True)
    assert "".join(capfd.readouterr()) == ""
    rows = report.figures[0].rows
    beyond = [row for row in rows if row["kind"] == "extrapolated" and row["tokens"] == 350]
    assert len(beyond) == 2
    assert not [row for row in rows if row["kind"] == "measured" and row["tokens"] == 350]


def test_an_open_crossing_is_not_told_as_shown() -> None:
    _, deadline = latency_report(made_match(), EN).figures
    (told,) = [row["text"] for row in deadline.rows if row["kind"] == "crossing"]
    assert told == "q8_0/step may overtake at about 86.7 min (not shown)"


def test_a_crossing_is_drawn_where_both_lines_are() -> None:
    """A line goes on where no larger limit changes an answer; where it ends, nothing crosses it."""
    made = made_match()
    faster, *others = made.curves
    points = faster.points[:6]  # none is extrapolated
    assert points[-1].seconds > 5000
    short = replace(faster, points=points)
    crossings = (replace(made.crossings[0], seconds=points[-1].seconds + 60),)
    for known_until, count in ((None, 1), (points[-1].seconds, 0)):
        curves = (replace(short, known_until=known_until), *others)
        found = replace(made, curves=curves, crossings=crossings)
        rows = latency_report(found, EN).figures[0].rows
        assert len([row for row in rows if row["kind"] == "crossing"]) == count
        tail = [row for row in rows if row["tokens" if "tokens" in row else "kind"] is None]
        assert {(row["series"], row["kind"], row["marked"]) for row in tail} >= (
            {("q2_k/step", "measured", False)} if count else set()
        )


def test_the_axis_says_what_is_plotted() -> None:
    budget, deadline = (str(one.spec) for one in latency_report(made_match(), EN).figures)
    assert "time of the limit (" in budget
    assert "deadline (" in deadline
    assert "time of an answer" not in budget + deadline


def test_emulated_times_stay_marked() -> None:
    page = html(latency_report(made_match(execution="emulated"), EN), EN)
    assert page.count("EMULATED: times do not show the speed of a board") >= 2
    assert not any(one.warning for one in latency_report(made_match(), EN).figures)


def test_published_figures_alone_make_no_curve() -> None:
    alone = replace(made_match(), curves=(), crossings=(), choices=(), points=(), evaluations=())
    report = latency_report(alone, EN)
    assert report.figures == []
    assert [one.name for one in report.missing] == [
        "accuracy-over-budget",
        "accuracy-over-deadline",
    ]
    assert any(table.caption == "Published figures" for table in report.tables)
    assert "70.9%" in markdown(report, EN)
