"""Formats for CI servers: nothing is green that was not measured and judged."""

import json
import re
import xml.etree.ElementTree as ET
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from records_made import BEGAN, energy, model, planned_run, run, timing, trial

from labctl.cli.output import CI_FORMATS as OFFERED
from labctl.config.recipe import Recipe
from labctl.errors import DeviceLost, ProgramFailed, printable
from labctl.records.board import BoardFacts, Execution
from labctl.records.run import GateRecord, PlannedRecord, PlanRecord, RunEnd, RunRecord
from labctl.records.trial import Check, Failure, TrialRecord, TrialState
from labctl.report.ci.cases import Case, Outcome, Suite, refused_suite
from labctl.report.ci.texts import CI_FORMATS, ci_text
from labctl.report.formats import result_text

if TYPE_CHECKING:
    from xmlschema import XMLSchema

SCHEMA = Path(__file__).parents[1] / "fixtures" / "junit.xsd"
EVIL = '\x1b[31m]]></error>"&\x00\ufffe\n::error title=x::%0A,:%\r::stop-commands::x <b>|'
CRASH = Failure.of(ProgramFailed(EVIL, details=EVIL))
LOST = Failure.of(DeviceLost("the link to the board broke"))
Q8 = {"variant": "q8_0", "model": model("q8_0", "Q8_0")}
EMULATED = BoardFacts(execution=Execution.EMULATED, machine="x86_64", kernel="6", boot_id="b")


@cache
def schema() -> "XMLSchema":
    import xmlschema

    return xmlschema.XMLSchema(SCHEMA)


def gate(passed: bool | None, **changes: object) -> GateRecord:
    values = {
        "variant": "q2_k",
        "metric": "tpot_ms",
        "limit": "<= 100",
        "value": 110.0,
        "passed": passed,
        "detail": "110",
    }
    return GateRecord.model_validate({**values, **changes})


def planned(number: int, variant: str = "q2_k", **changes: object) -> PlannedRecord:
    values = {
        "number": number,
        "variant": variant,
        "model": variant,
        "repeat": number,
        "parameters": {},
        "warm_up_pass": False,
    }
    return PlannedRecord.model_validate({**values, **changes})


FINISHED = RunEnd(state="finished", finished=BEGAN)


class Played:
    """A run on disk with these trials, in the formats of CI servers."""

    def __init__(self, root: Path):
        self.runs = root / "runs"
        self.gates: tuple[GateRecord, ...] = ()
        self.directory = Path()

    def __call__(
        self,
        *trials: TrialRecord,
        gates: tuple[GateRecord, ...] = (),
        plan: tuple[PlannedRecord, ...] = (),
        end: RunEnd | None = FINISHED,
        **changes: object,
    ) -> "Played":
        self.record: RunRecord = run(variants=("q2_k", "q8_0"), **changes)
        self.trials, self.gates = trials, gates
        whole = plan or tuple(planned(t.number, t.variant, repeat=t.repeat) for t in trials)
        self.on_disk = planned_run(self.runs, self.record, PlanRecord(trials=whole, max_seconds=60))
        for one in trials:
            self.on_disk.add(one)
        if end:
            self.on_disk.finish(end)
        return self

    def text(self, form: str, *, strict: bool = False) -> str:
        path = self.on_disk.path
        return result_text(form, self.record, self.trials, self.gates, path, strict=strict)

    def junit(self, *, strict: bool = False) -> ET.Element:
        text = self.text("junit", strict=strict)
        schema().validate(text)
        (suite,) = ET.fromstring(text.encode())
        return suite

    def cases(self, *, strict: bool = False) -> dict[str, tuple[str, str]]:
        """Class and name of each case -> its outcome, and its message."""
        found = {}
        for case in self.junit(strict=strict).iter("testcase"):
            reasons = [one for one in case if one.tag != "system-out"]
            outcome = reasons[0].tag if reasons else "passed"
            message = reasons[0].get("message", "") if reasons else ""
            found[f"{case.get('classname')}: {case.get('name')}"] = (outcome, message)
        return found


