"""Names of variants in little space."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from records_made import run, trial
from rich.cells import cell_len

from labctl.report.figures.measured import MeasuredRun, all_series
from labctl.report.names import short_names
from labctl.report.page.language import Language
from labctl.report.result_tables import Results, result_tables
from labctl.units import width

QUANTS = ("Q4_K_M", "Q8_0", "Q2_K")
LONG = [f"DeepSeek-R1-Distill-Qwen-1.5B-{one}" for one in QUANTS]


@pytest.mark.parametrize(
    ("names", "room", "short"),
    [
        (["q8_0", "q2_k"], 12, ["q8_0", "q2_k"]),
        (LONG, 28, ["…-Q4_K_M", "…-Q8_0", "…-Q2_K"]),
        (["8ccbb1:llama-3-Q8_0", "8ccbb1:llama-3-Q2_K"], 12, ["…-Q8_0", "…-Q2_K"]),
        (["llama/plain-prompt", "llama/cot"], 12, ["…/plai…rompt", "…/cot"]),
        (["an-only-name-that-is-long"], 14, ["an-only…s-long"]),
        (["版本一-很长的模型名-八", "版本一-很长的模型名-二"], 12, ["…-八", "…-二"]),
        # What differs is in the middle, where no cut shows it.
        (
            ["x" * 20 + "1" + "y" * 20, "x" * 20 + "2" + "y" * 20],
            12,
            ["xxxxxxxxx…#1", "xxxxxxxxx…#2"],
        ),
    ],
)
def test_what_differs_is_seen(names: list[str], room: int, short: list[str]) -> None:
    assert list(short_names(names, room).values()) == short


@given(st.lists(st.text(st.characters(codec="utf-8", categories=["L", "N", "P"])), unique=True))
def test_short_names_stay_different_and_fit(names: list[str]) -> None:
    short = short_names(names, 20)
    assert list(short) == names
    assert len({*short.values()}) == len(names)
    assert all(width(name) <= 20 for name in short.values())


@given(st.text(st.characters(codec="utf-8", categories=["L", "N", "P", "S"])))
def test_the_width_is_that_of_a_terminal(text: str) -> None:
    assert width("模型") == 4
    assert width("e\u0301") == 1
    assert text.isascii() is False or width(text) == cell_len(text)


def test_figures_and_tables_of_a_page_have_the_same_names() -> None:
    trials = [trial(n, variant=name, slug=str(n)) for n, name in enumerate(LONG, 1)]
    record = run(variants=tuple(LONG))
    short = ["…-Q4_K_M", "…-Q8_0", "…-Q2_K"]
    assert [one.label for one in all_series([MeasuredRun(record, trials)])] == short
    table = result_tables([Results(record, trials)], (), Language("en"))[0]
    first = [row[0] for row in table.rows]
    assert [cell.on_page for cell in first] == short
    assert [cell.text for cell in first] == LONG
    assert all(cell.tip.startswith(cell.text) for cell in first)
