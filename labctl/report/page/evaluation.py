"""A report on one evaluation: accuracy, differences, and answers side by side."""

import shlex
from collections.abc import Iterator, Sequence
from itertools import combinations

import yaml

from labctl.evaluation.accuracy import Accuracy, in_both
from labctl.records.board import Execution
from labctl.records.evaluation import EndpointRecord
from labctl.report.facts import evaluation_facts
from labctl.report.figures.accuracy import evaluation_figures
from labctl.report.figures.figure import Figure, Missing
from labctl.report.page.content import Report, RunSection
from labctl.report.page.evaluation_tables import (
    MeasuredEvaluation,
    evaluation_tables,
    transcripts,
)
from labctl.report.page.language import Language
from labctl.report.page.sections import files_table, gate_remarks
from labctl.report.remarks import Remark
from labctl.stats.intervals import Interval
from labctl.stats.paired_answers import paired_difference
from labctl.units import confidence

#: Maximum share of reports with a wrongly claimed difference (Bonferroni's correction).
_ERRORS = 0.05


def evaluation_report(one: MeasuredEvaluation, words: Language) -> Report:
    """Return the report on an evaluation."""
    found = evaluation_figures(one.table, words)
    shown = list(transcripts(one, words))
    return Report(
        title=words("{recipe}: accuracy", recipe=one.record.recipe),
        about=_about(one, words),
        marks=_marks(one, words),
        answers=_answers(one, words),
        tables=list(evaluation_tables(one, words)),
        figures=[figure for figure in found if isinstance(figure, Figure)],
        missing=[figure for figure in found if isinstance(figure, Missing)],
        runs=[_section(one, words)],
        damaged=(),
        method=_method(words),
        transcripts=shown,
        transcripts_note=words(
            "{shown} of {count} questions, first those on which the variants differ; answers within"
            " the largest limit, graded by {grader}.",
            shown=len(shown),
            count=len(one.record.dataset.questions),
            grader=one.table.graders[0] if one.table.graders else "–",
        ),
    )


def _about(one: MeasuredEvaluation, words: Language) -> dict[str, str]:
    record, data = one.record, one.record.dataset
    drawn = (
        words("the first")
        if data.subset_seed is None
        else words("drawn with seed {seed}", seed=data.subset_seed)
    )
    shown = words(
        "{name}: {count} of {size} questions, {drawn}",
        name=data.name,
        count=len(data.questions),
        size=data.size,
        drawn=drawn,
    )
    if data.shots:
        shown += words(", {shots} worked examples before each", shots=data.shots)
    sampling = f"temperature {record.sampling.temperature:g}"
    if record.sampling.samples > 1:
        sampling += words(", {samples} samples", samples=record.sampling.samples)
    answered = sum(generation.failure is None for generation in one.generations)
    return {
        words("Run"): record.id,
        words("Data set"): shown,
        words("Sampling"): sampling,
        words("Servers"): words.listed(_server(endpoint) for endpoint in record.endpoints),
        words("Measured"): f"{record.started:%Y-%m-%d} (UTC)",
        words("Answers"): words("{count} of {planned}", count=answered, planned=record.planned),
    }


def _server(endpoint: EndpointRecord) -> str:
    where = f"board {endpoint.board}" if endpoint.board else endpoint.address or "this host"
    return f"{endpoint.name} ({endpoint.server or endpoint.api}, {where})"


def _marks(one: MeasuredEvaluation, words: Language) -> list[str]:
    marks = []
    if Execution.EMULATED in one.executions:
        marks.append(
            words(
                "EMULATED: a server ran on an emulated board. Answers of a real board can differ a"
                " little; no time here is a board's."
            )
        )
    if one.declared:
        marks.append(
            words(
                "AS DECLARED: the files of these models are not proven: {models}.",
                models=words.some(one.declared),
            )
        )
    return marks