@pytest.fixture
def played(tmp_path: Path) -> Played:
    return Played(tmp_path)


ROW = "q2.rk1.q2_k: measured"
OTHER = "q2.rk1.q8_0: measured"


def test_the_formats_that_are_offered_are_there() -> None:
    assert OFFERED == CI_FORMATS


def test_what_was_measured_and_judged_has_passed(played: Played) -> None:
    one = played(trial(1), trial(2, **Q8), gates=(gate(True),))
    assert {outcome for outcome, _ in one.cases().values()} == {"passed"}
    assert list(one.cases()) == [ROW, OTHER, "q2.rk1.q2_k: gate tpot_ms <= 100"]
    suite = one.junit()
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("3", "0", "0")
    assert suite.get("timestamp") == "2026-11-20T22:30:00+00:00"
    assert "110 ms" in (suite.findtext("system-out") or "")  # the table


def test_a_missed_gate_is_a_failure_that_says_by_how_much(played: Played) -> None:
    cases = played(trial(1), gates=(gate(False, detail="110, 10 % above the limit"),)).cases()
    found = cases["q2.rk1.q2_k: gate tpot_ms <= 100"]
    assert found == ("failure", "110, 10 % above the limit")


def test_a_gate_that_was_not_judged_is_skipped_and_a_failure_when_strict(played: Played) -> None:
    one = played(trial(1), gates=(gate(None, detail="not judged: can't tell"),))
    name = "q2.rk1.q2_k: gate tpot_ms <= 100"
    assert one.cases()[name] == ("skipped", "not judged: can't tell")
    assert one.cases(strict=True)[name][0] == "failure"


def test_a_gate_without_a_result_is_an_error(played: Played) -> None:
    one = played(trial(1), gates=(gate(False, value=None, detail="no result"),))
    assert one.cases()["q2.rk1.q2_k: gate tpot_ms <= 100"] == ("error", "no result")


def test_a_program_that_failed_is_a_failure_and_a_lost_board_is_an_error(played: Played) -> None:
    cases = played(
        trial(1, state=TrialState.FAILED, failure=LOST, timing=None),
        trial(2, **Q8, state=TrialState.FAILED, failure=CRASH, timing=None),
        trial(3, **Q8, state=TrialState.FAILED, failure=LOST, timing=None),
    ).cases()
    assert cases[ROW] == ("error", "trial 1: the link to the board broke")
    assert cases[OTHER][0] == "failure"


def test_planned_trials_without_result_are_an_error_with_the_reason(played: Played) -> None:
    end = RunEnd(state="failed", failure=LOST, finished=BEGAN)
    plan = (planned(1), planned(2), planned(3, "q8_0"), planned(4, "q8_0"))
    cases = played(trial(1), trial(3, **Q8), trial(4, **Q8), plan=plan, end=end).cases()
    assert cases[ROW] == ("error", "1 of 2 trials without result: the link to the board broke")
    assert cases[OTHER][0] == "passed"
    killed = Played(played.runs / "other")(trial(1), plan=plan, end=None).cases()
    assert "its controller died" in killed[OTHER][1]
    assert killed[OTHER][0] == "error"


def test_a_repeat_that_precision_did_not_need_is_not_missing(played: Played) -> None:
    plan = (planned(1), planned(2, optional=True), planned(3, "q8_0"))
    assert played(trial(1), trial(3, **Q8), plan=plan).cases()[ROW][0] == "passed"


