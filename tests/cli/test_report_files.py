"""``labctl report -o FILE``: the name of the file says what is written."""

import json
from pathlib import Path

import pytest
from measured_runs import Made, measured
from stored_runs import stored

from labctl.cli.root import run_cli


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A lab with two runs, whose folder is the working directory."""
    (tmp_path / "devices.yaml").write_text("boards: {}\n")
    stored(tmp_path / "runs", measured([Made("a"), Made("b", 200.0)], tokens=8))
    stored(tmp_path / "runs", measured([Made("a")], tokens=8, run_id="20261121T223000Z-q2-012345"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def report(*words: str) -> int:
    return run_cli(["report", *words])


@pytest.mark.parametrize(
    ("name", "begin"),
    [
        ("r.html", "<!doctype html>\n<html lang="),
        ("r.HTM", "<!doctype html>\n<html lang="),
        ("r.md", "# q2 on rk1\n"),
        ("r.csv", "run,recipe,"),
        ("r.json", "{"),
        ("r.jsonl", "{"),
        ("r.xml", "<?xml"),
        ("r.txt", "passed: 3 of 3 trials good; ended 2026-11-20 22:33 UTC\nq2 on rk1"),
        ("r", "passed: 3 of 3"),
        ("r-token-times.svg", "<svg"),
    ],
)
def test_the_end_of_the_name_says_what_is_written(
    lab: Path, name: str, begin: str, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = name.replace("-token-times", "")
    (lab / asked).write_text("what was there before")
    assert report("-o", asked) == 0
    assert (lab / name).read_text().startswith(begin)
    assert f"wrote {name}" in capsys.readouterr().err


def test_a_format_that_is_named_wins(lab: Path) -> None:
    assert report("--format", "json", "-o", "r.html") == 0
    assert json.loads((lab / "r.html").read_text())["run"]["recipe"] == "q2"


def test_an_unknown_end_is_refused_and_nothing_is_written(
    lab: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert report("-o", "r.docx") == 2
    told = capsys.readouterr().err
    assert "nothing can be written as r.docx: unknown file type .docx" in told
    assert ".html" in told
    assert not (lab / "r.docx").exists()


def test_a_run_in_chinese(lab: Path) -> None:
    assert report("abcdef", "-o", "r.html", "--language", "zh") == 0
    assert '<html lang="zh">' in (lab / "r.html").read_text()


def test_several_runs_are_one_page(lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert report("abcdef", "012345", "-o", "r.md") == 0
    text = (lab / "r.md").read_text()
    assert "### Run 20261120T223000Z-q2-abcdef" in text
    assert "### Run 20261121T223000Z-q2-012345" in text
    assert "wrote r.md" in capsys.readouterr().err


def test_several_runs_are_several_tables(lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert report("abcdef", "012345") == 0
    assert capsys.readouterr().out.count("q2 on rk1") == 2


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--language", "zh"], "--language is for reports"),
        (["--figure", "ecdf", "-o", "r.html"], "--figure is for pictures"),
        (["--figure", "nonsense", "-o", "r.svg"], "no figure 'nonsense'"),
        (["abcdef", "012345", "-o", "r.csv"], "several runs"),
        (["--wide", "-o", "r.html"], "--wide is for tables"),
        (["--form", "experiment", "-o", "r.html"], "--form experiment is a text"),
        (["-o", "r.html", "nothing"], "no run 'nothing'"),
    ],
)
def test_what_does_not_go_together_is_refused(
    lab: Path, words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert report(*words) == 2
    assert told in capsys.readouterr().err
    assert not list(lab.glob("r.*"))


def test_one_figure_is_one_file(lab: Path) -> None:
    assert report("abcdef", "--figure", "ecdf", "-o", "f.svg") == 0
    assert [path.name for path in lab.glob("*.svg")] == ["f.svg"]


def test_a_pdf_is_refused_before_a_run_where_no_browser_is(
    lab: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert run_cli(["run", "no-recipe", "-o", "r.pdf"]) == 2
    told = capsys.readouterr().err
    assert "no Chromium or Chrome on this host" in told
    assert "no-recipe" not in told
