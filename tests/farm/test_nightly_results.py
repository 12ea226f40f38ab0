"""Ends of a night: its exit status, its cases, its pages, and what nobody trusts in them."""

import html
from datetime import UTC, datetime
from pathlib import Path

import pytest

from labctl.config.lab import Lab, LabFile
from labctl.errors import Blame
from labctl.farm.health import suspicion
from labctl.farm.nightly.judge import keep_flips
from labctl.farm.nightly.lab_executor import LabExecutor
from labctl.farm.nightly.night_jobs import NightJobs
from labctl.farm.nightly.nights import RESULT, begin_night
from labctl.farm.nightly.page import night_markdown, night_page, trend_page
from labctl.farm.nightly.results import exit_status, lines_of, suite_of
from labctl.files import write_atomic
from labctl.records.night import NightFinding, NightRecord, NightResult, NightVerdict
from labctl.state import lab_state

GOOD, SLOWER = NightVerdict.GOOD, NightVerdict.SLOWER
UNKNOWN, LOST = NightVerdict.NOT_MONITORED, NightVerdict.NOT_MEASURED
HOSTILE = "</td><script>alert(1)</script>\x1b[2J | x"


def finding(
    verdict: NightVerdict, blame: Blame | None = None, reason: str = "so it is", ratio: float = 1.0
) -> NightFinding:
    return NightFinding(
        row="llama/q8@rk1",
        build="llama/rk3568",
        variant="q8_0",
        board="rk1",
        verdict=verdict,
        blame=blame,
        reason=reason,
        ratio=ratio,
        execution="board",
    )


def result(*findings: NightFinding, night: str = "20261122T220000Z-n-abcdef") -> NightResult:
    return NightResult(
        id=night,
        plan="n",
        started=datetime(2026, 11, 22, 22, tzinfo=UTC),
        finished=datetime(2026, 11, 23, 5, tzinfo=UTC),
        exit_status=0,
        findings=findings,
        builds={"llama/rk3568": {"good": "a" * 40, "head": "b" * 40}},
    )


@pytest.mark.parametrize(
    ("findings", "status"),
    [
        ([finding(GOOD)], 0),
        ([finding(GOOD), finding(UNKNOWN)], 0),
        ([finding(NightVerdict.SAME)], 0),
        ([finding(UNKNOWN)], 3),
        ([finding(GOOD), finding(LOST, Blame.INFRA)], 3),
        ([finding(GOOD), finding(LOST, Blame.CONFIG)], 2),
        ([finding(SLOWER, Blame.JOB), finding(LOST, Blame.INFRA)], 1),
        ([finding(NightVerdict.DOES_NOT_BUILD, Blame.JOB)], 1),
    ],
)
def test_the_exit_status_of_a_night(findings: list[NightFinding], status: int) -> None:
    assert exit_status(findings) == status


def test_strict_makes_a_failure_of_what_nobody_knows() -> None:
    assert exit_status([finding(GOOD), finding(UNKNOWN)], strict=True) == 1


SOUND = (GOOD, NightVerdict.SAME)


@pytest.mark.parametrize("verdict", [one for one in NightVerdict if one not in SOUND])
def test_nothing_but_a_good_row_or_the_same_program_is_green(verdict: NightVerdict) -> None:
    (case,) = suite_of(result(finding(verdict))).cases
    assert case.outcome != "passed"


def test_rows_without_a_verdict_are_counted() -> None:
    lines = list(lines_of(result(finding(GOOD), finding(UNKNOWN))))
    assert "1 of 2 have no verdict tonight: they do not pass" in lines


def test_texts_of_boards_and_programs_are_text_in_every_page() -> None:
    found = result(finding(SLOWER, Blame.JOB, HOSTILE))
    page = night_page(found)
    assert "<script" not in page
    assert "\x1b" not in page
    assert "default-src 'none'" in html.unescape(page)
    text = night_markdown(found)
    assert "<script" not in text.replace("\\<script", "")
    assert "\x1b" not in text


def test_the_trend_has_a_point_for_each_night(tmp_path: Path) -> None:
    for day in (21, 22):
        name = f"202611{day}T220000Z-n-abcdef"
        started = datetime(2026, 11, day, 22, tzinfo=UTC)
        record = NightRecord(id=name, plan="n", started=started, deadline=0, bisect=False, rows=())
        folder = begin_night(tmp_path, record)
        one = result(finding(GOOD, ratio=1.01), night=name)
        write_atomic(folder / RESULT, one.model_dump_json())
    page = trend_page("n", tmp_path)
    assert page.count("<circle") == 2
    assert "1 % slower" in page


def test_nights_that_contradict_each_other_on_the_same_builds_are_flips_of_the_board(
    tmp_path: Path,
) -> None:
    lab = LabFile(tmp_path, Lab(boards={}))
    slow, good = finding(SLOWER, Blame.JOB, ratio=1.06), finding(GOOD)
    flips = lambda: [(e.board, e.value) for e in lab_state(lab).events.list(kinds=["flip"])]  # noqa: E731
    first, second = result(slow, night="20261121T220000Z-n-aaaaaa"), result(good)
    for agreeing in (
        result(slow),
        result(good.model_copy(update={"ratio": None})),
        result(good.model_copy(update={"board": "rk2"})),
        second.model_copy(
            update={"builds": {"llama/rk3568": {"good": "a" * 40, "head": "c" * 40}}}
        ),
    ):
        keep_flips(lab, first, agreeing)
    assert flips() == []
    keep_flips(lab, first, second)
    keep_flips(lab, first, second)  # a night that was killed before its end was kept
    assert flips() == [("rk1", "good")]
    keep_flips(lab, second, result(slow, night="20261123T220000Z-n-cccccc"))
    assert suspicion(lab_state(lab), "rk1") == ["its verdicts flipped 2 times in 14 days"]


def test_a_board_whose_verdicts_disagree_in_one_night_flips_and_is_looping(tmp_path: Path) -> None:
    lab = LabFile(tmp_path, Lab(boards={}))
    state, said = lab_state(lab), []
    jobs = NightJobs(lab, "n1", "lab1", print, lambda *_: pytest.fail("nothing runs"))
    executor = LabExecutor(lab, None, jobs, said.append)  # type: ignore[arg-type]
    assert executor.suspicion("rk1") is None
    executor.suspect("rk1", "results scatter")
    assert said == ["results scatter"]
    assert [(one.kind, one.reason) for one in state.events.list("rk1")] == [
        ("flip", "results scatter"),
        ("health", "results scatter"),
    ]
    assert executor.suspicion("rk1") == "its health is looping: results scatter"
