"""The answer of a report: sentences from the data, with their uncertainty."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from labctl.compare.comparison import Basis, Row, Verdict
from labctl.compare.thresholds import Thresholds
from labctl.compare.verdicts import compare
from labctl.compare.words import percent, ratio_text
from labctl.performance.bottleneck import nearest_bounds
from labctl.records.trial import TrialBound
from labctl.report.page.language import Language
from labctl.report.page.measured import MeasuredRun
from labctl.report.result_tables import middle_bound
from labctl.results.summary import VariantSummary
from labctl.stats.intervals import Interval
from labctl.units import confidence, digits, duration

#: Up to this number of runs, each run has its own sentences.
_MOST_ANSWERS = 6

_FASTER = (
    "{best} is {value} times as fast as {other} {where}{known}: {time} a token against {against}."
)
_SMALL = (
    "{best} ({time} a token) is faster than {other} ({against}) {where}, but not shown to be so by"
    " more than {practical}: ratio {value}{known}."
)
_FASTEST = "{best} is the fastest of {count} variants {where}."
_FASTEST_SAME = "{names} are equally fast {where}; none of {count} variants is faster."
_NO_FASTEST = "It is unclear {where} which of {names} is the fastest of {count} variants."
_AFTER = "They were measured one after the other, so that drift counts as a difference."
_SHORTEST = (
    "{best} takes the shortest time of {count} variants {where}: {time} a token. It is"
    " {value} times as fast as {other}{known}, which takes {against}."
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
_UNLIKE = "{best} ({time} a token) and {other} ({against}) are not compared {where}: {reason}."

_BOUND = "{variant} is bound by {name}: at {share} of what the measured rate of the board allows."
_PERHAPS_BOUND = (
    "{variant} is bound by {name} if the board is as expected: at {share} of what the rate allows"
    " that its target expects; `labctl boards probe` measures the board's own."
)


def answers(runs: Sequence[MeasuredRun], words: Language) -> list[str]:
    """Return the answer of each run; for many runs, one answer for all."""
    if len(runs) == 1:
        return list(_of_run(runs[0], words))
    if len(runs) <= _MOST_ANSWERS:
        return [f"{one.short}: {sentence}" for one in runs for sentence in _of_run(one, words)]
    timed = [(row.token_ns, row, one) for one in runs for row in one.rows if row.token_ns]
    if not timed:
        return [words("None of the {count} runs has a token time.", count=len(runs))]
    fastest, slowest = min(timed, key=_by_time), max(timed, key=_by_time)
    range_sentence = words(
        "In {count} runs, a token takes from {low} ({first}, run {run}) to {high} ({last}, run"
        " {other}).",
        count=len(runs),
        low=duration(fastest[0]),
        first=fastest[1].variant,
        run=fastest[2].short,
        high=duration(slowest[0]),
        last=slowest[1].variant,
        other=slowest[2].short,
    )
    return [
        range_sentence,
        words("Runs of different sessions: `labctl compare` judges their differences."),
    ]


def _by_time(found: tuple[float, VariantSummary, MeasuredRun]) -> float:
    return found[0]


def _of_run(one: MeasuredRun, words: Language) -> Iterator[str]:
    timed = sorted((row for row in one.rows if row.token_ns), key=lambda row: row.token_ns or 0)
    if not timed:
        yield from _without_tokens(one, words)
    else:
        yield from _of_times(one, timed, words)
    failed = sum(row.trials_failed + row.trials_skipped for row in one.rows)
    if failed and timed:
        yield words("{count} of its trials have no result.", count=failed)
    if any(row.checks_failed for row in timed):
        names = dict.fromkeys(name for row in timed for name in row.checks_failed)
        yield words("Checks failed, see the table: {names}.", names=words.listed(names))
    if missed := [gate for gate in one.gates if gate.passed is False]:
        yield words(
            "{count} of {total} gates were missed.", count=len(missed), total=len(one.gates)
        )


def _of_times(one: MeasuredRun, timed: Sequence[VariantSummary], words: Language) -> Iterator[str]:
    board = words("on {board}", board=one.run.board)
    if not one.is_of_a_board:
        board = words("{board} (not the speed of a board)", board=board)
    best = timed[0]
    if len(timed) == 1:
        yield words(
            "{variant} takes {time} a token {where}{known}.",
            variant=best.variant,
            time=duration(best.token_ns),
            where=board,
            known=_known(best.token_interval, words),
        )
    else:
        yield _faster(one, timed, board, words)
    for row in dict.fromkeys((best, *timed[1:2])):
        yield from _bound(row.variant, middle_bound(one.good[row.variant]), words)


def _faster(one: MeasuredRun, timed: Sequence[VariantSummary], where: str, words: Language) -> str:
    """Compare the fastest variant with the recipe's first, or the next if they are the same."""
    best, judged = _best(one, timed)
    others = [row for row in timed if row.variant != best.variant]
    other = next((row for row in others if row.variant == one.rows[0].variant), others[0])
    row = judged[other.variant]
    level = [best, *(o for o in others if judged[o.variant].verdict is not Verdict.SLOWER)]
    if row.interval is not None and row.interval.high < 1:  # too little to be judged slower
        row, best, other = _turned(row), other, best
    values: dict[str, object] = {
        "best": best.variant,
        "other": other.variant,
        "where": where,
        "time": duration(best.token_ns),
        "against": duration(other.token_ns),
        "count": len(timed),
        "practical": percent(Thresholds.of_recipe(one.run.recipe_resolved).practical),
        "names": words.listed([one.variant for one in level]),
    }
    text, settled = _CANT_TELL, ""
    if row.verdict is Verdict.UNLIKE:
        text, values["reason"] = _UNLIKE, row.reason
    elif row.ratio is None or row.interval is None:
        text = _TOO_FEW
    else:
        shown = digits if row.verdict is Verdict.SLOWER else ratio_text  # close to 1
        values["value"] = shown(row.ratio)
        values["known"] = _ratio_known(row, row.interval, shown, words)
        if row.verdict is Verdict.SLOWER:
            text = _FASTER
        elif row.verdict is Verdict.SAME:
            text = _SAME
        elif row.interval.low > 1:
            text = _SMALL
        if row.verdict is Verdict.CANT_TELL and row.repeats is not None:
            settled = words("{count} interleaved rounds would settle it.", count=row.repeats)
    first = ""
    if text == _FASTER and len(timed) > 2 and level == timed[:1]:
        text = _SHORTEST
    elif len(timed) > 2:
        same = all(judged[row.variant].verdict is Verdict.SAME for row in level[1:])
        first = words(
            _FASTEST if len(level) == 1 else _FASTEST_SAME if same else _NO_FASTEST, **values
        )
    after = words(_AFTER) if row.basis is Basis.UNPAIRED else ""
    return words.joined(filter(None, (first, words(text, **values), settled, after)))


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
    return {variants[row.right]: row for row in found.rows if row.figure == "tpot_ms"}


