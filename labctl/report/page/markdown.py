"""A report as Markdown: all text and tables; figures are described in words."""

import re
from collections.abc import Iterator, Sequence

from labctl.errors import printable_line
from labctl.report.markdown import quote
from labctl.report.page.content import Report, RunSection
from labctl.report.page.language import Language
from labctl.report.table import Table


def markdown(report: Report, words: Language) -> str:
    """Return a report as Markdown, with GitHub's tables (GFM 0.29, section 4.10)."""
    return "\n".join(_lines(report, words)) + "\n"


def _lines(report: Report, words: Language) -> Iterator[str]:
    yield from (f"# {_text(report.title)}", "")
    for one in report.status:
        yield from (f"**{_text(one.line(words))}**", "")
        yield from quote(one.reason.last_lines if one.reason else ())
    yield from (f"- {name}: {_text(text)}" for name, text in report.about.items())
    yield from ("", f"## {words('Answer')}", "")
    for mark in report.marks:
        yield from (f"**{_text(mark)}**", "")
    for name, reason in report.damaged:
        yield from (
            f"**{_text(words('Left out, damaged: {name}', name=name))}** {_text(reason)}",
            "",
        )
    for answer in report.answers:
        yield from (_text(answer), "")
    yield from (f"## {words('Results')}", "")
    for table in report.tables:
        yield from _table(table)
    if report.figures:
        yield from (f"## {words('Figures')}", "")
        for figure in report.figures:
            yield from (f"### {_text(figure.title)}", "")
            yield from (_text(words.joined((figure.alt, figure.caption))), "")
    if report.runs:
        yield from (f"## {words('Conditions, checks and provenance')}", "")
    for run in report.runs:
        yield from _run(run, words)
    yield from (f"## {words('Method')}", "")
    for text in report.method:
        yield from (_text(text), "")


def _run(run: RunSection, words: Language) -> Iterator[str]:
    yield from (f"### {_text(run.heading)}", "")
    if run.remarks:
        yield from (f"#### {words('Remarks')}", "")
        for one in run.remarks:
            yield f"- {_text(one.lead + one.text)}"
            yield from (f"  {line}" for line in quote(one.last_lines))
        yield ""
    for table in run.tables:
        yield from _table(table)
    yield from (f"#### {words('Make it again')}", "")
    advice = "Save the recipe below as recipe.yaml; its file names are those of the lab."
    yield from (words(advice), "", *_verbatim("\n".join(run.commands)), "")
    yield from (f"#### {words('Recipe, as it was resolved')}", "", *_verbatim(run.recipe), "")
    yield from (f"#### {words('Facts and their origin')}", "")
    yield _row((words("Fact"), words("Value"), words("Origin")))
    yield _row((":--",) * 3)
    for fact in run.facts:
        yield _row([_text(text) for text in (fact.name, fact.text, fact.origin)])
    yield ""
    yield from _table(run.files)


def _table(table: Table) -> Iterator[str]:
    yield from (f"#### {_text(table.caption)}", "")
    if table.note:
        yield from (_text(table.note), "")
    yield _row([_text(column.heading) for column in table.columns])
    yield _row(["--:" if column.numeric else ":--" for column in table.columns])
    for cells in table.rows:
        yield _row([_text(f"{cell.mark} {cell.text}".strip()) for cell in cells])
    yield ""


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _verbatim(text: str) -> list[str]:
    """Return a block that shows a text unchanged: its fence is longer than any fence inside."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return [fence, *(printable_line(line) for line in text.rstrip("\n").split("\n")), fence]


def _text(text: str) -> str:
    """Return text of boards and people for a Markdown line: no markup, link, cell, HTML."""
    text = re.sub(r"([\\`*\[\]<|&~])", r"\\\1", printable_line(text))
    text = re.sub(r"(?<!\w)_|_(?!\w)", r"\\_", text)
    return re.sub(r"^([#>+-]|\d+[.)])(?=\s|$)", r"\\\1", text)
