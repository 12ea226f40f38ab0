"""The list of all figures, docs/figures.md: made from their declarations."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from labctl.evaluation.serving.figures import OF_A_LOAD, LoadFigure
from labctl.figures import trials
from labctl.figures.accuracy import ACCURACY
from labctl.figures.figure import Figure
from labctl.report.markdown import line

_UNITS = {"1/s": "per second", "mC": "0.001 °C", "share": "share of 1", "number": ""}
_TEXT = """\
# Figures

Made by `scripts/reference` from the declarations in `labctl/figures`.

`name`: the key in `--json` and CSV, of a variant. `trial`: the column in `labctl export`. `gate`:
the name in [gates](recipes.md#gates) (times in ms) and, if it is compared, of
`labctl compare --figure`. A figure of a variant is the geometric mean over its good trials, if it
does not say otherwise.
"""
_LOADS = """\
## Of a load

Figures of each load of a load test; `knee_rate` is a gate of the whole test.
"""
_OVER = {"middle": "median of trials", "greatest": "greatest trial", "total": "all trials"}


def figure_list() -> str:
    """Return the page as Markdown."""
    loads = _lines(("gate, CSV", "unit", "figure", "better"), map(_of_a_load, OF_A_LOAD))
    return "\n".join([_TEXT, *_table([*trials.FIGURES, ACCURACY]), _LOADS, *loads])


def _of_a_load(one: LoadFigure) -> tuple[str, ...]:
    unit = "ms" if one.unit == "ns" else _UNITS.get(one.unit, one.unit)
    return f"`{one.gate}`", unit, f"{one.title} {one.part}".strip(), one.better or ""


def _table(figures: list[Figure[Any]]) -> Iterator[str]:
    headings = ("name", "trial", "unit", "figure", "gate", "better", "compared")
    yield from _lines(headings, map(_cells, figures))


def _lines(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield a table of texts that are Markdown already."""
    yield from (line(headings), line([":--"] * len(headings)), *map(line, rows), "")


def _cells(one: Figure[Any]) -> tuple[str, ...]:
    over = _OVER.get(one.over.__name__) if one.over else None
    meaning = f"{one.title}. {one.tip}" if one.tip else one.title
    return (
        f"`{one.name}`" if one.over else "",
        f"`{one.column}`",
        _UNITS.get(one.unit, one.unit),
        f"{meaning} ({over})" if over else meaning,
        f"`{one.gate}`" if one.may_gate else "",
        one.better or "",
        "yes" if one.is_compared else "",
    )
