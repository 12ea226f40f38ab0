"""Reasons and warnings of a comparison, in words."""

from collections.abc import Sequence

from labctl.compare.comparison import Basis, Row, Verdict
from labctl.compare.estimates import Estimate
from labctl.compare.likeness import EXECUTION, Difference
from labctl.compare.sides import Side
from labctl.compare.thresholds import Thresholds
from labctl.stats.intervals import Interval
from labctl.stats.log_ratio import LEAST_SESSIONS
from labctl.stats.power import MOST_REPEATS
from labctl.units import confidence, digits

_MORE = "make 5 or more repeats"


def unlike(refused: Sequence[Difference]) -> str:
    """Name the differences that forbid a comparison, and the option that allows it."""
    named = "; ".join(map(str, refused))
    if any(one.key == EXECUTION for one in refused):
        return f"{named}: results of a real board are never compared with emulated or host results"
    allow = " ".join(f"--allow {one.key}" for one in refused)
    return f"{named} ({allow} compares them)"


def no_values(row: Row) -> str:
    """Name the side that has no value."""
    counts = {row.left: row.left_repeats, row.right: row.right_repeats}
    missing = " and of ".join(name for name, count in counts.items() if not count)
    return f"no good repeat of {missing} has a value"


def too_few(one: Estimate) -> str:
    """Explain that a single value does not show the noise."""
    if one.basis is Basis.UNKNOWN_SESSIONS:
        return f"a side has only one repeat, and {_sessions(one.sessions)}"
    return f"a side has only one repeat, so its noise is unknown; {_MORE}"


def warnings(label: str, one: Estimate, *, differs: bool, error: float) -> tuple[str, ...]:
    """Warn if an interval is too optimistic, and if the distribution-free test disagrees.

    Between runs that test ignores run-to-run variation: a difference found by it alone means
    nothing.
    """
    found = []
    if one.basis is Basis.UNPAIRED:
        found.append(
            "measured one after the other, so drift counts as a difference: use"
            " `order: interleaved`"
        )
    if one.basis is Basis.FEW_ROUNDS and one.found is not None:
        found.append("fewer than two rounds have both, so drift counts as a difference")
    of_runs = one.basis in (Basis.SESSIONS, Basis.UNKNOWN_SESSIONS)
    if one.check is not None and differs != (one.check <= error) and (differs or not of_runs):
        name = "sign-flip test" if one.basis is Basis.PAIRED else "Mann-Whitney test"
        what = "finds no difference" if differs else "finds a difference"
        found.append(
            f"{label}: the {name} {what} (p = {one.check:.2g}): check the single repeats for"
            " outliers"
        )
    return tuple(found)


def doubtful_checks(side: Side) -> tuple[str, ...]:
    """Name the checks of a side that failed or were not judged; such repeats count too."""
    failed = [row.checks_failed.split() for row in side.repeats if row.checks_failed]
    is_open = [row.checks_open.split() for row in side.repeats if row.checks_open]
    return tuple(
        f"checks {what} in {len(found)} of {len(side.repeats)} repeats of {side.name}:"
        f" {', '.join(sorted({name for names in found for name in names}))}"
        for what, found in (("failed", failed), ("not judged", is_open))
        if found
    )


def reason(row: Row, limits: Thresholds, sessions: int | None) -> str:
    """Explain the verdict of a row that was compared."""
    margin = percent(limits.same_within)
    match row.verdict:
        case Verdict.SAME:
            return f"the {interval_text(row.interval)} is within ± {margin}"
        case Verdict.SLOWER | Verdict.FASTER:
            return f"{change(row)}: {interval_text(row.interval)}"
        case Verdict.SUSPECTED:
            return f"{change(row)}, but {_sessions(sessions)}: confirm interleaved, {_rounds(row)}"
    if row.interval is None:
        return f"{_sessions(sessions)}: measure interleaved, {_rounds(row)}"
    text = interval_text(row.interval)
    if row.interval.is_vague:
        text = f"the {row.interval.count} repeats differ too much"
    if row.interval.low > 1 or row.interval.high < 1:
        text = f"{change(row)}, {text}, and not shown to be more than {percent(limits.practical)}"
    if row.is_rough:
        return f"{text}: too little is known about the noise; {_MORE}"
    what = "interleaved rounds" if row.fits_one_run else "alternating runs of each"
    known = f"{row.repeats} {what}"
    settling = f"no number of {what} up to {MOST_REPEATS}" if row.repeats is None else known
    return f"{text}: {settling} would settle it"


def change(row: Row) -> str:
    """Return ``takes 1.052 times as long``, for a rate ``0.951 times the rate``.

    Uses the ratio of the row, like its interval.
    """
    return "not known" if row.ratio is None else ratio_words(row.ratio, row.more_is_faster)


def ratio_words(ratio: float, more_is_faster: bool) -> str:
    """Return the ratio of two times, or of two rates, in words."""
    text = ratio_text(ratio)
    return f"{text} times the rate" if more_is_faster else f"takes {text} times as long"


def percent(share: float) -> str:
    """Return ``3 %``, ``0.35 %``."""
    return f"{100 * share:.2g}%" if share < 0.1 else f"{100 * share:.0f}%"


def interval_text(found: Interval | None) -> str:
    """Return ``95 % interval 1.032 to 1.071``."""
    if found is None:
        return "no interval"
    ends = f"{ratio_text(found.low)} to {ratio_text(found.high)}"
    return f"{confidence(found.level)}% interval {ends}"


def ratio_text(value: float) -> str:
    """Return ``0.994``; three digits for large and small values."""
    return f"{value:.3f}" if 0.1 <= value < 10 else digits(value)


def _sessions(known: int | None) -> str:
    return (
        f"the run-to-run variation on this board is unknown ({known or 0} of {LEAST_SESSIONS}"
        " comparable runs)"
    )


def _rounds(row: Row) -> str:
    """Say how to measure both interleaved, if a run can contain both."""
    if not row.fits_one_run:
        return f"alternating runs of both, until {LEAST_SESSIONS} comparable runs are known"
    return "in one run" if row.repeats is None else f"in one run, {row.repeats} rounds"
