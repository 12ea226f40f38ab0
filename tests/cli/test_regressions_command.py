"""``labctl regressions``: what a person and a CI server see of a lab's nights."""

import json
import re
import shutil
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from cli_calls import Labctl
from nightly_runs import Lab
from records_made import BEGAN

from labctl.cli.root import run_cli
from labctl.records.run import Origin
from labctl.records.trial import Check, TrialState
from labctl.runs.record.directory import RunDirectory


@pytest.fixture
def nights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    (tmp_path / "devices.yaml").write_text("boards: {}\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("os.fsync", lambda _: None)
    return Lab(tmp_path / "runs")


@pytest.fixture
def labctl(capsys: pytest.CaptureFixture[str]) -> Labctl:
    def call(*words: str, status: int = 0) -> tuple[str, str]:
        assert run_cli(["regressions", *words]) == status
        printed = capsys.readouterr()
        return printed.out, printed.err

    return call


def outcome(path: Path) -> tuple[str, str]:
    ((case,),) = ET.parse(path).getroot()
    return case[0].tag, case[0].get("message", "")


def test_from_a_suspicion_to_a_confirmed_regression(nights: Lab, labctl: Labctl) -> None:
    nights.nights(range(14), 100)
    nights.nights(range(14, 24), 115)
    text, _ = labctl("--junit", "j.xml")
    assert "q2 q2_k on rk1: 24 nights, 2026-11-21 to 2026-12-14, per token" in text
    assert re.search(r"suspected: takes 1\.1[45]\d times as long since 2026-12-05", text)
    assert "commits 013ccccccc..014ccccccc" in text
    assert "labctl run q2 --board rk1 --set engine.version=c013" in text
    assert "▲" in text
    assert re.search(r"^  below \d[.\d]*% nothing can be told here$", text, re.MULTILINE)
    assert re.search(r"read each morning, about \d+% of those with independent noise", text)
    assert outcome(Path("j.xml"))[0] == "skipped"
    labctl("--strict", "--junit", "j.xml", status=1)
    assert outcome(Path("j.xml"))[0] == "failure"

    for _ in range(2):
        nights.night(13, 100)
        nights.night(14, 115)
    text, _ = labctl("--write", "junit=j.xml", status=1)
    assert re.search(r"CONFIRMED: takes 1\.1[45]\d times as long", text)
    assert "measured alternately" in text
    tag, message = outcome(Path("j.xml"))
    assert tag == "failure"
    assert re.match(
        r"takes 1\.1[45]\d times as long since 013ccccccc\.\.014ccccccc: confirmed", message
    )
    assert "no step" in labctl("--since", "2026-12-10")[0]
    document = json.loads(labctl("--json", status=1)[0])
    ((change,),) = (one["changes"] for one in document["series"])
    assert (change["standing"], change["slower"]) == ("confirmed", True)
    assert change["first_slow"]["source"] == "014ccccccc"
    assert change["confirmed_interval"]["low"] > 1
    assert document["estimate"] == "median"
    assert len(document["series"][0]["nights"]) == 24
    assert 0.005 < document["series"][0]["smallest_step"] < 0.05
    assert set(document["false_steps"]) == {"read_once", "read_each_morning"}


def test_a_quiet_or_a_short_series_is_a_line(nights: Lab, labctl: Labctl) -> None:
    nights.nights(range(12), 100)
    nights.nights(range(4), 100, board="rk2")
    lines = labctl("--junit", "j.xml")[0].splitlines()
    assert lines[0].startswith("q2 q2_k on rk1: 12 nights, ")
    assert lines[0].endswith("per token, no step")
    assert lines[2].endswith("% nothing can be told here")
    assert lines[3].endswith("too short: 10 are needed")
    short = json.loads(labctl("--json")[0])["series"][1]
    assert short["smallest_step"] is None
    root = ET.parse("j.xml").getroot()[0]
    assert (root.get("tests"), root.get("skipped"), root.get("failures")) == ("2", "1", "0")


def test_where_nights_wander_too_much_it_says_so_and_is_not_green(
    nights: Lab, labctl: Labctl
) -> None:
    level = 100.0
    for commit, by in enumerate([1.6, 1.5, 0.5, 0.7, 1.9, 1.4, 0.6, 0.4, 0.6, 1.7, 1.8, 0.9, 0.5]):
        level *= by
        nights.night(commit, level)
    assert "nothing can be told here" in labctl("--junit", "j.xml")[0]
    tag, message = outcome(Path("j.xml"))
    assert (tag, message.split("; ")[0]) == ("skipped", "13 nights")
    labctl("--strict", status=1)
    assert json.loads(labctl("--json")[0])["series"][0]["smallest_step"] is None


def test_series_of_one_variant_are_told_apart_by_what_they_differ_in(
    nights: Lab, labctl: Labctl
) -> None:
    nights.nights(range(12), 100)
    nights.nights(range(12), 100, spec="7" * 64)
    text = labctl("--junit", "j.xml")[0]
    for spec in "57":
        assert f"q2 q2_k on rk1 (build_spec: {spec * 12}): 12 nights" in text
    names = [case.get("name") for case in ET.parse("j.xml").getroot()[0]]
    assert names == [f"regression tpot_ms (build_spec: {spec * 12})" for spec in "57"]


def test_a_run_of_another_lab_is_no_night(nights: Lab, labctl: Labctl) -> None:
    nights.nights(range(3), 100)
    run = nights.night(4, 300)
    origin = Origin(kind="bundle", file="x.labctl.zip", sha256="0" * 64, imported=BEGAN)
    RunDirectory(Path("runs") / run).mark_imported(origin)
    assert "q2 q2_k on rk1: 3 nights" in labctl()[0]


def test_what_matters_is_what_the_recipe_says(nights: Lab, labctl: Labctl) -> None:
    nights.nights(range(14), 100)
    nights.nights(range(14, 24), 115, comparison={"practical": "30%"})
    text, _ = labctl()
    assert "no step" in text
    assert "below 30% nothing can be told here" in text
    assert json.loads(labctl("--json")[0])["series"][0]["smallest_step"] == 0.3


def test_without_runs_it_says_so(nights: Lab, labctl: Labctl) -> None:
    nights.nights(range(1), 100)
    assert labctl("--model", "q9") == ("", "no such runs\n")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--figure", "speed"), "'speed' is not one of 'end_to_end_ms'"),
        (("--write", "csv=a.csv"), "--write csv: this command writes junit, summary, github"),
    ],
)
def test_what_cannot_be_is_wrong_use(
    nights: Lab, labctl: Labctl, words: tuple[str, ...], message: str
) -> None:
    nights.nights(range(1), 100)
    assert message in labctl(*words, status=2)[1]


