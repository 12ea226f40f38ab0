"""Verdicts of a comparison, in this order: not comparable, same, slower, faster or unclear.

Tests for a difference and for sameness are two families, each with one error over all rows (Holm).
The interval of a row decides.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace

from labctl.compare import words
from labctl.compare.comparison import Basis, Comparison, Row, Verdict
from labctl.compare.estimates import Estimate, History, estimate, other_sessions
from labctl.compare.figures import figures_of
from labctl.compare.likeness import MODEL_CACHE, Difference, differences, fits_one_run
from labctl.compare.sides import Pair, Side
from labctl.compare.thresholds import Thresholds
from labctl.figures.trials import TrialFigure
from labctl.index.rows import TrialRow
from labctl.stats.describe import geometric_mean
from labctl.stats.hypothesis_tests import holm
from labctl.stats.log_ratio import LogRatio
from labctl.stats.power import repeats_for_difference, repeats_for_same

#: Figures that the ceilings of a board bound (`TrialBound`).
_OF_TOKENS = ("tpot_ms", "tokens_per_second")


def compare(
    pairs: Iterable[Pair],
    *,
    figures: Sequence[str] | Callable[[Pair], Sequence[str]] = (),
    thresholds: Thresholds | None = None,
    allow: Collection[str] = (),
    history: History | None = None,
) -> Comparison:
    """Compare the sides of each pair, the reference first.

    Args:
        pairs: the sides to compare.
        figures: names in FIGURES, or a function that returns those of a pair; by default the usual
            figures that were measured.
        thresholds: by default the thresholds in the recipe of the first reference.
        allow: keys in which two sides may differ.
        history: other sessions of the board; without it, different runs give a suspicion at most.
    """
    known = list(pairs)
    asked = thresholds or next((left.thresholds for left, _ in known if left.thresholds), None)
    judged_by = asked or Thresholds.of_recipe({})
    open_rows: list[tuple[Row, Estimate | None]] = []
    for pair in known:
        found = tuple(differences(*pair, allow))
        others = [] if _refused(found) else other_sessions(pair, history)
        rows = [*pair[0].repeats, *pair[1].repeats]
        for figure in figures_of(rows, figures(pair) if callable(figures) else figures):
            row = _row(pair, figure, found)
            if refused := _refused(found, figure):
                row = replace(row, verdict=Verdict.UNLIKE, reason=words.unlike(refused))
                open_rows.append((row, None))
            elif row.left_repeats and row.right_repeats:
                open_rows.append((row, estimate(pair, figure, others)))
            else:
                open_rows.append((replace(row, reason=words.no_values(row)), None))
    execution = {str(row.execution) for pair in known for side in pair for row in side.repeats}
    return Comparison(tuple(judged(open_rows, judged_by)), judged_by, frozenset(execution))


def _refused(found: Iterable[Difference], figure: TrialFigure | None = None) -> list[Difference]:
    """Return the differences that forbid a comparison, for one figure or for all."""
    return [
        one
        for one in found
        if one.allowed is None
        or (one.key == MODEL_CACHE and one.allowed == "resolved" and figure and figure.has_loading)
    ]


def _nearest(side: Side, figure: TrialFigure) -> tuple[str, float] | None:
    """Return the nearest ceiling of the side's own board, and the share that its tokens reach."""
    if figure.gate not in _OF_TOKENS or not (shares := side.shares):
        return None
    means = {kind: geometric_mean(values) for kind, values in shares.items()}
    return max(means.items(), key=lambda one: one[1])


def _row(pair: Pair, figure: TrialFigure, found: tuple[Difference, ...]) -> Row:
    left, right = pair
    mine, theirs = _values(right.repeats, figure), _values(left.repeats, figure)
    return Row(
        left=left.name,
        right=right.name,
        figure=figure.gate,
        label=figure.short,
        more_is_faster=figure.more_is_faster,
        verdict=Verdict.CANT_TELL,
        reason="",
        left_value=geometric_mean(theirs) if theirs else None,
        right_value=geometric_mean(mine) if mine else None,
        left_share=_nearest(left, figure),
        right_share=_nearest(right, figure),
        left_repeats=len(theirs),
        right_repeats=len(mine),
        differences=found,
        moved=_moved(left) or _moved(right),
        fits_one_run=fits_one_run(left, right, found),
        warnings=(*words.doubtful_checks(left), *words.doubtful_checks(right)),
    )


