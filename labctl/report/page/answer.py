"""The answer of a report: sentences from the data, with their uncertainty."""

from collections.abc import Iterator, Sequence

from labctl.compare import Row, Verdict, compare
from labctl.records import TrialBound, TrialRecord
from labctl.report.page.language import Language
from labctl.report.page.measured import MeasuredRun
from labctl.results.summary import VariantSummary
from labctl.stats import Interval
from labctl.units import digits, duration

#: Of so many runs each has sentences of its own.
_MOST_ANSWERS = 6

_FASTER = (
    "{best} is {value} times as fast as {other} {where}{known}: {time} a token against {against}."
)
_SHORTEST = (
    "{best} takes the shortest time of {count} variants {where}: {time} a token. It is"
    " {value} times as fast as {other}{known}, which takes {against}."
)
_SAME = (
    "{best} ({time} a token) and {other} ({against}) are equally fast {where}: ratio"
    " {value}{known}."
)
_CANT_TELL = (
    "It cannot be told {where} which is faster, {best} ({time} a token) or {other} ({against}):"
    " ratio {value}{known}."
)
_TOO_FEW = (
    "{best} took {time} a token {where}, {other} {against}: too few rounds for an interval, so that"
    " nothing tells which of them is faster."
)
_UNLIKE = "{best} ({time} a token) and {other} ({against}) are not compared {where}: {reason}."


def answers(runs: Sequence[MeasuredRun], words: Language) -> list[str]:
    """Return the answer of each run, or of all together where they are many."""
    if len(runs) == 1:
        return list(_of_run(runs[0], words))
    if len(runs) <= _MOST_ANSWERS:
        return [f"{one.short}: {sentence}" for one in runs for sentence in _of_run(one, words)]
    timed = [(row.token_ns, row, one) for one in runs for row in one.rows if row.token_ns]
    if not timed:
        return [words("None of the {count} runs has a token time.", count=len(runs))]
    fastest, slowest = min(timed, key=_by_time), max(timed, key=_by_time)
    range_told = words(
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
        range_told,
        words("Runs of different sessions: `labctl compare` judges their differences."),
    ]


def middle_bound(trials: Sequence[TrialRecord]) -> TrialBound | None:
    """Return the bound of the trial in the middle; None where no trial has one."""
    bounds = sorted((t.bound for t in trials if t.bound), key=lambda bound: bound.share)
    return bounds[len(bounds) // 2] if bounds else None


def _by_time(found: tuple[int, VariantSummary, MeasuredRun]) -> int:
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
    """Judge the fastest variant and the first of the recipe, or the next where it is that."""
    best = timed[0]
    other = next((row for row in timed[1:] if row.variant == one.rows[0].variant), timed[1])
    judged = _judged(one, timed, other if best.variant != one.rows[0].variant else best)
    row = judged[best.variant if best.variant in judged else other.variant]
    values: dict[str, object] = {
        "best": best.variant,
        "other": other.variant,
        "where": where,
        "time": duration(best.token_ns),
        "against": duration(other.token_ns),
        "count": len(timed),
    }
    text, settled = _FASTER if len(timed) == 2 else _SHORTEST, ""
    if row.verdict is Verdict.UNLIKE:
        text, values["reason"] = _UNLIKE, row.reason
    elif row.ratio is None or row.interval is None:
        text = _TOO_FEW
    else:
        is_best = best.variant in judged
        values["value"] = digits(1 / row.ratio if is_best else row.ratio)
        values["known"] = _ratio_known(row.interval, words, inverse=is_best)
        text = {Verdict.SAME: _SAME, Verdict.CANT_TELL: _CANT_TELL}.get(row.verdict, text)
        if row.verdict is Verdict.CANT_TELL and row.repeats is not None:
            settled = words("{count} interleaved rounds would settle it.", count=row.repeats)
    return words.joined(filter(None, (words(text, **values), settled)))


def _judged(
    one: MeasuredRun, timed: Sequence[VariantSummary], reference: VariantSummary
) -> dict[str, Row]:
    """Return how each other variant compares with one; the error is that over all of them."""
    sides = {side.variant: side for side in one.sides()}
    others = [row.variant for row in timed if row.variant != reference.variant]
    pairs = [(sides[reference.variant], sides[variant]) for variant in others]
    return dict(zip(others, compare(pairs, figures=("tpot_ms",)).rows, strict=True))


def _ratio_known(between: Interval, words: Language, *, inverse: bool) -> str:
    if between.is_vague:
        return words(" (its interval is wider than ± 100 %)")
    low, high = between.low, between.high
    if inverse:
        low, high = 1 / high, 1 / low
    return words(
        " ({level} interval {low} to {high})",
        level=f"{100 * between.level:.4g}%",
        low=digits(low),
        high=digits(high),
    )


def _known(between: Interval | None, words: Language) -> str:
    if between is None or between.is_vague:
        return words(", from too few trials for an interval")
    return words(
        " ({level} interval {low} to {high})",
        level=f"{between.level:.0%}",
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
        yield words("No measured rate of this board bounds {variant}.", variant=variant)
        return
    yield words(
        "{variant} is bound by {name}: at {share} of what the measured rate of the board allows.",
        variant=variant,
        name=names[bound.kind],
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
