"""Suites of cases as text, in the formats of CI servers."""

from collections.abc import Callable, Mapping

from labctl.report.ci.cases import Suite
from labctl.report.ci.github import workflow_commands
from labctl.report.ci.gitlab import code_quality, open_metrics
from labctl.report.ci.junit import junit_xml
from labctl.report.ci.summary import summary_markdown

_TEXTS: Mapping[str, Callable[[Suite, str], str]] = {
    "junit": junit_xml,
    "summary": summary_markdown,
    "github": lambda suite, _: workflow_commands(suite),
    "gitlab-metrics": lambda suite, _: open_metrics(suite),
    "gitlab-code-quality": lambda suite, _: code_quality(suite),
}
CI_FORMATS = tuple(_TEXTS)
#: Format -> format of the result itself, for formats that include it.
_WITH = {"junit": "table", "summary": "md"}


def ci_text(form: str, suite: Suite, result: Callable[[str], str] | None = None) -> str:
    """Return a suite in one of :data:`CI_FORMATS`.

    ``result`` returns the suite's result in a format for people, for formats that include it
    besides the cases.
    """
    own = _WITH.get(form)
    return _TEXTS[form](suite, result(own) if own and result else "")
