"""A comparison for people and machines: a sentence, a table, reasons."""

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from rich.console import Console

from labctl.compare.comparison import Comparison, Row, Verdict
from labctl.compare.words import change, percent, ratio_text
from labctl.records.board import Execution
from labctl.report import notebook
from labctl.report.details import plain, print_lines, print_table
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
_HEADINGS = ("compared", "figure", ">reference", ">value", ">ratio", ">interval", "verdict")
_NOT_A_BOARD = "not measured on a board ({0}): does not show the speed of one"
#: Keys of a revision; only the first that differs is shown.
_REVISION = ("build_commit", "version", *REVISION)
_WHY = {
    "revision": "",
    "varied": " (as the recipe varies it)",
    "resolved": " (it follows from the model)",
    "allowed": " (allowed)",
}
#: Verdicts whose reason says more than the cells of their row.
_EXPLAINED = (Verdict.UNLIKE, Verdict.SUSPECTED, Verdict.CANT_TELL)


def print_comparison(console: Console, found: Comparison) -> None:
    """Print the answer, the differences of the sides, a row for each figure, and the reasons."""
    print_lines(console, [f"[bold]{plain(line)}[/]" for line in sentences(found)])
    print_lines(console, [f"[yellow]{plain(line)}[/]" for line in _heading(found)])
    print_table(console, _HEADINGS, [_cells(row) for row in found.rows])
    remarks = [(row.verdict, line) for row, line in _remarks(found.rows)]
    print_lines(console, [f"[{_STYLES[verdict]}]{plain(line)}[/]" for verdict, line in remarks])
    print_lines(console, [f"[dim]{plain(legend(found))}[/]"])


def comparison_markdown(found: Comparison) -> str:
    """Return the comparison for a page of a CI system."""
    lines = [*(f"**{_safe(line)}**" for line in sentences(found)), ""]
    lines += [f"{_safe(line)}\n" for line in _heading(found)]
    names = [heading.removeprefix(">") for heading in _HEADINGS]
    rule = ["---:" if heading.startswith(">") else "---" for heading in _HEADINGS]
    rows = [names, rule, *([_safe(cell) for cell in _cells(row)] for row in found.rows)]
    lines += [f"| {' | '.join(row)} |" for row in rows]
    remarks = [f"- {_safe(line)}" for _, line in _remarks(found.rows)]
    lines += ["", *remarks, *([""] if remarks else []), _safe(legend(found))]
    return "\n".join(lines) + "\n"


def comparison_html(found: Comparison) -> str:
    """Return the comparison for a notebook."""
    return "".join(
        (
            notebook.lines(sentences(found), strong=True),
            notebook.lines(_heading(found)),
            notebook.table(_HEADINGS, [_cells(row) for row in found.rows]),
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


def _cells(row: Row) -> tuple[str, ...]:
    known = row.interval
    interval = "-"
    if known is not None and not known.is_vague:
        ends = f"{ratio_text(known.low)}-{ratio_text(known.high)}"
        interval = f"{ends} ({confidence(known.level)} %)"
    return (
        row.right,
        row.label,
        _value(row, row.left_value),
        _value(row, row.right_value),
        "-" if row.ratio is None else ratio_text(row.ratio),
        interval,
        str(row.verdict),
    )


def _value(row: Row, value: float | None) -> str:
    if value is None:
        return "-"
    return f"{digits(value)}/s" if row.more_is_faster else duration(value)


def _safe(text: str) -> str:
    """Return text that Markdown shows as plain text."""
    return "".join(f"\\{c}" if c in "\\`*_{}[]<>|#" else c for c in text)
