"""Results of a run for CI servers: verdicts in the formats of JUnit, GitHub and GitLab."""

from typing import TYPE_CHECKING

from labctl.lazy import lazy_names

if TYPE_CHECKING:
    from labctl.report.ci.cases import Case, Outcome, Suite, refused_suite, run_suite
    from labctl.report.ci.texts import CI_FORMATS, ci_text
else:
    __getattr__ = lazy_names(
        __name__,
        {
            "cases": "Case Outcome Suite refused_suite run_suite",
            "texts": "CI_FORMATS ci_text",
        },
    )

__all__ = [
    "CI_FORMATS",
    "Case",
    "Outcome",
    "Suite",
    "ci_text",
    "refused_suite",
    "run_suite",
]