def _answers(one: MeasuredEvaluation, words: Language) -> list[str]:
    """Return the accuracy of each variant at its largest limit, and the differences of models."""
    if not one.table.graders:
        return [words("Nothing is graded yet.")]
    cells, limit = one.at_largest_limit(one.table.graders[0]), one.largest_text(words)
    known = [cell for cell in cells if cell.share is not None and cell.interval]
    if not known:
        return [words("Nothing is graded yet.")]
    most = max(cell.share or 0 for cell in known)
    if not most:
        return [
            words(
                "None of the {total} answers of any variant is right, {limit}.",
                total=max(cell.total for cell in known),
                limit=limit,
            )
        ]
    best = [cell for cell in known if cell.share == most]
    assert best[0].interval
    best_sentence = words(
        "Most right answers, {limit}: {names}, {share} ({low} to {high}; {right} of {total}).",
        limit=limit,
        names=words.some(cell.variant for cell in best),
        share=f"{most:.1%}",
        low=f"{best[0].interval.low:.1%}",
        high=f"{best[0].interval.high:.1%}",
        right=best[0].right,
        total=best[0].total,
    )
    pairs = list(_pairs(known))
    level = 1 - _ERRORS / max(1, len(pairs))
    differences = (
        _comparison(first, second, found, words)
        for first, second in pairs
        if (found := _difference(first, second, level))
    )
    return [best_sentence, *differences]


def _pairs(cells: Sequence[Accuracy]) -> Iterator[tuple[Accuracy, Accuracy]]:
    """Yield the pairs of variants that differ only in the model."""
    for first, second in combinations(cells, 2):
        if _prompt(first) == _prompt(second):
            yield first, second


def _prompt(cell: Accuracy) -> str:
    return cell.variant.partition("/")[2]


def _difference(first: Accuracy, second: Accuracy, level: float) -> Interval | None:
    """Return the gain of the second on common questions; None without common questions."""
    both = in_both(first, second)
    if not both:
        return None
    shares = [
        [sum(of) / len(of) for of in side] for side in zip(*(b[1:] for b in both), strict=True)
    ]
    return paired_difference(shares[0], shares[1], level=level)


def _comparison(first: Accuracy, second: Accuracy, found: Interval, words: Language) -> str:
    better, worse, sign = (second, first, 1) if found.mean >= 0 else (first, second, -1)
    ends = sorted((sign * found.low, sign * found.high))
    values = {
        "better": better.variant,
        "worse": worse.variant,
        "points": f"{abs(found.mean) * 100:.1f}",
        "low": f"{ends[0] * 100:.1f}",
        "high": f"{ends[1] * 100:.1f}",
        "count": found.count,
        "level": f"{confidence(found.level)}%",
    }
    if ends[0] > 0:
        return words(
            "{better} is better than {worse} by {points} points ({level} interval {low} to {high},"
            " on the same {count} questions).",
            **values,
        )
    return words(
        "It is unclear which is better, {better} or {worse}: {points} points apart ({level}"
        " interval {low} to {high}, on the same {count} questions).",
        **values,
    )


def _section(one: MeasuredEvaluation, words: Language) -> RunSection:
    record = one.record
    return RunSection(
        id=record.id,
        heading=words("Run {id}", id=record.id),
        remarks=list(_remarks(one, words)),
        tables=(),
        facts=list(evaluation_facts(record)),
        commands=[
            shlex.join(("labctl", "run", "recipe.yaml")),
            shlex.join(("labctl", "report", record.id, "-o", "report.html")),
        ],
        recipe=yaml.safe_dump(record.recipe_resolved, sort_keys=False, allow_unicode=True),
        files=files_table(record.id, one.path, words),
    )


def _remarks(one: MeasuredEvaluation, words: Language) -> Iterator[Remark]:
    end = one.end
    yield from gate_remarks(end, words)
    for note in (*one.record.plan_notes, *(end.notes if end else ())):
        yield Remark(note)
    for held in end.truncation if end else ():
        yield Remark(
            words(
                "{model}, {slots}: {count} of {total} answers cut at a smaller limit differ from"
                " what the server gave at that limit.",
                model=held.model,
                slots=words("one at a time" if held.slots == "one" else "side by side"),
                count=held.disagreements,
                total=held.questions,
            ),
            tone="" if held.cutting else "bad",
        )


def _method(words: Language) -> list[str]:
    return [
        words(
            "Accuracy: right answers over graded ones, with Wilson's 95% interval over the"
            " questions; several samples of a question are one cluster. Answers missing because of"
            " a server failure are not counted; they are listed."
        ),
        words(
            "Difference of two models: over the questions that both were asked, by a paired"
            " bootstrap of questions. It is surer than two intervals beside each other look."
        ),
        words(
            "Limit: the largest number of generated tokens. Answers within smaller limits may be"
            " taken from a longer one, at the token where the limit would have ended it, where the"
            " prompt does not state the limit."
        ),
    ]
