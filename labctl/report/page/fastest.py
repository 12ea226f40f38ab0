"""Sentences that name the faster of two variants, and the fastest of many."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from labctl.compare.comparison import Basis, Row, Verdict
from labctl.compare.thresholds import Thresholds
from labctl.compare.verdicts import compare
from labctl.compare.words import percent, ratio_text
from labctl.report.page.language import Language
from labctl.report.page.measured import MeasuredRun
from labctl.results.summary import VariantSummary, repeats_of, wanted_precision
from labctl.stats.intervals import Interval
from labctl.stats.multiple_comparisons import may_be_best
from labctl.units import confidence, digits, duration

_FASTER = (
    "{best} is {value} times as fast as {other} {where}{known}: {time} a token against {against}."
)
_SMALL = (
    "{best} ({time} a token) is faster than {other} ({against}) {where}, but not shown to be so by"
    " more than {practical}: ratio {value}{known}."
)
_SAME = (
    "{best} ({time} a token) and {other} ({against}) are equally fast {where}: ratio"
    " {value}{known}."
)
_CANT_TELL = (
    "It is unclear {where} which is faster, {best} ({time} a token) or {other} ({against}):"
    " ratio {value}{known}."
)
_TOO_FEW = (
    "{best} took {time} a token {where}, {other} {against}: too few rounds for an interval, so it"
    " is unclear which is faster."
)
_SUSPECTED = "{best} ({time} a token) may be faster than {other} ({against}) {where}: {reason}."
_UNKNOWN = (
    "It is unclear {where} which is faster, {best} ({time} a token) or {other} ({against}):"
    " {reason}."
)
_UNLIKE = "{best} ({time} a token) and {other} ({against}) are not compared {where}: {reason}."
_DRIFT = {
    Basis.UNPAIRED: "They were measured one after the other, so that drift counts as a difference.",
    Basis.FEW_ROUNDS: "Fewer than two rounds have both, so that drift counts as a difference.",
}

_FASTEST = "{best} is the fastest of {count} variants {where}."
_FASTEST_SAME = (
    "{names} are equally fast {where} ({times} a token); none of {count} variants is faster."
)
_NO_FASTEST = (
    "It is unclear {where} which of {names} is the fastest of {count} variants: they take {times}"
    " a token."
)
_INTERVAL = " ({level} interval {low} to {high})"
_AT_ONCE = "{high}: 95% for all {count} comparisons of variants and figures at once"
_TEXTS = {
    Verdict.UNLIKE: _UNLIKE,
    Verdict.SUSPECTED: _SUSPECTED,
    Verdict.SLOWER: _FASTER,
    Verdict.SAME: _SAME,
}


def takes(row: VariantSummary, where: str, words: Language) -> str:
    """Return the time of a token of a variant, with its interval."""
    between = row.token_interval
    if between is None or between.is_vague:
        known = words(", from too few trials for an interval")
    else:
        known = _interval(_INTERVAL, between, duration, words)
    return words(
        "{variant} takes {time} a token {where}{known}.",
        variant=row.variant,
        time=duration(row.token_ns),
        where=where,
        known=known,
    )


def _interval(text: str, between: Interval, shown: Callable[[float], str], words: Language) -> str:
    """Return an interval in words; a level above the tables' 95% has its reason (Holm)."""
    high, at_once = shown(between.high), round(0.05 / (1 - between.level))
    return words(
        text,
        count=between.count,
        level=f"{confidence(between.level)}%",
        low=shown(between.low),
        high=words(_AT_ONCE, high=high, count=at_once) if at_once > 1 else high,
    )