def test_what_was_skipped_or_emulated_or_not_checked_has_not_passed(played: Played) -> None:
    skipped = trial(2, **Q8, state=TrialState.SKIPPED, skip_reason="max_time is over", timing=None)
    cases = played(trial(1, checks=()), skipped).cases()
    assert cases[ROW][0] == "skipped"
    assert "no check applied" in cases[ROW][1]
    assert cases[OTHER] == ("skipped", "max_time is over")
    in_part = Played(played.runs / "p")(trial(1, **Q8), skipped).cases()[OTHER]
    assert in_part == (
        "skipped",
        "110 ms per token (geometric mean of 1 good trial), but 1 trial skipped: max_time is over",
    )
    one_token = timing([100], mean_ns=None, p50_ns=None, tokens_per_second=None)
    some = Played(played.runs / "s")(trial(1), trial(2, timing=one_token), facts=EMULATED).cases()
    assert "110 ms per token (geometric mean of 1 of 2 good trials)" in some[ROW][1]
    emulated = Played(played.runs / "e")(trial(1), trial(2, **Q8), facts=EMULATED).cases()
    assert emulated[ROW] == (
        "skipped",
        "110 ms per token (geometric mean of 1 good trial), but emulated: not judged",
    )


def test_a_result_that_its_checks_contradict_has_not_passed(played: Played) -> None:
    one = played(trial(1, checks=(Check(name="span", ok=False, detail="0.9"),)))
    assert one.cases()[ROW][0] == "skipped"
    assert "checks failed: span" in one.cases()[ROW][1]
    assert one.cases(strict=True)[ROW][0] == "failure"


def test_gates_of_a_run_that_ended_early_are_there(played: Played) -> None:
    recipe = {"name": "q2", "gates": [{"metric": "tpot_ms", "max": 100}]}
    end = RunEnd(state="interrupted", finished=BEGAN)
    cases = played(trial(1), recipe_resolved=recipe, end=end).cases()
    found = cases["q2.rk1.gates: gate tpot_ms <= 100"]
    assert found == ("skipped", "the run ended before its gates were judged")


@pytest.mark.parametrize("form", CI_FORMATS)
def test_hostile_text_stays_text(played: Played, form: str) -> None:
    one = played(
        trial(1, state=TrialState.FAILED, failure=CRASH, timing=None),
        trial(2, **Q8, state=TrialState.SKIPPED, skip_reason=EVIL, timing=None),
        gates=(gate(False, metric=EVIL, detail=EVIL),),
    )
    text = one.text(form)
    text.encode()
    assert not re.search("[\x00-\x08\x0b-\x1f\ud800-\udfff\ufffe]", text)
    if form == "junit":
        assert one.cases()[ROW][0] == "failure"
        assert "]]></error>" in one.cases()[ROW][1]
    elif form == "github":
        lines = text.splitlines()
        assert len(lines) == 4  # each case but none more, and the counts
        assert all(re.match(r"::(error|warning|notice) title=[^,:]+::", line) for line in lines)
        assert "%250A" in text
    elif form == "summary":
        assert "\n::" not in text
        assert "<b>" not in text.replace("\\<", "")
    elif form == "gitlab-code-quality":
        assert len(json.loads(text)) == 3


def test_a_run_that_never_began_is_an_error_for_each_variant() -> None:
    recipe = Recipe.model_validate(
        {
            "name": "q2",
            "target": "rk3568",
            "engine": {"name": "llama_cpp"},
            "models": {"m": {"file": "m.gguf"}},
            "prompt": "x",
            "matrix": {"threads": [1, 4]},
            "max_time": "1m",
        }
    )
    suite = refused_suite(recipe, "10.0.0.1:5555", DeviceLost("nobody answers\ud800"))
    text = ci_text("junit", suite)
    schema().validate(text)
    cases = list(ET.fromstring(text).iter("testcase"))
    assert [c.get("classname") for c in cases] == [
        "q2.10_0_0_1:5555.m-threads-1",
        "q2.10_0_0_1:5555.m-threads-4",
    ]
    assert [c[0].get("message") for c in cases] == ["no result: nobody answers\\xd800"] * 2
    assert {c[0].tag for c in cases} == {"error"}


