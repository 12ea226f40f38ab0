"""A figure is declared once: a made-up one is in everything that shows, judges or keeps figures."""

import csv
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from labctl.package_data import DOCS
from labctl.report.figure_list import figure_list

HERE = Path(__file__)
#: Declares the figure in a process of its own, as a line of labctl/figures/trials.py would.
DECLARED = """
import sys
from labctl.figures import trials
from labctl.figures.figure import Figure, Place, estimate

trials.FIGURES += (
    Figure(
        "made_up_ns", "ns", "Made up", lambda trial: trial.timing and trial.timing.sampling_ns,
        estimate, Place.PHASES, may_gate=True, better="lower", is_compared=True, listed="wide",
    ),
)
"""
RECORDED = """
from pathlib import Path
from records_made import plan, planned_run, run, timing, trial

for name, ms in (("20261120T223000Z-q2-abcdef", 7), ("20261120T233000Z-q2-abcde0", 9)):
    directory = planned_run(Path("runs"), run(name, variants=("q2_k",)), plan())
    for n in (1, 2, 3):
        timed = timing([100, 110], sampling_ns=ms * 1_000_000 + n)
        directory.add(trial(n, repeat=n, timing=timed))
"""
COMMAND = "from labctl.cli.root import run_cli\nsys.exit(run_cli(sys.argv[1:]))"
JUDGED = """
from labctl.config.recipe import Gate
from labctl.records.board import Execution
from labctl.results.gates import judge
from labctl.results.summary import summarise
from records_made import timing, trial

rows = summarise([trial(1, timing=timing([100], sampling_ns=7_000_000))])
print(*judge([Gate(metric="made_up_ms", max=8)], rows, {"q2_k": {}}, Execution.BOARD))
"""
LISTED = "from labctl.report.figure_list import figure_list\nprint(figure_list())"


def said(lab: Path, code: str, *words: str) -> str:
    path = f"import sys; sys.path.insert(0, {str(HERE.parents[1] / 'support')!r})\n"
    command = [sys.executable, "-c", path + code, *words]
    done = subprocess.run(command, cwd=lab, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("lab")
    (folder / "devices.yaml").write_text("lab: x\nboards: {}\n")
    said(folder, RECORDED)
    # The index as labctl without the figure made it.
    said(folder, f"import sys\n{COMMAND}", "runs")
    return folder


def test_it_is_in_every_output(lab: Path) -> None:
    def labctl(*words: str) -> str:
        return said(lab, DECLARED + COMMAND, *words)

    # the index is made again by itself
    listed = json.loads(labctl("runs", "--json"))
    assert [one["made_up_low_ns"] for one in listed] == [9_000_002, 7_000_002]
    assert "made up" in labctl("runs", "--wide").splitlines()[0]
    # the summary, in JSON, CSV and tables
    (row,) = json.loads(labctl("report", "abcdef", "--json"))["rows"]
    assert row["made_up_ns"] == 7_000_002
    (row,) = csv.DictReader(io.StringIO(labctl("report", "abcdef", "--format", "csv")))
    assert row["made_up_ns"] == "7000002"
    wide = labctl("report", "abcdef", "--wide")
    assert "made up" in wide
    assert "7.00 ms" in wide
    assert "| made up |" in labctl("report", "abcdef", "--format", "md")
    # pages, English where a language lacks the title
    for language in ("en", "zh"):
        page = f"{language}.html"
        labctl("report", "abcdef", "--language", language, "-o", page)
        assert "Made up" in (lab / page).read_text()
    # what judges it
    compared = json.loads(labctl("compare", "abcdef", "abcde0", "--figure", "made_up_ms", "--json"))
    assert compared["rows"][0]["figure"] == "made_up_ms"
    assert round(compared["rows"][0]["left_value"]) == 7_000_002
    assert "passed=True" in said(lab, DECLARED + JUDGED)
    # exports
    for form in ("csv", "jsonl", "parquet"):
        labctl("export", "abcdef", "-o", f"out.{form}")
        assert b"made_up_ns" in (lab / f"out.{form}").read_bytes()
    metrics = labctl("report", "abcdef", "--format", "gitlab-metrics")
    assert "# UNIT labctl_made_up_seconds seconds" in metrics
    assert "made_up_low_ns" in labctl("show", "abcdef", "--json")
    # what tells which figures there are
    assert '"made_up_ms"' in labctl("schema", "recipe")
    assert "`made_up_ns`" in said(lab, DECLARED + LISTED)


def test_the_page_of_figures_is_that_of_their_declarations() -> None:
    assert (DOCS / "figures.md").read_text() == figure_list(), "run scripts/reference"
