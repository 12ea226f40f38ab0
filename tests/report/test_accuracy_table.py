"""The accuracies of an evaluation as text: the table of the experiment, and what is behind it."""

import io
import re
from pathlib import Path

from evaluations_made import made_evaluation
from rich.console import Console

from labctl.report.accuracy_table import limit_tables, print_accuracies
from labctl.report.figures.accuracy import evaluation_figures
from labctl.report.page.language import Language

RIGHT = {"q2_k/step": (0.1, 0.3, 0.45, 0.5), "q8_0/step": (0.05, 0.4, 0.6, 0.9)}


def printed(path: Path, *, wide: bool = False, graders: tuple[str, ...] = ("boxed",)) -> list[str]:
    made = made_evaluation(path, right=RIGHT, graders=graders)
    console = Console(file=io.StringIO(), width=120)
    print_accuracies(console, made.record, made.table, made.end, wide=wide)
    assert isinstance(console.file, io.StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def test_a_row_is_a_variant_and_a_column_a_budget(tmp_path: Path) -> None:
    lines = printed(tmp_path)
    assert lines[1] == "Accuracy by boxed"
    assert re.split("  +", lines[2]) == [
        "variant", "100 tokens", "200 tokens", "300 tokens", "no limit",
    ]  # fmt: skip
    made = made_evaluation(tmp_path, right=RIGHT, graders=("boxed",))
    for line, variant in zip(lines[3:5], RIGHT, strict=True):
        cells = [cell for cell in made.table.cells if cell.variant == variant]
        assert line.split()[1:] == [f"{100 * cell.right / cell.total:.1f}%" for cell in cells]


def test_a_grader_that_judges_otherwise_has_a_table_of_its_own(tmp_path: Path) -> None:
    text = "\n".join(printed(tmp_path, graders=("boxed", "numeric")))
    assert "Accuracy by numeric" in text
    assert "the graders judge" in text


def test_wide_has_a_row_with_its_interval_for_each(tmp_path: Path) -> None:
    lines = printed(tmp_path, wide=True)
    assert lines[1].split()[:3] == ["variant", "budget", "grader"]
    assert len([line for line in lines if " boxed " in line]) == 8


def test_graders_that_judge_alike_are_shown_once(tmp_path: Path) -> None:
    made = made_evaluation(tmp_path, right=RIGHT, graders=("boxed", "again", "other"))
    assert made.table.distinct_graders == {"boxed": [], "again": ["other"]}
    words = Language("en")
    first, second = limit_tables(made.record, made.table, words)
    assert "judged as by" not in first.note
    assert second.note.endswith("other: every text is judged as by again.")
    figures = [one.name for one in evaluation_figures(made.table, words)]
    assert figures == ["accuracy", "accuracy-again", "lengths"]
    assert "other: every text is judged as by again" in "\n".join(
        printed(tmp_path, graders=("boxed", "again", "other"))
    )
