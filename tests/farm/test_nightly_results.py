"""Ends of a night: its exit status, its cases, its pages, and what nobody trusts in them."""

import html
import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from simulated_comparisons import realistic
from simulated_farm import SimulatedFarm, Truth, night_of, plan_rows

from labctl.config.lab import Lab, LabFile
from labctl.errors import Blame, CompileError, HostError
from labctl.farm.health.checks_due import suspicion
from labctl.farm.nightly.executor import Built
from labctl.farm.nightly.judge import finding as judge_finding
from labctl.farm.nightly.judge import keep_flips, night_before
from labctl.farm.nightly.lab_executor import LabExecutor
from labctl.farm.nightly.night_jobs import NightJobs
from labctl.farm.nightly.nights import RESULT, begin_night, nights_of, unfinished_night
from labctl.farm.nightly.page import night_markdown, night_page, trend_page
from labctl.farm.nightly.results import (
    exit_status,
    headline,
    lines_of,
    result_of,
    suite_of,
    total_line,
)
from labctl.farm.nightly.state import RowState
from labctl.files import write_atomic
from labctl.records.night import (
    CommitSearch,
    NightEntry,
    NightFinding,
    NightRecord,
    NightResult,
    NightRow,
    NightVerdict,
    Stage,
)
from labctl.report.ci.texts import CI_FORMATS, ci_text
from labctl.state.state import lab_state

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


def kept_night(root: Path, started: datetime, *findings: NightFinding) -> Path:
    """The folder of a night; without findings it was interrupted."""
    name = f"{started:%Y%m%dT%H%M%SZ}-n-abcdef"
    record = NightRecord(id=name, plan="n", started=started, deadline=0, bisect=False, rows=())
    folder = begin_night(root, record)
    if findings:
        one = result(*findings, night=name).model_copy(update={"started": started})
        write_atomic(folder / RESULT, one.model_dump_json())
    return folder


def test_the_trend_has_a_point_for_each_night(tmp_path: Path) -> None:
    for day in (21, 22):
        started = datetime(2026, 11, day, 22, tzinfo=UTC)
        kept_night(tmp_path, started, finding(GOOD, ratio=1.01))
    page = trend_page("n", tmp_path)
    assert page.count("<circle") == 2
    assert "1% slower" in page


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
        result(good.model_copy(update={"ratio": 1.06, "accepted": 1.06})),  # by people, since
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


FOUND = CommitSearch(
    build="llama/rk3568",
    row="llama/q8@rk1",
    variant="q8_0",
    outcome="named",
    first="c" * 40,
    candidates=("c" * 40,),
    reason=f"the first slow commit is {'c' * 40}: slower than the one before it",
    pairs=30,
)


def texts(one: NightResult) -> dict[str, str]:
    """A result in every form that people or CI servers get."""
    found = {form: ci_text(form, suite_of(one)) for form in CI_FORMATS}
    found |= {"lines": "\n".join(lines_of(one)), "page": night_page(one)}
    return {**found, "markdown": night_markdown(one)}


def test_a_row_that_moved_names_its_board_and_why_in_every_report() -> None:
    moved = finding(SLOWER, Blame.JOB, ratio=1.07).model_copy(
        update={"board": "rk9", "left": {"rk1": "no answer"}}
    )
    for form, text in texts(result(moved)).items():
        assert "rk9" in text, form
        if form != "gitlab-metrics":
            assert "it left rk1: no answer" in text, form
    (case,) = suite_of(result(moved)).cases
    assert case.group == "llama.q8.rk1.q8_0"  # the case of every night


def test_the_found_commit_is_in_every_format() -> None:
    one = result(finding(SLOWER, Blame.JOB, ratio=1.07)).model_copy(update={"searches": (FOUND,)})
    for form, text in texts(one).items():
        if form != "gitlab-metrics":
            assert "c" * 12 in text, form


def test_gitlab_gets_the_figure_of_each_row() -> None:
    other = finding(GOOD, ratio=0.98).model_copy(update={"row": "llama/q2@rk1"})
    one = result(finding(SLOWER, Blame.JOB, ratio=1.07), other, finding(LOST, Blame.INFRA))
    lost = one.findings[2].model_copy(update={"ratio": None, "variant": "q9"})
    one = one.model_copy(update={"findings": (*one.findings[:2], lost)})
    text = ci_text("gitlab-metrics", suite_of(one))
    (family,) = text_string_to_metric_families(text)
    found = {(s.labels["row"], s.labels["board"]): s.value for s in family.samples}
    assert family.name == "labctl_head_over_last_good"
    assert found == {("llama/q8@rk1", "rk1"): 1.07, ("llama/q2@rk1", "rk1"): 0.98}


