"""The accuracies of an evaluation as a text table."""

from collections.abc import Iterator, Mapping, Sequence

from rich.console import Console
from rich.markup import escape

from labctl.evaluation.accuracy import Accuracy, AccuracyTable, Budget, Disagreement
from labctl.evaluation.budgets import CHECKED_QUESTIONS
from labctl.evaluation.differences import model_differences, sampled
from labctl.records.board import Execution
from labctl.records.evaluation import EvaluationEnd, EvaluationRecord
from labctl.report.console import plain, print_lines, print_table
from labctl.report.names import short_names
from labctl.report.page.language import Language
from labctl.report.table import ABSENT, Cell, Column, Table, named, plain_cells
from labctl.stats.describe import median
from labctl.units import counted, digits

_HEADINGS = (
    "variant", ">budget", "grader", ">right", ">accuracy", ">95% interval", ">tokens", ">cut",
    ">no answer", "",
)  # fmt: skip
#: Maximum number of characters of an answer in a table.
_SHOWN = 40


def print_accuracies(
    console: Console,
    record: EvaluationRecord,
    table: AccuracyTable,
    end: EvaluationEnd | None,
    *,
    wide: bool = False,
) -> None:
    """Print the accuracies and their notes.

    With several budgets, print the table of the experiment: a row per variant, a column per budget.
    With ``wide``, or budgets that differ between models, print a row per variant and budget.
    """
    dataset = record.dataset
    console.print(
        f"[bold]{escape(record.recipe)}[/]: {counted(len(dataset.questions), 'question')} of"
        f" {escape(dataset.name)}",
        highlight=False,
    )
    if wide or len(table.budgets) == 1 or record.model_budgets:
        rows = [(*_row(record, cell), _marks(record, cell.variant)) for cell in table.cells]
        print_table(console, _HEADINGS, rows)
    else:
        _print_by_budget(console, record, table)
    print_lines(console, [escape(line) for line in _lines(record, table, end)])
    print_lines(console, [escape(line) for line in _together(record, table)])


def print_disagreements(console: Console, table: AccuracyTable, answers: Mapping[str, str]) -> None:
    """Print every answer that graders judge differently; ``answers``: the right answers."""
    rows = [
        (
            plain(one.question),
            plain(one.variant),
            "unlimited" if one.budget is None else str(one.budget),
            plain(_shortened(answers.get(one.question, ""))),
            *(plain(_verdict(one, name)) for name in table.graders),
        )
        for one in table.disagreements
    ]
    if rows:
        print_table(console, ("question", "variant", ">budget", "answer", *table.graders), rows)


def _verdict(one: Disagreement, grader: str) -> str:
    """Return a grader's verdict and the text that it took as the answer."""
    for grade in one.grades:
        if grade.grader == grader:
            found = "no answer" if grade.extracted is None else _shortened(grade.extracted)
            return f"{'right' if grade.correct else 'wrong'}: {found}"
    return "-"


