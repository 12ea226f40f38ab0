"""Workflow commands of GitHub Actions, which annotate a run from its standard output.

Escapes follow GitHub's toolkit (actions/toolkit, packages/core/src/command.ts): ``%`` and line feed
in a message, also colon and comma in a property. The text never has carriage returns.
"""

from collections.abc import Iterator

from labctl.errors import printable
from labctl.report.ci.cases import Case, Outcome, Suite

#: GitHub shows ten annotations of each kind for a step, so the important ones come first.
_ORDER = (Outcome.FAILED, Outcome.ERROR, Outcome.SKIPPED)
_COUNTED = ("passed", "failed", "errors", "skipped")
_COMMANDS = {Outcome.FAILED: "error", Outcome.ERROR: "error", Outcome.SKIPPED: "warning"}


def workflow_commands(suite: Suite) -> str:
    """Return a command for each case that has not passed, and a notice with a summary."""
    cases = (case for outcome in _ORDER for case in suite.cases if case.outcome is outcome)
    return "".join(f"{line}\n" for line in (*map(_command, cases), *_notice(suite)))


def _command(case: Case) -> str:
    title = f"{case.group}: {case.name}"
    return f"::{_COMMANDS[case.outcome]} title={_property(title)}::{_data(case.message)}"


def _notice(suite: Suite) -> Iterator[str]:
    counts = [f"{suite.number(one)} {word}" for one, word in zip(Outcome, _COUNTED, strict=True)]
    text = "; ".join(filter(None, [suite.verdict, ", ".join(counts)]))
    yield f"::notice title={_property(suite.name)}::{_data(text)}"


def _data(text: str) -> str:
    return printable(text).replace("%", "%25").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