def first_words(page: str) -> str:
    """The first text that a page shows."""
    body = re.sub(r"<[^>]*>", "\n", page.split("<body>")[1])
    return next(line for line in map(str.strip, body.splitlines()) if line)


@pytest.mark.parametrize(
    ("findings", "words"),
    [
        ([finding(GOOD)], "GOOD: 1 of 1"),
        (
            [finding(GOOD), finding(SLOWER, Blame.JOB, ratio=1.079)],
            "SLOWER in 1 of 2: llama/q8@rk1 q8_0 (7.9% slower); good: 1 of 2",
        ),
        (
            [finding(GOOD), finding(UNKNOWN)],
            "GOOD: 1 of 2; no verdict on 1 of 2: llama/q8@rk1 q8_0",
        ),
        (
            [finding(GOOD), finding(LOST, Blame.INFRA)],
            "NO VERDICT on 1 of 2: llama/q8@rk1 q8_0; good: 1 of 2",
        ),
        ([finding(NightVerdict.DOES_NOT_BUILD, Blame.JOB)], "DOES NOT BUILD: head of llama"),
        ([finding(NightVerdict.FAILS, Blame.JOB)], "FAILS in 1 of 1: llama/q8@rk1 q8_0"),
    ],
)
def test_every_report_begins_with_the_verdict_and_then_has_the_builds(
    findings: Sequence[NightFinding], words: str
) -> None:
    one = result(*findings)
    one = one.model_copy(update={"exit_status": exit_status(one.findings)})
    assert headline(one) == words
    lines = list(lines_of(one))
    assert lines[0] == words
    assert lines[1] == "llama/rk3568: last good aaaaaaaaaaaa, head bbbbbbbbbbbb"
    assert night_markdown(one).startswith(f"# {words}\n\n- llama/rk3568: last good aaaaaaaaaaaa")
    assert first_words(night_page(one)) == words.partition("; ")[0]


def test_a_head_that_does_not_build_has_its_commit_and_the_first_errors(tmp_path: Path) -> None:
    class Wrong(SimulatedFarm):
        def build(self, name: str, side: str) -> Built:
            if side == "head":
                details = "a.c:3:1: error: no \x1b[2J such type\n" + "b.c:1:1: error: x\n" * 99
                error = CompileError("llama does not compile", details=details)
                error.source = "d" * 40
                raise error
            return super().build(name, side)

    farm = Wrong(7, realistic(0.01), Truth())
    night = night_of(tmp_path, farm, plan_rows(farm, 1))
    night.run()
    one = result_of(night, (), strict=False)
    assert one.builds == {"llama": {"good": "good", "head": "d" * 40}}
    (found,) = one.findings
    assert found.details is not None
    assert len(found.details.splitlines()) < 20
    for form, text in texts(one).items():
        if form != "gitlab-metrics":
            assert "d" * 12 in text, form
            assert "a.c:3:1: error: no" in text, form
            assert "\x1b" not in text, form
    text = ci_text("junit", suite_of(one))
    assert "b.c:1:1: error: x" in text


def test_cases_and_their_suite_have_the_time_of_their_runs(tmp_path: Path) -> None:
    farm = SimulatedFarm(7, realistic(0.01), Truth())
    (row,) = plan_rows(farm, 1)
    night = night_of(tmp_path, farm, [row.model_copy(update={"variants": ("q8", "q2")})])
    night.run()
    one = result_of(night, (), strict=False)
    runs = sum(entry.event == "measured" for entry in night.state.entries)
    root = ET.fromstring(ci_text("junit", suite_of(one)))
    times = [float(case.get("time", "")) for case in root.iter("testcase")]
    assert times == [30.0 * runs / 2] * 2
    assert float(root[0].get("time", "")) == pytest.approx(30.0 * runs)
    assert root[0].get("timestamp")


def test_a_bound_below_zero_is_not_said_to_be_slower() -> None:
    row = NightRow(
        name="llama/q8@rk1",
        build="llama",
        recipe="q8",
        board="rk1",
        variants=("q8_0",),
        seconds=1,
        screen=8,
        look=14,
    )
    state = RowState(row, "rk1")
    for pair in range(8):
        for side, ms in (("good", 100 + 0.1 * pair), ("head", 95 - 0.1 * pair)):
            entry = NightEntry(event="measured", at=0, values={"q8_0": ms})
            state.done[Stage.SCREEN, pair, side] = entry
    found = judge_finding(state, "q8_0", 1)
    assert found.verdict is GOOD
    assert re.match(r"not slower; at least \d\.?\d*% faster \(5% is excluded\)", found.reason)


