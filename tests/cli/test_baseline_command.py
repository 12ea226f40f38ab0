"""``labctl baseline`` and ``labctl state``: what a person types and sees."""

import json
from pathlib import Path

import pytest
from cli_calls import Labctl
from records_made import BEGAN, plan, planned_run, run, trial

from labctl.cli.root import run_cli
from labctl.records.board import BoardFacts, Execution
from labctl.records.run import RunEnd
from labctl.records.trial import TrialState
from labctl.runs.record.directory import RunDirectory

FIRST, SECOND, THIRD = (f"2026112{n}T223000Z-q2-00000{n}" for n in (1, 2, 3))
EMULATED = BoardFacts(execution=Execution.EMULATED, machine="aarch64", kernel="5.10", boot_id="b1")


@pytest.fixture
def lab(empty_lab: Path) -> Path:
    for run_id, changes in ((FIRST, {}), (SECOND, {}), (THIRD, {"facts": EMULATED})):
        made = planned_run(empty_lab / "runs", run(run_id, **changes), plan())
        made.add(trial(1))
        made.finish(RunEnd(state="finished", finished=BEGAN))
    return empty_lab


def test_a_baseline_is_set_listed_and_removed(labctl: Labctl) -> None:
    assert "no baselines" in labctl("baseline", "list")[1]
    out = labctl("baseline", "set", "cold", "000001", "000002", "--note", "new\nfan")[0]
    assert out.startswith(f"cold: {FIRST} {SECOND} (")
    assert out.endswith(")  new\\x0afan\n")
    (found,) = json.loads(labctl("baseline", "list", "--json")[0])
    assert (found["name"], found["runs"], found["variant"]) == ("cold", [FIRST, SECOND], None)
    assert list(found) == ["name", "runs", "variant", "note", "set_by", "set_at", "damaged"]
    assert found["set_at"].endswith("+00:00")
    out, err = labctl("baseline", "set", "cold", "000002", "--variant", "q2_k", "--json")
    assert f"was: cold: {FIRST} {SECOND}" in err
    assert json.loads(out)["variant"] == "q2_k"
    assert labctl("baseline", "list")[0].startswith(f"cold: {SECOND} variant q2_k (")
    labctl("baseline", "remove", "cold")
    assert labctl("baseline", "list")[0] == ""
    assert "no baseline 'cold'" in labctl("baseline", "remove", "cold", status=2)[1]


def test_a_baseline_is_reported_shown_and_exported_by_its_name(labctl: Labctl) -> None:
    labctl("baseline", "set", "cold", "000001", "000002")
    labctl("baseline", "set", "warm", "000001")
    assert labctl("report", "cold")[0].count("q2 on rk1") == 2
    assert FIRST in labctl("show", "warm")[0]
    rows = labctl("export", "cold", "latest", "000001", "--format", "jsonl")[0].splitlines()
    assert [json.loads(row)["run"] for row in rows] == [FIRST, SECOND, THIRD]
    told = labctl("show", "cold", status=2)[1]
    assert "baseline cold has 2 runs" in told
    assert SECOND in told
    told = labctl("report", "hot", status=2)[1]
    assert "no run 'hot'" in told
    assert "baselines: cold, warm" in told


def test_a_run_that_is_no_basis_is_refused(lab: Path, labctl: Labctl) -> None:
    def refused(*words: str) -> str:
        return labctl("baseline", "set", "x", *words, status=2)[1]

    assert "cannot mix" in refused("000001", "000003")
    assert "did you mean 'q2_k'" in refused("000001", "--variant", "q2k")
    assert "no run 'nothing'" in refused("nothing")
    failed = planned_run(lab / "runs", run("20261124T223000Z-q2-000004"), plan())
    failed.add(trial(1, state=TrialState.FAILED, timing=None))
    assert "has no good trial" in refused("000004")
    with RunDirectory(lab / "runs" / FIRST).held():
        assert "is in progress" in refused("000001")
    assert labctl("baseline", "list")[0] == ""
    labctl("baseline", "set", "emulated", "000003")


def test_a_run_that_a_baseline_needs_is_not_removed(lab: Path, labctl: Labctl) -> None:
    labctl("baseline", "set", "cold", "000001")
    err = labctl("runs", "remove", "000001", "000002", "--yes", status=2)[1]
    assert f"baseline cold needs {FIRST}" in err
    assert (lab / "runs" / SECOND).is_dir()
    labctl("baseline", "set", "cold", "000002")
    labctl("runs", "remove", "000001", "--yes")
    assert not (lab / "runs" / FIRST).exists()


def test_runs_of_another_lab_are_protected_there_and_no_baseline_here(
    lab: Path,
    labctl: Labctl,
    tmp_path_factory: pytest.TempPathFactory,
    capsys: pytest.CaptureFixture[str],
) -> None:
    other = tmp_path_factory.mktemp("other")
    (other / "devices.yaml").write_text("boards: {}\n")
    labctl("baseline", "set", "cold", "000001")
    run = str(lab / "runs" / FIRST)
    assert run_cli(["--lab", str(other), "runs", "remove", run, "--yes"]) == 2
    assert f"baseline cold needs {FIRST}" in capsys.readouterr().err
    assert run_cli(["--lab", str(other), "baseline", "set", "x", run]) == 2
    assert f"run {FIRST} does not belong to the lab in {other}" in capsys.readouterr().err


def test_a_baseline_whose_run_is_gone_is_named(lab: Path, labctl: Labctl) -> None:
    labctl("baseline", "set", "cold", "000001", "000002")
    (lab / "runs" / FIRST).rename(lab / "moved")
    err = labctl("baseline", "list")[1]
    assert err == f"baseline cold: no longer in this lab: {FIRST}\n"


def test_the_help_of_the_state_names_all_that_it_holds(labctl: Labctl) -> None:
    for words in (("state", "--help"), ("--help",)):
        shown = " ".join(labctl(*words)[0].split())
        assert "state: baselines, leases, queue, health, tokens" in shown


def test_the_state_survives_by_its_backup(lab: Path, labctl: Labctl) -> None:
    assert "nothing to back up" in labctl("state", "backup", status=2)[1]
    labctl("baseline", "set", "cold", "000001")
    copy = labctl("state", "backup")[0].strip()
    assert Path(copy).parent == lab / "backups"
    (lab / "labctl.sqlite").write_bytes(b"damaged" * 1000)
    err = labctl("baseline", "list", status=3)[1]
    assert "move it away, then `labctl state restore FILE`" in err
    assert "confirm" in labctl("state", "restore", copy, status=2)[1]
    (lab / "labctl.sqlite").unlink()
    labctl("state", "restore", copy, "--yes")
    assert labctl("baseline", "list")[0].startswith("cold: ")


def test_a_baseline_is_meant_before_a_part_of_an_id_everywhere(lab: Path, labctl: Labctl) -> None:
    """A month's name is also the end of some run's random id, sooner or later."""
    made = planned_run(lab / "runs", run("20261125T223000Z-q2-000dec"), plan())
    made.add(trial(1))
    made.finish(RunEnd(state="finished", finished=BEGAN))
    labctl("baseline", "set", "dec", "000001")
    assert FIRST in labctl("report", "dec")[0]
    assert FIRST in labctl("show", "dec")[0]
    assert "000002:q2_k compared with dec:q2_k" in labctl("compare", "dec", "000002")[0]
    assert "000dec" in labctl("show", "20261125T223000Z-q2-000dec")[0]