def fastest(
    one: MeasuredRun, timed: Sequence[VariantSummary], where: str, words: Language
) -> Iterator[str]:
    """Yield sentences on a run's variants; ``timed`` begins with the smallest time of a token.

    Variants that cannot be compared with the best one are named apart.
    """
    best, judged = _best(one, timed)
    peers, unlike = [best], list[VariantSummary]()
    for row in timed:
        if row is not best:
            is_unlike = judged[row.variant].verdict is Verdict.UNLIKE
            (unlike if is_unlike else peers).append(row)
    if len(timed) == 2 or len(peers) == 2:
        yield from pair_sentences(
            judged[(peers[1:] or unlike)[0].variant], where, _practical(one), words
        )
    elif len(peers) == 1:
        yield takes(best, where, words)
    else:
        yield from _of_many(one, peers, judged, where, words)
    compared = [judged[row.variant] for row in peers[1:]]
    for basis, text in _DRIFT.items():
        if any(row.basis is basis and row.interval is not None for row in compared):
            yield words(text)
    if unlike and len(timed) > 2:
        yield words(
            "Not compared with {best}: {names} ({reason}).",
            best=best.variant,
            names=words.some(row.variant for row in unlike),
            reason=judged[unlike[0].variant].reason,
        )


def _of_many(
    one: MeasuredRun,
    peers: Sequence[VariantSummary],
    judged: Mapping[str, Row],
    where: str,
    words: Language,
) -> Iterator[str]:
    """Yield the variants that may be the fastest, and how much slower the recipe's first one is."""
    best, level = peers[0], _level(one, peers, judged)
    slower = [row for row in peers if row not in level]
    times = [row.token_ns for row in level if row.token_ns is not None]
    low, high = duration(min(times)), duration(max(times))
    values = {
        "best": best.variant,
        "names": words.some(row.variant for row in level),
        "count": len(peers),
        "where": where,
        "time": duration(best.token_ns),
        "times": low if low == high else words("{low} to {high}", low=low, high=high),
    }
    if len(level) == 1:
        text = _FASTEST
    elif all(judged[row.variant].verdict is Verdict.SAME for row in level[1:]):
        text = _FASTEST_SAME
    else:
        text = _NO_FASTEST
    yield words(text, **values)
    if all(row.token_interval is None for row in peers):
        yield words("There are too few rounds for an interval.")
    if slower:
        other = next((row for row in slower if row.variant == one.rows[0].variant), slower[0])
        if other is not slower[0]:
            yield words(
                "The next is {other}, {against} a token.",
                other=slower[0].variant,
                against=duration(slower[0].token_ns),
            )
        row = judged[other.variant]
        if _is_shown(row):
            yield from pair_sentences(row, where, _practical(one), words)
        else:
            yield words(
                "It takes {time} a token, {other} {against}."
                if len(level) == 1
                else "{best} takes {time} a token, {other} {against}.",
                **values,
                other=other.variant,
                against=duration(other.token_ns),
            )


def _level(
    one: MeasuredRun, peers: Sequence[VariantSummary], judged: Mapping[str, Row]
) -> Sequence[VariantSummary]:
    """Return the variants that may be the fastest, or are as fast as the best one.

    In the rounds that both have, a variant of a smaller estimate can be shown to be slower.
    """
    repeats = [repeats_of(one.good[row.variant]) for row in peers]
    kept = may_be_best(repeats, stopped=wanted_precision(one.run) is not None)
    last = max(
        place
        for place, (row, is_kept) in enumerate(zip(peers, kept, strict=True))
        if is_kept or not place or judged[row.variant].verdict is Verdict.SAME
    )
    best, *others = peers[: last + 1]
    return [best, *(row for row in others if judged[row.variant].verdict is not Verdict.SLOWER)]


def _practical(one: MeasuredRun) -> float:
    return Thresholds.of_recipe(one.run.recipe_resolved).practical


def _is_shown(row: Row) -> bool:
    """Return True if the right side is shown to be slower, be it by little."""
    return row.interval is not None and row.interval.low > 1 and row.verdict is not Verdict.SAME