@pytest.mark.parametrize(
    "changes",
    [
        {"checks": (Check(name="drift", ok=False, detail="fell"),)},
        {"state": TrialState.FAILED, "timing": None},
    ],
    ids=["contradicted", "failed"],
)
def test_newer_nights_without_a_sound_result_are_not_green(
    nights: Lab, labctl: Labctl, changes: dict[str, Any]
) -> None:
    """The newest sources were never judged."""
    nights.nights(range(12), 100)
    text, _ = labctl("--junit", "j.xml")
    assert "without a sound result" not in text
    nights.nights(range(12, 24), 120, **changes)
    text, _ = labctl("--junit", "j.xml")
    assert "12 runs since then without a sound result, the last is 2026" in text
    assert outcome(Path("j.xml"))[0] == "skipped"
    labctl("--strict", "--junit", "j.xml", status=1)
    tag, message = outcome(Path("j.xml"))
    assert (tag, message.split(",")[0]) == ("failure", "12 runs since then without a sound result")
    nights.nights(range(24, 26), 100)
    assert "without a sound result" not in labctl("--strict")[0]


def test_a_misspelt_name_is_not_green(nights: Lab, labctl: Labctl) -> None:
    nights.nights(range(12), 100)
    _, message = labctl("--recipe", "q3", "--junit", "j.xml", status=2)
    assert "no recipe 'q3' in any run; known: q2" in message
    _, message = labctl("--board", "rk9", status=2)
    assert "no board 'rk9' in any run (did you mean 'rk1'?)" in message
    assert not Path("j.xml").exists()


def test_a_variant_without_any_sound_night_is_not_green(nights: Lab, labctl: Labctl) -> None:
    for number in range(12):
        nights.night(number, 100, checks=(Check(name="drift", ok=False, detail="late"),))
    text, _ = labctl("--junit", "j.xml")
    assert "q2 q2_k on rk1: no sound result in 12 runs" in text
    assert outcome(Path("j.xml"))[0] == "skipped"
    labctl("--strict", "--junit", "j.xml", status=1)
    assert outcome(Path("j.xml"))[0] == "failure"
    document = json.loads(labctl("--json")[0])
    assert [len(one["runs"]) for one in document["unmeasured"]] == [12]


def test_a_rate_has_its_unit_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded = Path(__file__).parent.parent / "fixtures" / "recorded_lab"
    shutil.copytree(recorded, lab := tmp_path / "lab")
    (lab / "devices.yaml").write_text("boards: {}\n")
    monkeypatch.setenv("LABCTL_LAB", str(lab))
    run_cli(["regressions", "--recipe", "command-json-lines"])
    assert ": 1 night, 3.84 tokens/s, too short" in capsys.readouterr().out
