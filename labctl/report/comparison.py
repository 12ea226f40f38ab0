"""A comparison for people and machines: a sentence, a table, reasons."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from rich.console import Console

from labctl.compare.comparison import Comparison, Row, Verdict
from labctl.compare.likeness import MACHINE
from labctl.compare.words import change, percent, ratio_text
from labctl.records.board import Execution
from labctl.report import notebook
from labctl.report.console import plain, print_lines, print_table
from labctl.report.markdown import cell, table
from labctl.report.names import short_names
from labctl.report.page.language import Language
from labctl.report.result_tables import SHORT_BOUNDS
from labctl.report.table import ABSENT, Cell, Column, Table, Tone, named, plain_cells
from labctl.results.comparability import REVISION
from labctl.results.summary import ESTIMATE
from labctl.units import confidence, digits, duration

_STYLES = {
    Verdict.UNLIKE: "yellow",
    Verdict.SAME: "green",
    Verdict.SLOWER: "bold red",
    Verdict.FASTER: "bold green",
    Verdict.SUSPECTED: "yellow",
    Verdict.CANT_TELL: "yellow",
}
#: Verdict -> its word on a page.
_VERDICTS = {
    Verdict.UNLIKE: "unlike",
    Verdict.SAME: "same",
    Verdict.SLOWER: "slower",
    Verdict.FASTER: "faster",
    Verdict.SUSPECTED: "suspected",
    Verdict.CANT_TELL: "can't tell",
}
_NOT_A_BOARD = "not measured on a board ({0}): does not show the speed of one"
#: Keys of a revision; only the first that differs is shown.
_REVISION = ("build_commit", "version", *REVISION)
_WHY = {
    "revision": "",
    "varied": " (as the recipe varies it)",
    "resolved": " (it follows from the model)",
    "allowed": " (allowed)",
    "machine": " (of the boards)",
}
#: Verdicts whose reason says more than the cells of their row.
_EXPLAINED = (Verdict.UNLIKE, Verdict.SUSPECTED, Verdict.CANT_TELL)


def print_comparison(console: Console, found: Comparison) -> None:
    """Print the answer, the differences of the sides, a row for each figure, and the reasons."""
    print_lines(console, [f"[bold]{plain(line)}[/]" for line in sentences(found)])
    print_lines(console, [f"[yellow]{plain(line)}[/]" for line in _heading(found)])
    print_table(console, *plain_cells(rows_table(found, Language("en")), brief=True))
    remarks = [(row.verdict, line) for row, line in _remarks(found.rows)]
    print_lines(console, [f"[{_STYLES[verdict]}]{plain(line)}[/]" for verdict, line in remarks])
    print_lines(console, [f"[dim]{plain(legend(found))}[/]"])


def comparison_markdown(found: Comparison) -> str:
    """Return the comparison for a page of a CI system."""
    lines = [*(f"**{cell(line)}**" for line in sentences(found)), ""]
    lines += [f"{cell(line)}\n" for line in _heading(found)]
    lines += table(*plain_cells(rows_table(found, Language("en")), brief=True))
    remarks = [f"- {cell(line)}" for _, line in _remarks(found.rows)]
    lines += [*remarks, *([""] if remarks else []), cell(legend(found))]
    return "\n".join(lines) + "\n"


def comparison_html(found: Comparison) -> str:
    """Return the comparison for a notebook."""
    return "".join(
        (
            notebook.lines(sentences(found), strong=True),
            notebook.lines(_heading(found)),
            notebook.table(*plain_cells(rows_table(found, Language("en")), brief=True)),
            notebook.lines([*(text for _, text in _remarks(found.rows)), legend(found)]),
        )
    )


def comparison_document(found: Comparison) -> dict[str, Any]:
    """Return the comparison for machines: all fields; times in ns, shares as 0.03 for 3 %."""
    return {
        "estimate": ESTIMATE,
        "thresholds": asdict(found.thresholds),
        "execution": sorted(found.execution),
        "rows": [asdict(row) for row in found.rows],
    }


def sentences(found: Comparison) -> list[str]:
    """Return the answer: a sentence for each pair of sides."""
    pairs: dict[tuple[str, str], list[Row]] = {}
    for row in found.rows:
        pairs.setdefault((row.left, row.right), []).append(row)
    return [
        f"{right} compared with {left}: {', '.join(map(_clause, rows))}."
        if any(row.verdict is not Verdict.UNLIKE for row in rows)
        else f"{right} and {left} are unlike: they are not compared."
        for (left, right), rows in pairs.items()
    ]


def _clause(row: Row) -> str:
    if row.verdict in (Verdict.SLOWER, Verdict.FASTER):
        return f"{row.label} {change(row)}"
    if row.verdict is Verdict.SUSPECTED:
        return f"{row.label} perhaps {change(row)}"
    return f"{row.label} {row.verdict}"


def legend(found: Comparison) -> str:
    """Return a sentence on the rules of the verdicts."""
    limits = found.thresholds
    return (
        f"reference, value, ratio: {ESTIMATE}s over the repeats; same: within"
        f" ± {percent(limits.same_within)}; slower, faster: more than {percent(limits.practical)};"
        f" {percent(limits.error)} error over all rows (Holm)."
    )


def _heading(found: Comparison) -> list[str]:
    """Return lines that every reader needs first: not a board, moved runs, allowed differences."""
    others = sorted(found.execution - {str(Execution.BOARD)})
    lines = [_NOT_A_BOARD.format(", ".join(others).upper())] if others else []
    if boards := sorted({name for row in found.rows for name in row.moved}):
        lines.append(f"runs moved between boards: {', '.join(boards)}")
    allowed: dict[str, list[str]] = {}
    for row in found.rows:
        revisions = [one.key for one in row.differences if one.allowed == "revision"]
        shown_key = next((key for key in _REVISION if key in revisions), None)
        for one in row.differences:
            if one.allowed is not None and (one.key not in revisions or one.key == shown_key):
                allowed.setdefault(f"{one}{_WHY[one.allowed]}", []).append(row.right)
    rights = {row.right for row in found.rows}
    for text, of in allowed.items():
        whose = "" if set(of) == rights else f"{', '.join(dict.fromkeys(of))}: "
        lines.append(f"differ in {whose}{text}")
    return lines


def _remarks(rows: Iterable[Row]) -> list[tuple[Row, str]]:
    """Return reasons that are not in the cells, each once for all its figures, and warnings."""
    found: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if row.verdict in _EXPLAINED:
            found.setdefault((row.right, f"{row.verdict}: {row.reason}"), []).append(row)
        for warning in row.warnings:
            found.setdefault((row.right, f"warning: {warning}"), []).append(row)
    return [(of[0], f"{right}{_labels(of, text)}: {text}") for (right, text), of in found.items()]


def _labels(rows: Iterable[Row], text: str) -> str:
    """Name the figures of a reason; differences and warnings belong to no particular figure."""
    if text.startswith((Verdict.UNLIKE, "warning")):
        return ""
    return f" {', '.join(row.label for row in rows)}"


def rows_table(found: Comparison, words: Language) -> Table:
    """Return a row for each figure of each pair, as ``labctl compare`` judges them."""
    columns = [
        Column(words("Compared")),
        Column(words("Compared with"), roomy=True),
        Column(words("Figure")),
        Column(words("Reference"), numeric=True),
        Column(words("Value"), numeric=True),
        Column(words("Ratio"), numeric=True, tip=words("Value over the reference's.")),
        Column(words("Interval"), numeric=True, tip=words("Of the ratio.")),
        Column(words("Verdict")),
        Column(words("Reason"), wide=True, roomy=True),
    ]
    if shares := _has_shares(found):
        tip = words("The nearest ceiling of each board, reference first, and the share reached.")
        columns.insert(5, Column(words("Of the ceiling"), tip=tip))
    note = words("As `labctl compare` judges: unlike, same, slower, faster, or can't tell.")
    short = short_names(name for row in found.rows for name in (row.right, row.left))
    rows = [_cells(row, short, words) for row in found.rows]
    if shares:
        for cells, row in zip(rows, found.rows, strict=True):
            cells.insert(5, _shares(row, words))
    if said := "; ".join(filter(None, dict.fromkeys(map(_machines, found.rows)))):
        note += " " + words("The boards differ in {what}.", what=said)
    return Table(words("Runs compared"), tuple(columns), rows, note)


def _has_shares(found: Comparison) -> bool:
    """Return True if boards were compared and a ceiling is known: times alone are no judgement."""
    return any(row.is_across_machines and (row.left_share or row.right_share) for row in found.rows)


def _shares(row: Row, words: Language) -> Cell:
    if row.left_share is None and row.right_share is None:
        return ABSENT
    sides = (
        "-" if side is None else f"{words(SHORT_BOUNDS[side[0]])} {side[1]:.0%}"
        for side in (row.left_share, row.right_share)
    )
    return Cell(" / ".join(sides))


def _machines(row: Row) -> str:
    """Name the properties in which the boards of a row differ; empty for one board."""
    if not row.is_across_machines:
        return ""
    keys = ("board", "target", "kernel", "os_version", "governor", *MACHINE)
    return ", ".join(map(str, (one for one in row.differences if one.key in keys)))


def _cells(row: Row, short: Mapping[str, str], words: Language) -> list[Cell]:
    known, interval = row.interval, ABSENT
    if known is not None and not known.is_vague:
        ends = f"{ratio_text(known.low)}–{ratio_text(known.high)}"
        interval = Cell(f"{ends} ({confidence(known.level)}%)", known.low)
    tone: Tone = "bad" if row.verdict is Verdict.SLOWER else ""
    return [
        named(row.right, short),
        named(row.left, short),
        Cell(words.word(row.label)),
        _value(row, row.left_value),
        _value(row, row.right_value),
        ABSENT if row.ratio is None else Cell(ratio_text(row.ratio), row.ratio),
        interval,
        Cell(words(_VERDICTS[row.verdict]), tone=tone),
        Cell("; ".join((row.reason, *row.warnings)), recorded=True),
    ]


def _value(row: Row, value: float | None) -> Cell:
    if value is None:
        return ABSENT
    return Cell(f"{digits(value)}/s" if row.more_is_faster else duration(value), value)