def pair_sentences(row: Row, where: str, practical: float, words: Language) -> Iterator[str]:
    """Yield the judgement of two sides that have values, and how to settle it.

    ``practical``: the smallest difference that matters, as a share.
    """
    assert row.left_value is not None
    assert row.right_value is not None
    if (row.ratio or row.right_value / row.left_value) < 1:
        row = _turned(row)
    shown = digits if row.verdict is Verdict.SLOWER else ratio_text  # close to 1
    values: dict[str, object] = {
        "best": row.left,
        "other": row.right,
        "where": where,
        "time": duration(row.left_value),
        "against": duration(row.right_value),
        "practical": percent(practical),
        "reason": row.reason,
    }
    if row.ratio is not None and row.interval is not None:
        values["value"] = shown(row.ratio)
        values["known"] = _ratio_known(row, row.interval, shown, words)
    yield words(_judgement(row), **values)
    if row.verdict is Verdict.CANT_TELL and row.repeats is not None and row.interval is not None:
        yield words(
            "{count} interleaved rounds would settle it."
            if row.fits_one_run
            else "{count} alternating runs of each would settle it.",
            count=row.repeats,
        )


def _judgement(row: Row) -> str:
    """Return the text for a row whose left side has the smaller time."""
    if row.verdict in _TEXTS:
        return _TEXTS[row.verdict]
    if row.basis is Basis.UNKNOWN_SESSIONS:
        return _UNKNOWN
    if row.ratio is None or row.interval is None:
        return _TOO_FEW
    return _SMALL if _is_shown(row) else _CANT_TELL


def _best(
    one: MeasuredRun, timed: Sequence[VariantSummary]
) -> tuple[VariantSummary, dict[str, Row]]:
    """Return a variant that no other variant beats, and the comparison of each other one with it.

    Of several such variants, return the one with the smallest estimate. Its comparison with the
    recipe's first variant is the row of `labctl compare`, which is judged among other rows.
    """
    first = one.rows[0].variant
    against_first = _judged(one, first)
    for best in timed:
        judged = dict(against_first) if best.variant == first else _judged(one, best.variant)
        if best.variant in against_first:
            judged[first] = _turned(against_first[best.variant])
        if all(row.verdict is not Verdict.FASTER for row in judged.values()):
            break
    return best, judged


def _judged(one: MeasuredRun, reference: str) -> dict[str, Row]:
    """Compare the variants' token times with a reference variant's, as `labctl compare` does."""
    sides = one.sides()
    base = next(side for side in sides if side.variant == reference)
    variants = {side.name: side.variant for side in sides}
    found = compare([(base, side) for side in sides if side is not base])
    return {
        variants[row.right]: replace(row, left=reference, right=variants[row.right])
        for row in found.rows
        if row.figure == "tpot_ms"
    }


def _turned(row: Row) -> Row:
    """Return a row with its sides exchanged."""
    opposite = {Verdict.SLOWER: Verdict.FASTER, Verdict.FASTER: Verdict.SLOWER}
    known = row.interval
    return replace(
        row,
        left=row.right,
        right=row.left,
        left_value=row.right_value,
        right_value=row.left_value,
        left_repeats=row.right_repeats,
        right_repeats=row.left_repeats,
        verdict=opposite.get(row.verdict, row.verdict),
        ratio=row.ratio and 1 / row.ratio,
        interval=known
        and replace(known, mean=1 / known.mean, low=1 / known.high, high=1 / known.low),
    )


def _ratio_known(
    row: Row, between: Interval, shown: Callable[[float], str], words: Language
) -> str:
    """Return a ratio's interval, and its number of rounds if the times are from more trials."""
    if between.is_vague:
        return words(" (its interval is wider than ± 100%)")
    is_of_all = row.basis is not Basis.PAIRED or between.count == row.left_repeats == (
        row.right_repeats
    )
    text = " ({level} interval {low} to {high}, of the {count} rounds that have both)"
    return _interval(_INTERVAL if is_of_all else text, between, shown, words)
