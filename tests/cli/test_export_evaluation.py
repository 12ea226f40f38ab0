"""``labctl export`` of an evaluation: its answers for other programs."""

import csv
import io
import json
from pathlib import Path

import pytest
from evaluations import boxed, evaluate, number_of, recipe_of, recipe_text, sums_lab
from scripted_answers import Asked
from scripted_endpoint import scripted_endpoint

from labctl.cli.root import run_cli

HOSTILE = "=cmd|'/C calc'!A1\x1b[2Jred"


def answered(asked: Asked) -> str:
    """Right for even numbers; 3 gets an answer that steers programs."""
    n = number_of(asked)
    if n == 3:
        return HOSTILE
    return boxed(2 * n if n % 2 == 0 else 0, words=n)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    lab = sums_lab(tmp_path / "lab", 4)
    with scripted_endpoint(answered) as server:
        text = recipe_text({"half": [server.address]}, budgets=[3, "unlimited"])
        return evaluate(lab, recipe_of(text)).directory.path


def test_all_samples_in_one_file(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "samples.jsonl"
    assert run_cli(["export", str(run), "-o", str(out)]) == 0
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [(row["task"], row["doc_id"], row["exact_match"]) for row in rows] == [
        ("sums_plain_3", 0, 0),
        ("sums_plain_3", 1, 1),
        ("sums_plain_3", 2, 0),
        ("sums_plain_3", 3, 0),
        ("sums_plain_unlimited", 0, 0),
        ("sums_plain_unlimited", 1, 1),
        ("sums_plain_unlimited", 2, 0),
        ("sums_plain_unlimited", 3, 1),
    ]
    last = rows[-1]
    assert last["arguments"]["gen_args_0"]["arg_0"] == "What is 4 plus 4?\n"
    assert last["resps"] == [["so so so so \\boxed{8}"]]
    assert (last["filtered_resps"], last["target"], last["model"]) == (["8"], "8", "half")
    assert rows[3]["resps"][0][0].split() == ["so"] * 3
    assert rows[3]["labctl"]["truncated_here"] == [True]


def test_the_harnesss_own_files_in_a_folder(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "results"
    assert run_cli(["export", str(run), "--format", "lm-eval", "-o", str(folder)]) == 0
    assert "wrote 3 files to" in capsys.readouterr().err
    names = sorted(path.name.partition("_20")[0] for path in (folder / "half").iterdir())
    assert names == ["results", "samples_sums_plain_3", "samples_sums_plain_unlimited"]
    (results,) = (folder / "half").glob("results_*.json")
    found = json.loads(results.read_text())["results"]["sums_plain_unlimited"]
    assert found["exact_match,boxed"] == 0.5


def test_a_spreadsheet_computes_nothing(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "answers.csv"
    assert run_cli(["export", str(run), "-o", str(out)]) == 0
    rows = list(csv.DictReader(io.StringIO(out.read_bytes().decode(), newline="")))
    assert len(rows) == 8
    assert [row["correct"] for row in rows[4:]] == ["False", "True", "False", "True"]
    assert rows[6]["text"] == f"'{HOSTILE}"
    assert rows[6]["right_answer"] == "6"
    assert rows[-1]["budget"] == ""


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--format", "parquet"], "parquet is for timed trials"),
        (["--format", "csv", "-o", "."], "is a folder; name a file"),
    ],
)
def test_wrong_use(
    run: Path, words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_cli(["export", str(run), *words]) == 2
    assert says in capsys.readouterr().err


def test_a_run_that_has_no_questions(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (run / "questions.jsonl").unlink()
    assert run_cli(["export", str(run)]) == 2
    assert "questions.jsonl: No such file" in capsys.readouterr().err