def _turned(row: Row) -> Row:
    """Return a row with its sides exchanged."""
    opposite = {Verdict.SLOWER: Verdict.FASTER, Verdict.FASTER: Verdict.SLOWER}
    known = row.interval
    return replace(
        row,
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
        return words(" (its interval is wider than ± 100 %)")
    is_of_all = row.basis is not Basis.PAIRED or between.count == row.left_repeats == (
        row.right_repeats
    )
    return words(
        " ({level} interval {low} to {high})"
        if is_of_all
        else " ({level} interval {low} to {high}, of the {count} rounds that have both)",
        count=between.count,
        level=f"{confidence(between.level)}%",
        low=shown(between.low),
        high=shown(between.high),
    )


def _known(between: Interval | None, words: Language) -> str:
    if between is None or between.is_vague:
        return words(", from too few trials for an interval")
    return words(
        " ({level} interval {low} to {high})",
        level=f"{confidence(between.level)}%",
        low=duration(between.low),
        high=duration(between.high),
    )


def _bound(variant: str, bound: TrialBound | None, words: Language) -> Iterator[str]:
    if bound is None:
        return
    names = {
        "storage": words("storage"),
        "dram": words("memory (DRAM)"),
        "compute": words("arithmetic"),
    }
    if bound.kind is None:
        yield words("No known rate of this board bounds {variant}.", variant=variant)
        return
    shown = [f"{names[kind]} {bound.shares[kind]:.0%}" for kind in nearest_bounds(bound.shares)]
    yield words(
        _BOUND if bound.measured is not False else _PERHAPS_BOUND,
        variant=variant,
        name=words.listed(shown) if len(shown) > 1 else names[bound.kind],
        share=f"{bound.share:.0%}",
    )


def _without_tokens(one: MeasuredRun, words: Language) -> Iterator[str]:
    for row in one.rows:
        for test in row.tests:
            yield words(
                "{variant}, test {name}: {rate} tokens/s on {board}.",
                variant=row.variant,
                name=test.name,
                rate=digits(test.tokens_per_second),
                board=one.run.board,
            )
        for measure in row.measures:
            error = "" if measure.error is None else f" ± {measure.error:.3g}"
            yield words(
                "{variant}: {name} is {value}{unit} on {board}.",
                variant=row.variant,
                name=measure.name,
                value=f"{measure.p50:.6g}{error}",
                unit="" if measure.unit == "1" else f" {measure.unit}",
                board=one.run.board,
            )
    if not any(row.tests or row.measures for row in one.rows):
        yield words("This run has no result: no trial of it was good.")
        for row in one.rows:
            for failure in row.failures:
                yield f"{row.variant}: {failure}"