def _shortened(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def limit_tables(
    record: EvaluationRecord, table: AccuracyTable, words: Language
) -> Iterator[Table]:
    """Yield the table of the experiment for each grader that judges differently from the others.

    A row for each variant, a column for each limit.
    """
    short = short_names(table.variants)
    columns = [
        Column(words("Variant"), tip=words("A model and a prompt, as the recipe names them.")),
        *(Column(limit_text(budget, words), numeric=True) for budget in table.budgets),
    ]
    for grader, alike in table.distinct_graders.items():
        rows = [
            [
                named(variant, short, mark=_marks(record, variant)),
                *(_share(table.cell(variant, budget, grader)) for budget in table.budgets),
            ]
            for variant in table.variants
        ]
        notes = [words("Share of right answers, with its 95% interval.")]
        if alike:
            names = words.listed(alike)
            notes.append(
                words("{names}: every text is judged as by {first}.", names=names, first=grader)
            )
        caption = words("Accuracy by {grader}", grader=grader)
        yield Table(caption, columns, rows, words.joined(notes))


def limit_text(budget: Budget, words: Language) -> str:
    """Return a limit in words."""
    if budget is None:
        return words("no limit")
    return words("{count} tokens", count=budget)


def _share(cell: Accuracy | None) -> Cell:
    if cell is None or cell.share is None or cell.interval is None:
        return ABSENT
    low, high = cell.interval.low * 100, cell.interval.high * 100
    share = _percent(cell.share)
    return Cell(f"{share} ({low:.1f} – {high:.1f})", cell.share, short=share)


def _print_by_budget(console: Console, record: EvaluationRecord, table: AccuracyTable) -> None:
    for one in limit_tables(record, table, Language("en")):
        print_lines(console, [f"[dim]{plain(one.caption)}[/]"])
        print_table(console, *plain_cells(one, brief=True))
    lines = [
        f"{', '.join(alike)}: every text is judged as by {first}"
        for first, alike in table.distinct_graders.items()
        if alike
    ]
    halves = [(cell.interval.high - cell.interval.low) / 2 for cell in table.cells if cell.interval]
    if halves:
        widths = dict.fromkeys(f"{100 * half:.1f}" for half in (min(halves), max(halves)))
        lines.append(
            f"95% intervals: about ± {' to '.join(widths)} points;"
            " `labctl report --wide` has each, with lengths and counts"
        )
    else:
        lines.append("no question is answered by every variant")
    print_lines(console, [escape(line) for line in lines])


def _row(record: EvaluationRecord, cell: Accuracy) -> tuple[str, ...]:
    share, interval, tokens = cell.share, cell.interval, cell.tokens
    return (
        plain(cell.variant),
        _budget(record, cell),
        cell.grader,
        f"{cell.right}/{cell.total}",
        "-" if share is None else _percent(share),
        "-" if interval is None else f"{_percent(interval.low)} to {_percent(interval.high)}",
        digits(median(tokens)) if tokens else "-",
        str(cell.cut),
        str(cell.unanswered),
    )


def _budget(record: EvaluationRecord, cell: Accuracy) -> str:
    """Return a limit, with its time if the limit comes from a time."""
    text = "unlimited" if cell.budget is None else str(cell.budget)
    limits = record.model_budgets.get(cell.variant.partition("/")[0], ())
    if cell.budget in limits and cell.budget is not None:
        seconds = record.budget_seconds[limits.index(cell.budget)]
        text += "" if seconds is None else f" ({digits(seconds)} s)"
    return text


def _percent(share: float) -> str:
    return f"{100 * share:.1f}%"


def _marks(record: EvaluationRecord, variant: str) -> str:
    """Return marks: answers were emulated, or the model is only declared by the recipe."""
    model = variant.partition("/")[0]
    served = [one for one in record.endpoints if one.model == model]
    marks = []
    if any(one.execution is Execution.EMULATED for one in served):
        marks.append("EMULATED")
    if not all(one.sha256_proven for one in served):
        marks.append("as declared")
    return ", ".join(marks)


def _together(record: EvaluationRecord, table: AccuracyTable) -> Iterator[str]:
    """Yield the differences of models by the first grader, and the results of several samples."""
    grader = table.graders[0] if table.graders else ""
    for one in model_differences(table, grader, record.model_budgets):
        names = [each.variant for each in (one.second, one.first)]
        if record.model_budgets:
            names = [
                f"{each.variant} at {_budget(record, each)}" for each in (one.second, one.first)
            ]
        low, high, points = (100 * end for end in (one.gain.low, one.gain.high, one.gain.mean))
        yield (
            f"{' less '.join(names)}: {points:+.1f} points (95% interval"
            f" {low:+.1f} to {high:+.1f}), McNemar mid-p {one.test.mid_p:.2g}"
        ) + (f"; {one.needed} questions would show it" if one.needed else "")
    for cell in table.cells:
        if cell.grader == grader and (found := sampled(cell)):
            budget = "unlimited" if cell.budget is None else str(cell.budget)
            passes = (f"pass@{k} {_percent(share.mean)}" for k, share in found.pass_at.items())
            yield (
                f"{cell.variant} at {budget}: majority {_percent(found.majority)},"
                f" {', '.join(passes)}"
            )


def _lines(
    record: EvaluationRecord, table: AccuracyTable, end: EvaluationEnd | None
) -> Iterator[str]:
    for variant in table.variants:
        cells = (table.cell(variant, budget, table.graders[0]) for budget in table.budgets)
        over = [
            f"{cell.overruns} of {cell.total} at {_budget(record, cell)}"
            for cell in cells
            if cell and cell.overruns
        ]
        if over:
            yield f"{variant}: longer than the prompt allows: {', '.join(over)}"
    missing = max((len(cell.failed) for cell in table.cells), default=0)
    if missing:
        yield f"without an answer, and not counted: up to {counted(missing, 'question')} of a row"
    limited = sum(cell.limited for cell in table.cells)
    if limited:
        yield f"{counted(limited, 'text')} met a limit of the grader, and counted as wrong"
    if table.disagreements:
        yield f"the graders judge {counted(len(table.disagreements), 'text')} differently"
    if any(not one.sha256_proven for one in record.endpoints):
        yield (
            "as declared: labctl did not start the server, so that nothing proves which model"
            " answered"
        )
    if end is not None:
        yield from _lines_of_end(end)


def _lines_of_end(end: EvaluationEnd) -> Iterator[str]:
    for check in end.truncation:
        load = "one request at a time" if check.slots == "one" else "the run's concurrency"
        verdict = "answers are cut" if check.cutting else "every budget was asked for instead"
        if check.cutting and check.questions < CHECKED_QUESTIONS:
            verdict += f" (too few to prove it; {CHECKED_QUESTIONS} are enough)"
        yield (
            f"{check.model}, {load}: {check.disagreements} of"
            f" {counted(check.questions, 'cut answer')}"
            f" {'differs' if check.questions == 1 else 'differ'} from real limits; {verdict}"
        )
    for note in end.notes:
        yield f"note: {note}"


def gate_lines(end: EvaluationEnd) -> Sequence[str]:
    """Return a line of markup for each gate."""
    words = {True: "[green]kept[/]", False: "[red]MISSED[/]", None: "[yellow]open[/]"}
    return [f"gate {words[gate.passed]}: {plain(gate.sentence)}" for gate in end.gates]