def test_a_night_that_is_dated_ahead_is_not_the_last_one(tmp_path: Path) -> None:
    """A host's clock was wrong: the nights since then count."""
    now = datetime.now(UTC)
    wrong = kept_night(tmp_path, datetime(2099, 1, 1, tzinfo=UTC), finding(SLOWER, ratio=1.09))
    before = kept_night(tmp_path, now - timedelta(days=2), finding(GOOD, ratio=1.01))
    last = kept_night(tmp_path, now - timedelta(days=1), finding(GOOD, ratio=1.02))
    assert nights_of(tmp_path, "n") == [last, before, wrong]
    assert first_words(trend_page("n", tmp_path)).startswith("GOOD")
    record = result(finding(GOOD), night=last.name).model_copy(update={"started": now})
    found = night_before(LabFile(tmp_path, Lab(boards={})), record)
    assert found is not None
    assert found.id == before.name

    assert unfinished_night(tmp_path, "n") is None
    cut_off = kept_night(tmp_path, now - timedelta(hours=1))
    found_folder, _ = unfinished_night(tmp_path, "n") or (None, None)
    assert found_folder == cut_off


def test_an_unfinished_night_that_is_dated_ahead_is_found_and_a_damaged_one_hinders_nobody(
    tmp_path: Path,
) -> None:
    now = datetime.now(UTC)
    kept_night(tmp_path, now - timedelta(days=1), finding(GOOD))
    wrong = kept_night(tmp_path, datetime(2099, 1, 1, tzinfo=UTC))
    found, _ = unfinished_night(tmp_path, "n") or (None, None)
    assert found == wrong
    (wrong / "night.json").write_text("{")
    assert unfinished_night(tmp_path, "n") is None


def test_the_page_of_a_plan_says_why_the_next_night_could_not_begin(tmp_path: Path) -> None:
    kept_night(tmp_path, datetime(2026, 11, 21, 22, tzinfo=UTC), finding(GOOD))
    error = HostError("the <database> is away", hint="start it")
    page = trend_page("n", tmp_path, error)
    assert first_words(page) == "NO NIGHT: the &lt;database&gt; is away (blame: infra)"
    assert "start it" in page
    assert "GOOD: 1 of 1" in page


def test_a_plan_says_how_long_all_rows_take_and_when_the_night_ends(tmp_path: Path) -> None:
    farm = SimulatedFarm(7, realistic(0.01), Truth())
    rows = [one.model_copy(update={"screen": 10}) for one in plan_rows(farm, 6)]
    started = datetime(2026, 11, 22, 22, tzinfo=UTC)
    record = NightRecord(
        id="n",
        plan="n",
        started=started,
        deadline=started.timestamp() + 8 * 3600,
        bisect=False,
        rows=tuple(rows),
    )
    line = total_line(record)
    assert "about 1h on all boards together" in line  # 6 rows of 10 pairs of 30 s
    assert f"{(started + timedelta(minutes=20)).astimezone():%H:%M}" in line  # two rows on b0
    assert f"at the latest {(started + timedelta(hours=8)).astimezone():%Y-%m-%d %H:%M}" in line
    unknown = record.model_copy(
        update={"rows": (rows[0].model_copy(update={"seconds": 0.0}), *rows[1:])}
    )
    assert "and 1 row of unknown time" in total_line(unknown)


def test_the_commit_of_one_row_is_not_said_to_slow_another_row() -> None:
    slow = finding(SLOWER, Blame.JOB, ratio=1.07)
    other = slow.model_copy(update={"row": "llama/q2@rk2"})
    one = result(slow, other).model_copy(update={"searches": (FOUND,)})
    assert headline(one).endswith(
        f"first slow commit of llama/rk3568: {'c' * 12} (by llama/q8@rk1 q8_0;"
        " 1 other slow row not searched)"
    )


@pytest.mark.parametrize("slow", [True, False])
def test_a_board_that_dies_takes_no_verdict_of_another_variant_with_it(
    tmp_path: Path, slow: bool
) -> None:
    """q8 is decided, by the screening or at its first look; q2 needs more, and the board dies."""
    farm = SimulatedFarm(2, realistic(0.02), Truth())
    (row,) = plan_rows(farm, 1)
    row = row.model_copy(update={"variants": ("q8", "q2"), "equals": ()})
    farm.truth.of_variant = {"q8": {"head": 0.12 if slow else -0.05}, "q2": {"head": 0.032}}
    farm.truth.dead = {row.board: 2 * (row.screen + (row.look if slow else 3))}
    night = night_of(tmp_path, farm, [row])
    night.run()
    q8, q2 = night.findings()
    assert q8.verdict is (NightVerdict.SLOWER if slow else NightVerdict.GOOD)
    assert (q2.verdict, q2.blame) == (NightVerdict.NOT_MEASURED, Blame.INFRA)
