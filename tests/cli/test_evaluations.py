"""Evaluations by ``labctl run``, and what the other commands make of its runs."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from evaluations import boxed, number_of, recipe_text, sums_lab
from scripted_answers import Asked
from scripted_endpoint import scripted_endpoint

from labctl.cli.root import run_cli

Capture = pytest.CaptureFixture[str]


def half_right(asked: Asked) -> str:
    n = number_of(asked)
    return boxed(2 * n if n % 2 else 0)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A lab with one evaluation of eight questions, half of them answered rightly."""
    root = sums_lab(tmp_path_factory.mktemp("labs") / "lab", 8).root
    (root / "recipes").mkdir()
    with scripted_endpoint(half_right) as server:
        text = recipe_text({"m": [server.address]}, prompts={"p": {"layout": "plain"}})
        (root / "recipes" / "sums.yaml").write_text(text)
        page = str(root / "sums.html")
        assert run_cli(["--lab", str(root), "run", "sums", "-o", page]) == 0
        yield root


def told(lab: Path, capsys: Capture, *words: str, status: int = 0) -> str:
    capsys.readouterr()
    assert run_cli(["--lab", str(lab), *words]) == status
    output = capsys.readouterr()
    return output.out if status == 0 else output.err


def test_the_report_has_a_row_for_each_accuracy(lab: Path, capsys: Capture) -> None:
    text = told(lab, capsys, "report", "latest")
    assert "sums: 8 questions of sums" in text
    (row,) = [line.split() for line in text.splitlines() if line.startswith("m/p")]
    assert row[:5] == ["m/p", "unlimited", "boxed", "4/8", "50.0%"]
    assert "as declared" in text
    found = json.loads(told(lab, capsys, "report", "latest", "--json"))
    (figures,) = found["rows"]
    assert (figures["right"], figures["answers"], figures["accuracy"]) == (4, 8, 0.5)


def test_run_writes_the_report_that_it_is_asked_for(lab: Path, capsys: Capture) -> None:
    told(lab, capsys, "report", "latest", "-o", str(lab / "again.html"))
    assert (lab / "sums.html").read_text() == (lab / "again.html").read_text()


def test_the_list_of_runs_marks_it(lab: Path, capsys: Capture) -> None:
    text = told(lab, capsys, "runs", "--kind", "evaluation")
    assert "8/8" in text
    assert "50.0%" in text
    assert "EVALUATION" in text
    assert told(lab, capsys, "runs", "--kind", "timing") == ""
    (lab / "runs" / "index.sqlite").unlink()
    assert told(lab, capsys, "runs", "--recipe", "sums", "--state", "finished") == text


def test_what_is_for_timing_runs_says_so_in_a_sentence(lab: Path, capsys: Capture) -> None:
    text = told(lab, capsys, "bundle", "latest", status=2)
    assert "is an evaluation: it has answers to questions, and no timed trials" in text


def test_its_facts_are_shown_and_it_is_tagged(lab: Path, capsys: Capture) -> None:
    assert "dataset.size: 8" in told(lab, capsys, "show", "latest")
    found = json.loads(told(lab, capsys, "show", "latest", "--json"))
    assert (list(found), found["evaluation"]["dataset"]["size"]) == (["directory", "evaluation"], 8)
    assert "nice" in told(lab, capsys, "runs", "tag", "latest", "nice")
    assert "sums" in told(lab, capsys, "runs", "--tag", "nice")


def test_watch_shows_one_that_has_ended(lab: Path, capsys: Capture) -> None:
    capsys.readouterr()
    assert run_cli(["--lab", str(lab), "watch", "latest"]) == 0
    assert "is finished; its tables: labctl report" in capsys.readouterr().err


def test_the_plan_counts_generations(lab: Path, capsys: Capture) -> None:
    settings = ["--set", "budgets=[10, 20, unlimited]"]
    text = told(lab, capsys, "plan", "sums", *settings)
    assert "4 questions" in told(lab, capsys, "plan", "sums", "--limit", "4")
    assert "8 generations in all" in text
    assert "cut at 10, 20" in text
    assert "up to 8 more to check truncated answers against real limits" in text


@pytest.mark.parametrize(
    "words",
    [
        ("run", "sums", "--build"),
        ("run", "sums", "--spare", "rk1"),
        ("run", "sums", "--junit", "x.xml"),
        ("run", "sums", "--detach"),
        ("run", "sums", "--board", "rk1"),
        ("plan", "sums", "--ask"),
        ("resume", "latest", "--board", "rk1"),
    ],
)
def test_an_option_that_an_evaluation_lacks_is_refused_by_its_name(
    lab: Path, capsys: Capture, words: tuple[str, ...]
) -> None:
    if words[0] == "resume":  # it has ended: nothing is resumed
        assert "nothing to resume" in told(lab, capsys, *words, status=2)
        return
    option = words[2]
    why = (
        "this recipe starts no server on a board"
        if option in ("--detach", "--board")
        else ("an evaluation does not have this option")
    )
    assert f"{option}: {why}" in told(lab, capsys, *words, status=2)


@pytest.mark.parametrize("command", ["run", "plan"])
def test_a_timing_recipe_has_no_questions_to_limit(
    lab: Path, capsys: Capture, command: str
) -> None:
    text = told(lab, capsys, command, "q8_latency", "--limit", "3", status=2)
    assert "--limit: a timing run does not have this option" in text


def test_resume_has_nothing_to_do(lab: Path, capsys: Capture) -> None:
    assert "start a new one: `labctl run`" in told(lab, capsys, "resume", "latest", status=2)