@settings(max_examples=60)
@given(st.text())
def test_any_text_stays_in_its_place(text: str) -> None:
    suite = Suite("s", (Case("r", "g.h", "n", Outcome.FAILED, text, text, text),))
    document = ci_text("junit", suite)
    document.encode()
    schema().validate(document)
    (case,) = ET.fromstring(document.encode()).iter("testcase")
    assert case[0].get("message") == printable(text)
    assert len(ci_text("github", suite).splitlines()) == 2
    assert len(ci_text("summary", suite).splitlines()) == 6
    (finding,) = json.loads(ci_text("gitlab-code-quality", suite))
    assert finding["severity"] == "major"


def test_workflow_commands_put_failures_first(played: Played) -> None:
    skipped = trial(1, state=TrialState.SKIPPED, skip_reason="max_time is over", timing=None)
    text = played(skipped, trial(2, **Q8), gates=(gate(False, detail="110 ms, 100 %"),))
    first, second, third = text.text("github").splitlines()
    assert first == "::error title=q2.rk1.q2_k%3A gate tpot_ms <= 100::110 ms, 100 %25"
    assert second.startswith("::warning title=q2.rk1.q2_k%3A measured::max_time")
    assert third == "::notice title=q2 on rk1::1 passed, 1 failed, 0 errors, 1 skipped"


def test_metrics_are_open_metrics(played: Played) -> None:
    text = played(trial(1, energy=energy()), board='r"\\\nk1').text("gitlab-metrics")
    families = {one.name: one for one in text_string_to_metric_families(text)}
    (sample,) = families["labctl_token_seconds"].samples
    assert sample.value == pytest.approx(0.11)
    assert sample.labels["variant"] == "q2_k"
    assert sample.labels["execution"] == "board"
    assert families["labctl_joules_per_token"].samples[0].value == 1.25
    assert families["labctl_ttft_seconds"].samples[0].value == 2


def test_metrics_of_variants_with_a_dot_in_the_name_stay_apart(played: Played) -> None:
    text = played(trial(1, variant="q-0.5"), trial(2, variant="r-1.5")).text("gitlab-metrics")
    families = {one.name: one for one in text_string_to_metric_families(text)}
    samples = families["labctl_token_seconds"].samples
    assert [one.labels["variant"] for one in samples] == ["q-0.5", "r-1.5"]


def test_metrics_of_a_run_without_result_are_empty_and_valid(played: Played) -> None:
    text = played(trial(1, state=TrialState.FAILED, failure=CRASH, timing=None))
    assert list(text_string_to_metric_families(text.text("gitlab-metrics"))) == []


def test_findings_keep_their_fingerprint_while_figures_change(played: Played) -> None:
    first, second = (
        json.loads(
            Played(played.runs / detail)(trial(1), gates=(gate(False, detail=detail),)).text(
                "gitlab-code-quality"
            )
        )
        for detail in ("110", "111")
    )
    (missed,) = (one for one in first if "gate" in one["check_name"])
    assert missed["severity"] == "major"
    assert missed["location"] == {"path": "recipes/q2.yaml", "lines": {"begin": 1}}
    assert [one["fingerprint"] for one in first] == [one["fingerprint"] for one in second]
    assert len({one["fingerprint"] for one in first}) == len(first)


def test_the_summary_begins_with_what_is_wrong_and_holds_the_table(played: Played) -> None:
    text = played(trial(1), trial(2, **Q8), gates=(gate(False), gate(True, limit="<= 999")))
    lines = text.text("summary").splitlines()
    assert lines[0] == "### q2 on rk1: 3 passed, 1 FAILED"
    assert lines[4].startswith("| FAILED | q2.rk1.q2_k: gate tpot_ms")
    assert any(line.startswith("| variant |") for line in lines)


def test_seconds_of_a_case_are_those_of_its_trials(played: Played) -> None:
    suite = played(trial(1), trial(2, timing=timing([1]))).junit()
    times = [case.get("time") for case in suite.iter("testcase")]
    assert times[0] == "60.000"
