"""The accuracies of an evaluation as text: the table of the experiment, and what is behind it."""

import io
from pathlib import Path

from evaluations_made import made_evaluation
from rich.console import Console

from labctl.report.accuracy_table import print_accuracies

RIGHT = {"q2_k/step": (0.1, 0.3, 0.45, 0.5), "q8_0/step": (0.05, 0.4, 0.6, 0.9)}


def printed(path: Path, *, wide: bool = False, graders: tuple[str, ...] = ("boxed",)) -> list[str]:
    made = made_evaluation(path, right=RIGHT, graders=graders)
    console = Console(file=io.StringIO(), width=120)
    print_accuracies(console, made.record, made.table, made.end, wide=wide)
    assert isinstance(console.file, io.StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def test_a_row_is_a_variant_and_a_column_a_budget(tmp_path: Path) -> None:
    lines = printed(tmp_path)
    assert lines[1].split()[4:] == ["100", "200", "300", "unlimited"]
    made = made_evaluation(tmp_path, right=RIGHT, graders=("boxed",))
    for line, variant in zip(lines[2:4], RIGHT, strict=True):
        cells = [cell for cell in made.table.cells if cell.variant == variant]
        assert line.split()[1::2] == [f"{100 * cell.right / cell.total:.1f}" for cell in cells]


def test_a_grader_that_judges_otherwise_has_a_table_of_its_own(tmp_path: Path) -> None:
    text = "\n".join(printed(tmp_path, graders=("boxed", "numeric")))
    assert "right answers by numeric" in text
    assert "the graders judge" in text


def test_wide_has_a_row_with_its_interval_for_each(tmp_path: Path) -> None:
    lines = printed(tmp_path, wide=True)
    assert lines[1].split()[:3] == ["variant", "budget", "grader"]
    assert len([line for line in lines if " boxed " in line]) == 8
