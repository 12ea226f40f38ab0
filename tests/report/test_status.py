"""The first line of everything that shows a run."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from evaluations_made import made_evaluation
from records_made import BEGAN, planned_run, run, trial
from rich.console import Console

from labctl.errors import Blame
from labctl.records.run import GateRecord, PlannedRecord, PlanRecord, RunEnd, RunRecord
from labctl.records.trial import Failure, TrialRecord, TrialState
from labctl.report.formats import result_text
from labctl.report.page.build import build_report
from labctl.report.page.files import make_report
from labctl.report.page.html import html
from labctl.report.page.language import Language
from labctl.report.page.markdown import markdown
from labctl.report.status import Status, run_status, timing_status
from labctl.report.tables import print_timing_table
from labctl.runs.record.directory import RunDirectory

EN, ZH = Language("en"), Language("zh")
ENDED = BEGAN + timedelta(minutes=9)
CRASH = Failure(
    kind="ProgramFailed",
    blame=Blame.JOB,
    message="llama-cli ended with status 3",
    details="\n".join([*(f"line {n}" for n in range(20)), "::error::<b>out of memory\x1b[2J"]),
)
FAILED: dict[str, Any] = {"state": TrialState.FAILED, "failure": CRASH, "timing": None}
MISSED = GateRecord(
    variant="q2_k", metric="tpot_ms", limit="<= 9", value=10, passed=False, detail="10"
)


def planned(*variants: str, optional: Sequence[int] = ()) -> PlanRecord:
    """A warm-up and two repeats of each variant."""
    return PlanRecord(
        trials=tuple(
            PlannedRecord(
                number=number, variant=variant, model=variant, repeat=repeat, parameters={},
                warm_up_pass=False, optional=number in optional,
            )
            for number, (variant, repeat) in enumerate(
                ((variant, repeat) for variant in variants for repeat in (0, 1, 2)), 1
            )
        ),
        max_seconds=60,
    )  # fmt: skip


def end(state: str = "finished", **changes: Any) -> RunEnd:
    return RunEnd.model_validate({"state": state, "finished": ENDED, **changes})


GOOD = (trial(2, repeat=1), trial(3, repeat=2))
AT = "trials good; ended 2026-11-20 22:39 UTC"
RESUME = f"continue with `labctl resume {run().id}`"
LOST = Failure(kind="DeviceLost", blame=Blame.INFRA, message="rk1 is gone")


@pytest.mark.parametrize(
    ("trials", "ended", "held", "line"),
    [
        (GOOD, end(), False, "passed: 2 of 2 trials good; ended 2026-11-20 22:39 UTC"),
        (GOOD[:1], None, True, "running: 1 of 2 trials good so far; since 2026-11-20 22:30 UTC"),
        (
            (GOOD[0], trial(3, **FAILED, repeat=2)),
            end(),
            False,
            (
                f"failed: 1 of 2 {AT}; job: trial 3, q2_k: llama-cli ended with status 3:"
                r" ::error::<b>out of memory\x1b[2J"
            ),
        ),
        (
            GOOD[:1],
            end("failed", failure=LOST),
            False,
            "failed: 1 of 2 trials good; ended 2026-11-20 22:39 UTC; infra: rk1 is gone",
        ),
        (
            GOOD[:1],
            end("interrupted"),
            False,
            f"interrupted: 1 of 2 trials good; ended 2026-11-20 22:39 UTC; {RESUME}",
        ),
        (
            (),
            None,
            False,
            (
                "interrupted: 0 of 2 trials good; infra: labctl was killed, or its host stopped;"
                f" {RESUME}"
            ),
        ),
        (
            GOOD,
            end(gates=(MISSED,)),
            False,
            f"failed: 2 of 2 {AT}; job: gate missed: q2_k tpot_ms <= 9: 10",
        ),
        (
            (*GOOD, trial(4, state=TrialState.FAILED, failure=LOST)),
            end(gates=(MISSED,)),
            False,
            f"failed: 2 of 2 {AT}; job: gate missed: q2_k tpot_ms <= 9: 10",
        ),
    ],
    ids=[
        *("passed", "running", "trial failed", "link lost", "interrupted", "killed"),
        *("gate missed", "gate missed beside a lost link"),
    ],
)
def test_the_line_says_state_trials_time_and_reason(
    trials: Sequence[TrialRecord], ended: RunEnd | None, held: bool, line: str
) -> None:
    found = timing_status(run(), trials, ended, planned("q2_k"), is_held=held)
    found = replace(found, is_resumable=True)
    assert found.line(EN) == line
    assert found.line(ZH).startswith(ZH.word(found.state))


def test_only_a_run_of_this_lab_is_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = planned_run(tmp_path / "runs", run(variants=("q2_k",)), planned("q2_k"))
    directory.finish(end("interrupted"))
    assert run_status(directory).line(EN).endswith(f"; {RESUME}")
    monkeypatch.setattr(RunDirectory, "is_imported", True)
    assert "resume" not in run_status(directory).line(EN)


def test_an_optional_trial_counts_only_if_it_was_made() -> None:
    plan = planned("q2_k", optional=(3,))
    assert timing_status(run(), GOOD[:1], end(), plan).total == 1
    assert timing_status(run(), GOOD, end(), plan).total == 2


def ended_run(tmp_path: Path, record: RunRecord, ended: RunEnd | None) -> RunDirectory:
    directory = planned_run(tmp_path / "runs", record, planned("q2_k", "q8_0", "q4_0"))
    for one in (trial(2, repeat=1), trial(5, variant="q8_0", slug="q8_0-r1", **FAILED)):
        directory.add(one)
    if ended:
        directory.finish(ended)
    return directory


def texts(directory: RunDirectory) -> dict[str, str]:
    """The run in each medium."""
    report = make_report([directory], EN)
    record, trials, found = directory.run(), directory.trials(), run_status(directory)
    screen = Console(file=StringIO(), width=80, color_system=None)
    print_timing_table(screen, record, trials, status=found)
    assert isinstance(screen.file, StringIO)
    return {
        "terminal": screen.file.getvalue(),
        "md": result_text("md", record, trials, (), directory.path, status=found),
        "page": html(report, EN),
        "page.md": markdown(report, EN),
    }


def test_each_medium_begins_with_the_line_and_tells_why_a_trial_failed(tmp_path: Path) -> None:
    record = run(variants=("q2_k", "q8_0", "q4_0"), trials_planned=9)
    for medium, text in texts(ended_run(tmp_path, record, end())).items():
        told = text.replace("\\", "").replace("&lt;", "<")
        first = "failed: 1 of 6 trials good; ended 2026-11-20 22:39 UTC; job: trial 5, q8_0"
        assert told.index(first) < told.index("2026-11-20 22:39") + 99, medium
        assert told.index("out of memory") > told.index(first), medium
        assert "line 19" in told, medium
        assert "line 3" not in told, medium
        assert "\x1b" not in text, medium
        assert medium == "terminal" or "<b>" not in text.replace("\\<", ""), medium
        is_page = medium == "page"
        assert is_page or not any(line.lstrip().startswith("::") for line in text.splitlines())
        assert "0/2" in told, medium  # of the variant that never began
        assert "not begun" in told, medium
        assert "1/2" in told, medium


def test_the_report_of_a_running_run_says_that_it_runs(tmp_path: Path) -> None:
    directory = ended_run(tmp_path, run(variants=("q2_k", "q8_0", "q4_0")), None)
    with directory.held():
        shown = texts(directory)
    for medium, text in shown.items():
        assert "running: 1 of 6 trials good so far; since 2026-11-20 22:30 UTC" in text, medium
        assert "not begun" in text, medium


def test_a_run_under_way_has_no_result_yet(tmp_path: Path) -> None:
    directory = planned_run(tmp_path / "runs", run(variants=("q2_k",)), planned("q2_k"))
    with directory.held():
        assert build_report([directory], EN).answers == ["This run has no result yet."]


def test_many_runs_begin_with_one_line_and_the_bad_ones(tmp_path: Path) -> None:
    runs = []
    for number in range(1, 6):
        record = run(f"2026112{number}T223000Z-q2-abcdef", variants=("q2_k",))
        runs.append(planned_run(tmp_path / "runs", record, planned("q2_k")))
        for one in GOOD[: 1 if number == 2 else 2]:
            runs[-1].add(one)
        runs[-1].finish(end(state="interrupted" if number == 2 else "finished"))
    found = build_report(runs, EN).status
    assert [one.run for one in found] == ["5 runs", "20261122T223000Z-q2-abcdef"]
    line = f"interrupted: 9 of 10 {AT}; interrupted: 1, passed: 4"
    assert found[0].line(EN) == line
    assert f"5 runs **{line}**" in markdown(build_report(runs, EN), EN)
    (alone,) = build_report([runs[0], *runs[2:]], EN).status
    assert alone.line(EN) == f"passed: 8 of 8 {AT}"


def test_the_answer_of_a_run_that_was_cut_says_how_much_it_rests_on(tmp_path: Path) -> None:
    directory = planned_run(tmp_path / "runs", run(variants=("q2_k",)), planned("q2_k"))
    directory.add(GOOD[0])
    directory.finish(end("interrupted"))
    answers = build_report([directory], EN).answers
    assert answers[-1] == "Only 1 of the 2 planned trials are in these figures."


def test_a_run_without_any_trial_has_a_report(tmp_path: Path) -> None:
    directory = planned_run(tmp_path / "runs", run(variants=("q2_k",)), planned("q2_k"))
    assert "interrupted: 0 of 2 trials good; infra: labctl was killed" in texts(directory)["page"]


def test_the_program_is_the_one_that_was_measured(tmp_path: Path) -> None:
    artifacts = [
        {"product": product, "version": version, "target": "t", "key": "k", "toolchain": "z",
         "tools": {}}
        for product, version in (("agent", "current"), ("llama.cpp", "b9000"))
    ]  # fmt: skip
    record = RunRecord.model_validate({**run().model_dump(), "artifacts": artifacts})
    report = make_report([ended_run(tmp_path, record, end())], EN)
    assert report.about["Program"] == "llama.cpp b9000"


def test_generations_are_planned_as_they_were_asked(tmp_path: Path) -> None:
    """If answers cannot be cut, each limit is asked for: not "240 of 80 answers"."""
    made = made_evaluation(tmp_path, right={"a/p": (1, 1, 1, 1)})
    assert made.end
    asked = made.end.model_copy(update={"answered": 240, "planned": 240})
    for name, record in (("evaluation.json", made.record), ("end.json", asked)):
        (made.path / name).write_text(record.model_dump_json())
    found: Status = run_status(RunDirectory(made.path))
    assert "240 of 240 answers" in found.line(EN)