def _moved(side: Side) -> tuple[str, ...]:
    """Return the boards of a side if it has several: its run moved because a board broke."""
    boards = dict.fromkeys(row.board or "not known" for row in side.repeats)
    return tuple(boards) if len(boards) > 1 else ()


def _values(rows: Iterable[TrialRow], figure: TrialFigure) -> list[float]:
    return [value for row in rows if (value := row.figures[figure.column])]


def judged(rows: Sequence[tuple[Row, Estimate | None]], limits: Thresholds) -> list[Row]:
    """Return rows with verdicts, judged as one family; rows without an estimate are unchanged."""
    different = _family(
        [one.found.p_different() if one and one.found else None for _, one in rows], limits.error
    )
    same = _family(
        [
            one.found.p_beyond(limits.same_log)
            if one and one.found and one.basis is not Basis.UNKNOWN_SESSIONS
            else None
            for _, one in rows
        ],
        limits.error,
    )
    judged = []
    for (row, one), error, same_error in zip(rows, different, same, strict=True):
        if one is None:
            judged.append(row)
        elif one.found is None or error is None:
            judged.append(replace(row, basis=one.basis, reason=words.too_few(one)))
        else:
            judged.append(_judge(row, one, one.found, limits, error=error, same_error=same_error))
    return judged


def _family(probabilities: Sequence[float | None], error: float) -> list[float | None]:
    """Return the error at which each member is judged; None for rows outside the family."""
    members = [index for index, p in enumerate(probabilities) if p is not None]
    errors = holm([p for p in probabilities if p is not None], error)
    found: list[float | None] = [None] * len(probabilities)
    for index, one in zip(members, errors, strict=True):
        found[index] = one
    return found


def _judge(
    row: Row,
    one: Estimate,
    found: LogRatio,
    limits: Thresholds,
    *,
    error: float,
    same_error: float | None,
) -> Row:
    p_different = found.p_different()
    p_same = None if same_error is None else found.p_beyond(limits.same_log)
    differs = p_different <= error
    matters = abs(found.mean) > limits.practical_log
    row = replace(
        row,
        basis=one.basis,
        ratio=found.ratio,
        interval=None if one.basis is Basis.UNKNOWN_SESSIONS else found.interval(1 - error),
        p_different=p_different,
        p_same=p_same,
        noise=found.noise,
        check=one.check,
        warnings=(*row.warnings, *words.warnings(row.label, one, differs=differs, error=error)),
    )
    if same_error is not None and p_same is not None and p_same <= same_error:
        row = replace(row, verdict=Verdict.SAME, interval=found.interval(1 - 2 * same_error))
    elif differs and matters:
        slower = (found.mean > 0) is not row.more_is_faster
        verdict = Verdict.SLOWER if slower else Verdict.FASTER
        known = one.basis is not Basis.UNKNOWN_SESSIONS
        row = replace(row, verdict=verdict if known else Verdict.SUSPECTED)
    if row.verdict in (Verdict.CANT_TELL, Verdict.SUSPECTED) and not row.is_rough:
        noise = found.noise if row.fits_one_run else found.run_noise
        if noise is not None:
            settling = _settling(noise, found.mean, limits, error, same_error or error)
            row = replace(row, repeats=settling)
    return replace(row, reason=words.reason(row, limits, one.sessions))


def _settling(
    noise: float, difference: float, limits: Thresholds, error: float, same_error: float
) -> int | None:
    """Return the fewest pairs that settle the verdict, if the difference is as observed."""
    same = repeats_for_same(noise, limits.same_log, difference=difference, error=same_error)
    different = repeats_for_difference(
        noise, difference, threshold=limits.practical_log, error=error
    )
    return min((count for count in (same, different) if count is not None), default=None)
