"""Pages of load tests, also of those without an answer or without an end."""

import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import pytest
from dashboards import Served, made_lab, served
from load_tests_made import LOST, Load, made_load_test

from labctl.cli.root import run_cli
from labctl.errors import JobError
from labctl.records.trial import Failure
from labctl.report.page.files import make_report
from labctl.report.page.html import html
from labctl.report.page.language import Language
from labctl.report.table import ABSENT
from labctl.runs.record.directory import RunDirectory

REFUSED = Failure.of(JobError("status 503: <b>busy</b>\x1b[2J"))
CLOSED, SHORT = Load(rate=None, requests=20), Load(requests=20)
KNEE, LIMIT = [Load(5.0), Load(30.0)], Load(stop="max-time", requests=40)

#: Loads, end, and sentences of the page; with ``-`` those that it must not have.
KINDS = {
    "knee": (
        KNEE,
        "finished",
        "The server follows 5.00 requests/s, and does not follow 30.0.",
        "Most answers per second: 10.0, with a planned load of 30.0/s.",
        "passed: loads measured: 2; ended",
    ),
    "refused": (
        [Load(failure=REFUSED), Load(None, failure=REFUSED)],
        "finished",
        "No measured request was answered.",
        "60 failed: status 503: <b>busy</b>",
        "Gate MISSED: rate 5 failed_share <= 0.01: 1",
        "-CLIENT LATE",
        "-Most answers",
    ),
    "gone": (
        [Load(stop="server-lost", requests=3, failure=LOST)],
        "failed",
        "failed: loads measured: 0; ended",
        "No measured request was answered.",
        "infra: the server is gone",
        "3 failed: the server is gone",
    ),
    "nothing": (
        [Load(stop="interrupted", requests=0)],
        "interrupted",
        "interrupted: loads measured: 0; ended",
        "No measured request was answered.",
        "2 requests had no answer at its end; not counted",
        "-not known",
        "-too few requests for an upper limit",
    ),
    "undecided": (
        [CLOSED, SHORT],
        "finished",
        "The highest rate that the server follows is not known",
        "no verdict on the rate: 20 requests are fewer than 30",
        "-The server follow",
    ),
    "closed": (
        [CLOSED],
        "finished",
        "Most answers per second: 10.0, with a planned load of 1 stream.",
        "-not known",
    ),
    "broken": (
        [Load(5.0), Load(10.0, stop="interrupted", requests=7)],
        "interrupted",
        "interrupted: loads measured: 2; ended",
        "rate 10: interrupted",
        "is not known",
        "too few requests for an upper limit",
    ),
    "late": ([Load(5.0), LIMIT], "finished", "cut off at the end of max_time", "passed: loads"),
    "dead": ([Load(5.0)], None, "interrupted: loads measured: 1; infra: labctl was killed"),
    "begun": ([], None, "interrupted: loads measured: 0", "No measured request was answered."),
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("lab") / "kitchen"
    made_lab(root)
    return {
        name: made_load_test(root / "runs", name, loads, state)
        for name, (loads, state, *_) in KINDS.items()
    }


@pytest.fixture(scope="module")
def dashboard(runs: dict[str, Path]) -> Iterator[Served]:
    with served(made_lab(runs["knee"].parent.parent)) as found:
        yield found


def text_of(page: str) -> str:
    body = re.sub(r"(?s)<(style|script).*?</\1>", "", page)
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]*>", "", body)))


@pytest.mark.parametrize("name", KINDS)
def test_the_dashboard_shows_a_load_test(
    name: str, runs: dict[str, Path], dashboard: Served
) -> None:
    run = runs[name].name
    with dashboard.signed_in("look") as client:
        pages = {
            path: client.get(path)
            for path in ("/runs", f"/runs/{run}", f"/runs/{run}/log", f"/runs/{run}/report")
        }
        chinese = client.get(f"/runs/{run}/report?lang=zh")
    assert {page.status_code for page in (*pages.values(), chinese)} == {200}
    assert run in pages["/runs"].text
    for page in (pages[f"/runs/{run}/report"].text, pages[f"/runs/{run}"].text):
        says(page, name)
    assert "\x1b" not in chinese.text
    assert "<b>busy" not in chinese.text
    assert "各级负载" in chinese.text


def says(page: str, name: str) -> None:
    assert "<b>busy" not in page
    assert "\x1b" not in page
    shown = text_of(page)
    for sentence in KINDS[name][2:]:
        is_there = not sentence.startswith("-")
        assert (sentence.removeprefix("-") in shown) is is_there, sentence


def test_a_load_of_nothing_has_a_row_without_figures(runs: dict[str, Path]) -> None:
    report = make_report([RunDirectory(runs["nothing"])], Language("en"))
    (loads,) = report.tables
    ((load, *cells),) = loads.rows
    assert load.text == "5.00/s"
    assert {cell.text for cell in cells} == {ABSENT.text}


def test_the_verdicts_stand_beside_their_rates(runs: dict[str, Path]) -> None:
    for name, followed in (("knee", ["yes", "no"]), ("undecided", [ABSENT.text] * 2)):
        loads = make_report([RunDirectory(runs[name])], Language("en")).tables[0]
        assert [column.heading for column in loads.columns][1:3] == ["Offered/s", "Followed"]
        assert [row[2].text for row in loads.rows] == followed


@pytest.mark.parametrize("ending", ["html", "md"])
def test_the_report_is_a_file_too(
    ending: str, runs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lab, out = str(runs["knee"].parent.parent), tmp_path / f"report.{ending}"
    assert run_cli(["--lab", lab, "report", runs["knee"].name, "-o", str(out)]) == 0
    assert "The server follows 5.00 requests/s" in out.read_text()
    both = [runs["knee"].name, runs["closed"].name]
    assert run_cli(["--lab", lab, "report", *both, "-o", str(out)]) == 2
    assert "a load test has a report of its own" in capsys.readouterr().err


def test_a_page_is_the_same_in_every_making(runs: dict[str, Path]) -> None:
    words = Language("en")
    pages = {html(make_report([RunDirectory(runs["knee"])], words), words) for _ in range(2)}
    assert len(pages) == 1
