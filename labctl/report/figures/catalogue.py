"""All figures of some runs."""

from collections.abc import Sequence
from dataclasses import replace

from labctl.records.board import Execution
from labctl.report.figures.distribution import ecdf, repeats
from labctl.report.figures.estimates import estimates
from labctl.report.figures.figure import Figure, Figures, Missing
from labctl.report.figures.gains import gains
from labctl.report.figures.history import history
from labctl.report.figures.measured import MeasuredRun, executions_of
from labctl.report.figures.roofline import roofline
from labctl.report.figures.shares import bound_shares
from labctl.report.figures.sweep import sweeps
from labctl.report.figures.timeline import timelines
from labctl.report.figures.tokens import token_times
from labctl.report.page.language import Code, Language
from labctl.report.references import ReferenceRow

#: Names of figures that do not depend on the runs, in the order of a report.
NAMES = ("estimates", "token-times", "repeats", "ecdf", "history", "roofline", "bounds")


def figures_of(
    runs: Sequence[MeasuredRun], *, language: Code = "en", quoted: Sequence[ReferenceRow] = ()
) -> Figures:
    """Return the figures that can be drawn of the runs, and the reasons why others cannot.

    Raises ConfigError for telemetry that cannot be read.
    """
    words = Language(language)
    found: list[Figure | Missing] = [
        *gains(runs, words),
        estimates(runs, words, quoted),
        token_times(runs, words),
        repeats(runs, words),
        ecdf(runs, words),
        *sweeps(runs, words),
        history(runs, words),
        *timelines(runs, words),
        roofline(runs, words),
        bound_shares(runs, words),
    ]
    executions = executions_of(runs)
    drawn = tuple(_marked(one, executions, words) for one in found if isinstance(one, Figure))
    return Figures(drawn, tuple(one for one in found if isinstance(one, Missing)))


_MARKS = {
    Execution.EMULATED: "EMULATED: does not show the speed of a board",
    Execution.NATIVE_HOST: "NATIVE HOST: measured on this computer, not on a board",
    Execution.UNKNOWN: "IMPORTED: measured elsewhere, the machine is not known",
}


def _marked(one: Figure, executions: set[Execution], words: Language) -> Figure:
    """Mark figures not measured on a board: in the picture, and in a column of the rows.

    If only some runs were not measured on a board, the names of their series have the mark. A
    figure of a single trial has only that trial's mark.
    """
    kinds = {one.execution} if one.execution else executions
    if kinds == {Execution.BOARD}:
        return one
    if len(kinds) > 1:
        names = ", ".join(sorted(kind.upper() for kind in kinds - {Execution.BOARD}))
        return replace(
            one,
            warning=words(
                "{kinds} in part: series that are marked so do not show the speed of a board",
                kinds=names,
            ),
        )
    (kind,) = kinds
    rows = [{**row, "execution": str(kind)} for row in one.rows]
    return replace(one, warning=words(_MARKS[kind]), rows=rows)
