"""Markdown for the page of a CI job: cases that have not passed, with reasons; then the result."""

from collections.abc import Iterator

from labctl.report.ci.cases import Outcome, Suite
from labctl.report.markdown import cell, line

_WORDS = {
    Outcome.PASSED: "passed",
    Outcome.FAILED: "FAILED",
    Outcome.ERROR: "ERROR",
    Outcome.SKIPPED: "not judged",
}


def summary_markdown(suite: Suite, result: str = "") -> str:
    """Return a heading with the counts, a table of the cases, and the result below it."""
    return "\n".join([*_lines(suite), result])


def _lines(suite: Suite) -> Iterator[str]:
    counts = [f"{suite.number(one)} {word}" for one, word in _WORDS.items() if suite.number(one)]
    yield f"### {cell(suite.name)}: {', '.join(counts) or 'nothing was planned'}"
    yield ""
    if suite.verdict:
        yield cell(suite.verdict)
        yield ""
    yield line(["", "case", "found"])
    yield line([":--"] * 3)
    order = (Outcome.FAILED, Outcome.ERROR, Outcome.SKIPPED, Outcome.PASSED)
    for case in (case for one in order for case in suite.cases if case.outcome is one):
        what = f"{case.group}: {case.name}"
        yield line([_WORDS[case.outcome], cell(what), cell(case.message)])
    yield ""
