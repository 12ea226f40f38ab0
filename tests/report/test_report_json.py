"""The JSON of recorded runs, byte for byte: programs of others read its keys and numbers."""

import re
import shutil
from pathlib import Path

import pytest

from labctl.cli.root import run_cli

FIXTURES = Path(__file__).parents[1] / "fixtures"
LAB = FIXTURES / "recorded_lab"
REPORTS = sorted((FIXTURES / "report_json").iterdir())


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    """A copy of the lab, since an index is made beside its runs."""
    copy = Path(shutil.copytree(LAB, tmp_path / "lab"))
    (copy / "devices.yaml").write_text("lab: old\nboards: {}\n")
    return copy


def test_every_recorded_run_has_its_json() -> None:
    assert [path.stem for path in REPORTS] == sorted(path.name for path in LAB.glob("runs/2*"))


@pytest.mark.parametrize("expected", REPORTS, ids=lambda path: path.stem)
def test_the_json_of_a_recorded_run_stays(
    expected: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_cli(["--lab", str(LAB), "report", str(LAB / "runs" / expected.stem), "--json"]) == 0
    assert capsys.readouterr().out.replace(f"{LAB}/", "LAB/") == expected.read_text()


@pytest.mark.parametrize("name", ["ebbbe8", "e36eda", "16fc2f.2"])
def test_the_json_of_the_facts_of_a_run_or_trial_stays(
    name: str, lab: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = (FIXTURES / "show_json" / f"{name}.json").read_text()
    assert run_cli(["--lab", str(lab), "show", name.replace(".", "/"), "--json"]) == 0
    assert capsys.readouterr().out.replace(f"{lab}/", "LAB/") == expected


def test_the_json_of_the_list_of_runs_stays(lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["--lab", str(lab), "runs", "--json"]) == 0
    # What a run takes on the disk is the file system's.
    told = re.sub(r'"size_bytes": \d+', '"size_bytes": 0', capsys.readouterr().out)
    assert told == (FIXTURES / "runs_json" / "recorded_lab.json").read_text()
