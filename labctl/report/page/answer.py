"""The answer of a report: sentences from the data, with their uncertainty."""

from collections.abc import Iterator, Sequence
from itertools import chain, islice

from labctl.compare.comparison import Comparison
from labctl.compare.words import percent
from labctl.performance.bottleneck import nearest_bounds
from labctl.records.trial import TrialBound
from labctl.report.page.comparison import MOST_RUNS, comparison_sentences, is_refused, reference_run
from labctl.report.page.fastest import fastest, takes
from labctl.report.page.language import MOST_NAMES, Language
from labctl.report.page.measured import MeasuredRun
from labctl.report.result_tables import middle_bound
from labctl.report.tuning import sentences
from labctl.results.summary import VariantSummary, repeats_of
from labctl.units import digits, duration

_BOUND = "{variant} is bound by {name}: at {share} of what the measured rate of the board allows."
_PERHAPS_BOUND = (
    "{variant} is bound by {name} if the board is as expected: at {share} of what the rate allows"
    " that its target expects; `labctl boards probe` measures the board's own."
)


def answers(runs: Sequence[MeasuredRun], compared: Comparison | None, words: Language) -> list[str]:
    """Return the answer of a run; of several, their comparison, and what went wrong in each.

    ``compared``: comparison of the runs' token times; None without one.
    """
    if len(runs) == 1:
        return [*_of_run(runs[0], words), *_problems(runs[0], words)]
    problems = [[f"{one.short}: {text}" for text in _problems(one, words)] for one in runs]
    if len(runs) <= MOST_RUNS:
        return [*_of_few(runs, compared, words), *chain.from_iterable(problems)]
    found = list(_of_series(runs, words))
    found.append(words("Whether these runs differ is not judged here: labctl compare does it."))
    if bad := [one.short for one, texts in zip(runs, problems, strict=True) if texts]:
        text = "Trials or checks failed, or gates were missed, in {count} of {total} runs: {names}."
        found.append(words(text, count=len(bad), total=len(runs), names=words.some(bad)))
    return found


def _of_few(
    runs: Sequence[MeasuredRun], compared: Comparison | None, words: Language
) -> Iterator[str]:
    """Yield the comparison; if nothing was comparable, the answer of each run."""
    reference = reference_run(runs)
    if compared is None or is_refused(compared):
        for one in (reference, *(one for one in runs if one is not reference)):
            yield from (f"{one.short}: {text}" for text in _of_run(one, words))
    if compared is None:
        yield words("No variant of one of these runs is compared with one of another.")
    else:
        yield from comparison_sentences(compared, where_of(reference, words), words)
        if len(compared.rows) > MOST_NAMES and not is_refused(compared):
            yield from _of_series(runs, words)


def _of_series(runs: Sequence[MeasuredRun], words: Language) -> Iterator[str]:
    """Yield for each variant and board in how much time the runs' estimates lie."""
    series: dict[tuple[str, str], list[tuple[float, str]]] = {}
    recipes = {one.run.recipe for one in runs}
    for one in runs:
        for row in one.rows:
            if row.token_ns:
                of = row.variant if len(recipes) == 1 else f"{row.variant} ({one.run.recipe})"
                key = (of, where_of(one, words))
                series.setdefault(key, []).append((row.token_ns, one.short))
    if not series:
        yield words("None of the {count} runs has a token time.", count=len(runs))
        return
    for (variant, where), times in islice(series.items(), MOST_NAMES):
        (low, first), (high, last) = min(times), max(times)
        yield words(
            "{variant} takes {low} (run {run}) to {high} (run {other}) a token {where}, in"
            " {count} runs.",
            variant=variant,
            low=duration(low),
            run=first,
            high=duration(high),
            other=last,
            where=where,
            count=len(times),
        )
    if (more := len(series) - MOST_NAMES) > 0:
        yield words("The table has {count} more variants.", count=more)


def _of_run(one: MeasuredRun, words: Language) -> Iterator[str]:
    if one.measured.tuned is not None:
        yield from sentences(one.measured.tuned, words)
        return
    timed = sorted((row for row in one.rows if row.token_ns), key=lambda row: row.token_ns or 0)
    if not timed:
        yield from _without_tokens(one, words)
    else:
        yield from _of_times(one, timed, words)


def _problems(one: MeasuredRun, words: Language) -> Iterator[str]:
    """Yield what went wrong in a run that has a result."""
    timed = [row for row in one.rows if row.token_ns]
    failed = {row.variant: row.trials_failed + row.trials_skipped for row in one.rows}
    if one.measured.tuned is None and timed and any(failed.values()):  # a search's table says why
        yield words(
            "Trials without a result: {count}, of {names}.",
            count=sum(failed.values()),
            names=words.some(name for name, count in failed.items() if count),
        )
    elif (
        one.measured.tuned is None
        and timed
        and one.status.is_bad
        and (good := one.status.good) < (total := one.status.total)
    ):
        text = "Only {good} of the {total} planned trials are in these figures."
        yield words(text, good=good, total=total)
    if any(row.checks_failed for row in timed):
        names = dict.fromkeys(name for row in timed for name in row.checks_failed)
        yield words("Checks failed, see the table: {names}.", names=words.some(names))
    if missed := [gate for gate in one.gates if gate.passed is False]:
        yield words(
            "{count} of {total} gates were missed.", count=len(missed), total=len(one.gates)
        )


def where_of(one: MeasuredRun, words: Language) -> str:
    """Return where a run was measured, for the middle of a sentence."""
    board = words("on {board}", board=one.run.board)
    if not one.is_of_a_board:
        board = words("{board} (not the speed of a board)", board=board)
    return board


def _of_times(one: MeasuredRun, timed: Sequence[VariantSummary], words: Language) -> Iterator[str]:
    where = where_of(one, words)
    if len(timed) == 1:
        yield takes(timed[0], where, words)
    else:
        yield words.joined(fastest(one, timed, where, words))
    yield from _how_sure(one, timed, words)
    for row in timed[:2]:
        yield from _bound(row.variant, middle_bound(one.good[row.variant]), words)


def _how_sure(one: MeasuredRun, timed: Sequence[VariantSummary], words: Language) -> Iterator[str]:
    """Yield the number of repeats, and how far those of one variant lie apart."""
    repeats = [[each.value for each in repeats_of(one.good[row.variant])] for row in timed]
    spreads = [max(values) / min(values) - 1 for values in repeats if len(values) > 1]
    if not spreads:
        return
    low, high = (str(edge(map(len, repeats))) for edge in (min, max))
    if low == "1":
        yield words(
            "How sure: hardly, while a variant has one repeat; the others have up to {high}.",
            high=high,
        )
    else:
        yield words(
            "How sure: {count} repeats of each variant, the slowest of one at most {spread} above"
            " its fastest.",
            count=low if low == high else words("{low} to {high}", low=low, high=high),
            spread=percent(max(spreads)),
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
        yield words(
            "What limits the speed of {variant} is not known: no known rate of this board"
            " explains it.",
            variant=variant,
        )
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
        yield words(
            "This run has no result yet."
            if one.status.state == "running"
            else "This run has no result: no trial of it was good."
        )
        for row in one.rows:
            for failure in row.failures:
                yield f"{row.variant}: {failure}"
