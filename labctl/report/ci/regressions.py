"""Test cases of series over time: a series passes only if a regression could have been seen."""

from collections.abc import Sequence

from labctl.compare.regressions import Change, ChangeStatus, Judged, is_long_enough
from labctl.compare.series import Unmeasured
from labctl.compare.words import ratio_words
from labctl.records.board import Execution
from labctl.report.ci.cases import Case, Outcome, Suite, group_of
from labctl.report.regressions import cannot_tell, lost, series_lines
from labctl.stats.steps import LEAST_SERIES
from labctl.units import counted


def regressions_suite(
    found: Sequence[Judged],
    without: Sequence[Unmeasured] = (),
    *,
    strict: bool = False,
) -> Suite:
    """Return a case for each series, and for each variant ``without`` a series.

    With ``strict``, unknown results are failures.
    """
    cases = [_case(one, strict=strict) for one in found]
    cases += [_without(one, strict=strict) for one in without]
    return Suite("regressions", tuple(cases))


def _without(one: Unmeasured, *, strict: bool) -> Case:
    group = f"{group_of(one.recipe, one.board)}.{one.variant}"
    return Case(one.recipe, group, "regression", _unknown(strict=strict), "no result", str(one))


def _unknown(*, strict: bool) -> Outcome:
    return Outcome.FAILED if strict else Outcome.SKIPPED


def _case(one: Judged, *, strict: bool) -> Case:
    series = one.series
    outcome, kind, message = _found(one, strict=strict)
    group = f"{group_of(series.recipe, series.board)}.{series.variant}"
    details = "\n".join(series_lines(one)) if one.changes else ""
    name = f"regression {series.figure.gate}{series.apart}"
    return Case(series.recipe, group, name, outcome, kind, message, details)


def _found(judged: Judged, *, strict: bool) -> tuple[Outcome, str, str]:
    series = judged.series
    ongoing = [change for change in judged.changes if change.slower and not change.repaired]
    if confirmed := [change for change in ongoing if change.fails]:
        return Outcome.FAILED, "regression", _sentence(confirmed[-1])
    if suspected := [one for one in ongoing if one.status is ChangeStatus.SUSPECTED]:
        return _unknown(strict=strict), "suspected regression", _sentence(suspected[-1])
    nights = counted(len(series.nights), "night")
    if series.execution != Execution.BOARD:
        return Outcome.SKIPPED, series.execution, f"{series.execution}: not judged"
    if series.lost:
        return _unknown(strict=strict), "no result", lost(series)
    if not is_long_enough(series):
        return Outcome.SKIPPED, "too short", f"{nights}; {LEAST_SERIES} are needed"
    told = f"{nights}; {cannot_tell(judged.smallest)}"
    known = (Outcome.PASSED, "", f"no regression in {told}")
    return (_unknown(strict=strict), "cannot tell", told) if judged.smallest is None else known


def _sentence(change: Change) -> str:
    step = change.step
    how_much = ratio_words(step.ratio, change.series.figure.more_is_faster)
    commits = f"{change.surely_before.source}..{change.surely_after.source}"
    return f"{how_much} since {commits}: {change.status}: {change.reason}"
