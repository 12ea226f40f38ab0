"""Formats that merge requests of GitLab show beside JUnit: metrics, and Code Quality findings."""

import hashlib
import json
from collections.abc import Iterator

from labctl.errors import printable_line
from labctl.figures.trials import FIGURES
from labctl.report.ci.cases import Outcome, Suite

#: OpenMetrics 1.0 has base units, and the name of a metric with a unit ends with it: unit of a
#: figure -> that of its metric, and its size.
_BASE = {"ns": ("seconds", 1e-9), "bytes": ("bytes", 1.0)}
_SEVERITIES = {Outcome.FAILED: "major", Outcome.ERROR: "critical", Outcome.SKIPPED: "info"}


def open_metrics(suite: Suite) -> str:
    """Return the figures of all variants in OpenMetrics' text format, with four digits.

    GitLab shows a metric as changed when its text is another one; more digits are noise.
    """
    return "".join(f"{line}\n" for line in (*_metric_lines(suite), "# EOF"))


def _metric_lines(suite: Suite) -> Iterator[str]:
    for figure in FIGURES:
        yield from _family(suite, figure.name, figure.unit, figure.tip or figure.title)
    text = "Time of head over that of the last good build."
    yield from _family(suite, "head_over_last_good", "number", text)


def _family(suite: Suite, key: str, of: str, text: str) -> Iterator[str]:
    """Yield the lines of the metric of a figure, in the unit ``of``, if a case has it."""
    having = [case for case in suite.cases if key in case.figures]
    if not having:
        return
    unit, size = _BASE.get(of, ("", 1.0))
    metric = f"labctl_{key}" if of != "ns" else f"labctl_{key.removesuffix('_ns')}_{unit}"
    yield f"# TYPE {metric} gauge"
    if metric.endswith(unit or "-"):
        yield f"# UNIT {metric} {unit}"
    yield f"# HELP {metric} {text}"
    for case in having:
        labels = ",".join(f'{label}="{_label(value)}"' for label, value in case.labels.items())
        yield f"{metric}{{{labels}}} {case.figures[key] * size:.4g}"


def _label(value: str) -> str:
    escaped = printable_line(value).replace("\\", "\\\\")
    return escaped.replace('"', '\\"').replace("\n", "\\n")


def code_quality(suite: Suite) -> str:
    """Return a finding for each case that has not passed (GitLab's Code Quality report format).

    The fingerprint depends only on the case's name: GitLab uses it to find changes of a merge
    request.
    """
    found = [
        {
            "description": printable_line(f"{case.group}: {case.name}: {case.message}"),
            "check_name": f"labctl: {case.kind or case.outcome}",
            "fingerprint": hashlib.sha256(f"{case.group}\0{case.name}".encode()).hexdigest(),
            "severity": _SEVERITIES[case.outcome],
            "location": {
                "path": case.file or f"recipes/{case.recipe}.yaml",
                "lines": {"begin": 1},
            },
        }
        for case in suite.cases
        if case.outcome is not Outcome.PASSED
    ]
    return json.dumps(found, indent=2) + "\n"
