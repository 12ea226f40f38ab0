"""A report as Markdown: all text and tables; figures are described in words."""

import re
from collections.abc import Iterator

from labctl.errors import printable_line
from labctl.report.markdown import cell, quote
from labctl.report.markdown import table as markdown_table
from labctl.report.page.content import Report, RunSection
from labctl.report.page.language import Language
from labctl.report.table import Table


def markdown(report: Report, words: Language) -> str:
    """Return a report as Markdown, with GitHub's tables (GFM 0.29, section 4.10)."""
    return "\n".join(_lines(report, words)) + "\n"


def _lines(report: Report, words: Language) -> Iterator[str]:
    yield from (f"# {cell(report.title)}", "")
    for one in report.status:
        named = f"{cell(one.run)} " if len(report.status) > 1 else ""
        yield from (f"{named}**{cell(one.line(words))}**", "")
        yield from quote(one.reason.last_lines if one.reason else ())
    yield from (f"- {name}: {cell(text)}" for name, text in report.about.items())
    yield from ("", f"## {words('Answer')}", "")
    for mark in report.marks:
        yield from (f"**{cell(mark)}**", "")
    for name, reason in report.damaged:
        yield from (
            f"**{cell(words('Left out, damaged: {name}', name=name))}** {cell(reason)}",
            "",
        )
    for answer in report.answers:
        yield from (cell(answer), "")
    yield from (f"## {words('Results')}", "")
    for table in report.tables:
        yield from _table(table)
    if report.figures:
        yield from (f"## {words('Figures')}", "")
        for figure in report.figures:
            yield from (f"### {cell(figure.title)}", "")
            yield from (cell(words.joined((figure.alt, figure.caption))), "")
    if report.runs:
        yield from (f"## {words('Conditions, checks and provenance')}", "")
    for run in report.runs:
        yield from _run(run, words)
    yield from (f"## {words('Method')}", "")
    for text in report.method:
        yield from (cell(text), "")


def _run(run: RunSection, words: Language) -> Iterator[str]:
    yield from (f"### {cell(run.heading)}", "")
    if run.remarks:
        yield from (f"#### {words('Remarks')}", "")
        for one in run.remarks:
            yield f"- {cell(one.lead + one.text)}"
            yield from (f"  {line}" for line in quote(one.last_lines))
        yield ""
    for table in run.tables:
        yield from _table(table)
    yield from (f"#### {words('Make it again')}", "")
    advice = "Save the recipe below as recipe.yaml; its file names are those of the lab."
    yield from (words(advice), "", *_verbatim("\n".join(run.commands)), "")
    yield from (f"#### {words('Recipe, as it was resolved')}", "", *_verbatim(run.recipe), "")
    yield from (f"#### {words('Facts and their origin')}", "")
    yield from markdown_table(
        (words("Fact"), words("Value"), words("Origin")),
        [(fact.name, fact.text, fact.origin) for fact in run.facts],
    )
    yield from _table(run.files)


def _table(table: Table) -> Iterator[str]:
    yield from (f"#### {cell(table.caption)}", "")
    if table.note:
        yield from (cell(table.note), "")
    headings = [f"{'>' if one.numeric else ''}{one.heading}" for one in table.columns]
    yield from markdown_table(
        headings, [[f"{one.mark} {one.text}".strip() for one in cells] for cells in table.rows]
    )


def _verbatim(text: str) -> list[str]:
    """Return a block that shows a text unchanged: its fence is longer than any fence inside."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return [fence, *(printable_line(line) for line in text.rstrip("\n").split("\n")), fence]
