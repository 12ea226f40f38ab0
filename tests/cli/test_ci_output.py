"""Files for a CI server, beside the result of a run that ended, failed, or never began."""

import re
import shlex
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
import yaml
from commands import parse
from records_made import BEGAN, plan, planned_run, run, trial

from labctl.cli.error_output import show_error
from labctl.cli.root import run_cli
from labctl.errors import ProgramFailed
from labctl.records.run import GateRecord, RunEnd
from labctl.records.trial import Failure

ROOT = Path(__file__).parents[2]
OPEN = GateRecord(
    variant="q2_k", metric="tpot_ms", limit="<= 1", value=None, passed=None, detail="can't tell"
)
RECIPE = """\
name: r
target: rk3568
engine:
  name: command
  program: {file: tool}
  arguments: []
  tokens: {stream: stdout, each: line, count: tokens}
models: {m: {file: m.bin}}
parameters: {tokens: 4}
max_time: 1m
"""


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A lab with one run, and a board that nobody reaches; its folder is the working directory."""
    (tmp_path / "devices.yaml").write_text(
        'boards: {b: {target: rk3568, transport: {kind: hdc, link: tcp, address: "127.0.0.1:1"}}}'
    )
    directory = planned_run(tmp_path / "runs", run(variants=("q2_k",)), plan())
    directory.add(trial(1))
    directory.finish(RunEnd(state="finished", gates=(OPEN,), finished=BEGAN))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def suite(path: Path) -> ET.Element:
    (found,) = ET.parse(path).getroot()
    return found


def test_no_word_of_a_program_is_a_workflow_command(
    lab: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = "killed\n  ::error::owned"
    failure = Failure.of(ProgramFailed(said))
    directory = planned_run(lab / "runs", run("20261125T223000Z-q2-00000e"), plan())
    directory.add(
        trial(1, variant=":warning:\n::add-mask::x", timing=None, failure=failure, state="failed")
    )
    gates = (OPEN.model_copy(update={"detail": said}),)
    directory.finish(RunEnd(state="finished", gates=gates, finished=BEGAN))
    for words in (
        ("--write", "github=-"),
        ("--wide",),
        ("--form", "experiment"),
        ("--format", "md"),
    ):
        assert run_cli(["report", "latest", *words]) == 0
        printed = "".join(capsys.readouterr())
        assert ":warning:" in printed or "experiment" in words
        assert not re.search(r"^\s*::(error::owned|add-mask)", printed, re.MULTILINE)
    show_error(ProgramFailed(said, hint=said))
    assert not re.search(r"^\s*::", "".join(capsys.readouterr()), re.MULTILINE)


def test_a_report_writes_each_format_that_is_asked_for(
    lab: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--junit", "j.xml", "--write", "summary=s.md", "--write", "github=-", "--format", "md")
    assert run_cli(["report", *words]) == 0
    assert suite(lab / "j.xml").get("skipped") == "1"
    assert (lab / "s.md").read_text().startswith("### q2 on rk1: 1 passed, 1 not judged")
    printed = capsys.readouterr().out
    assert printed.startswith("::warning title=")
    assert "**q2** on rk1" in printed


def test_strict_is_in_each_of_them(lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["report", "--strict", "--junit", "j.xml", "--format", "github"]) == 0
    assert suite(lab / "j.xml").get("failures") == "1"
    assert capsys.readouterr().out.startswith("::error title=")


def test_a_run_that_never_began_is_an_error_of_each_variant(lab: Path) -> None:
    (lab / "r.yaml").write_text(RECIPE)
    (lab / "tool").write_text("#!/bin/sh\n")
    (lab / "m.bin").write_bytes(b"x")
    assert run_cli(["run", "r.yaml", "--junit", "j.xml", "--write", "csv=r.csv"]) == 3
    found = suite(lab / "j.xml")
    assert (found.get("tests"), found.get("errors")) == ("1", "1")
    (case,) = found.iter("testcase")
    assert case.get("classname") == "r.b.m"
    assert "127.0.0.1:1" in case[0].get("message", "")
    assert not (lab / "r.csv").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--write junit", "'junit' is not FORMAT=FILE with a format of table, md,"),
        ("--write jnuit=a.xml", "'jnuit=a.xml' is not FORMAT=FILE"),
        ("--write junit=", "is not FORMAT=FILE"),
        ("--junit devices.yaml/j.xml", "cannot write devices.yaml/j.xml"),
        ("--write junit=devices.yaml/j.xml", "cannot write devices.yaml/j.xml"),
    ],
)
def test_a_file_that_cannot_be_is_found_before_the_run(
    lab: Path, words: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_cli(["run", "q8_latency", *words.split()]) == 2
    assert message in capsys.readouterr().err


def test_the_commands_of_the_ci_page_are_understood(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    text = (ROOT / "docs" / "ci.md").read_text()
    github, gitlab = map(yaml.safe_load, re.findall(r"```yaml\n(.*?)```", text, re.DOTALL))
    lines = re.findall(r"^    (labctl .*)$", text, re.MULTILINE)
    lines += [step["run"] for step in github["jobs"]["measure"]["steps"] if "run" in step]
    lines += gitlab["speed"]["script"]
    assert len(lines) == 7
    for line in lines:
        program, *words = shlex.split(line.replace("$GITHUB_STEP_SUMMARY", "s.md"))
        assert program == "labctl"
        parse(words)
