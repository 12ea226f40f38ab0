"""Formats that merge requests of GitLab show beside JUnit: metrics, and Code Quality findings."""

import hashlib
import json
from collections.abc import Iterator

from labctl.errors import printable_line
from labctl.report.ci.cases import Outcome, Suite

#: OpenMetrics 1.0: the name of a metric with a unit ends with it.
_METRICS = {
    "token_seconds": ("seconds", "Median over the trials of the mean time of a token."),
    "ttft_seconds": ("seconds", "Median time from the program's start to its first token."),
    "tokens_per_second": (None, "Generated tokens in a second."),
    "prefill_tokens_per_second": (None, "Tokens of the prompt in a second."),
    "token_joules": ("joules", "Energy of a generated token."),
    "peak_memory_bytes": ("bytes", "Greatest resident set of a trial."),
    "head_over_last_good": (None, "Time of head over that of the last good build."),
}
_SEVERITIES = {Outcome.FAILED: "major", Outcome.ERROR: "critical", Outcome.SKIPPED: "info"}


def open_metrics(suite: Suite) -> str:
    """Return the figures of all variants in OpenMetrics' text format, with four digits.

    GitLab shows a metric as changed when its text is another one; more digits are noise.
    """
    return "".join(f"{line}\n" for line in (*_metric_lines(suite), "# EOF"))


def _metric_lines(suite: Suite) -> Iterator[str]:
    for name, (unit, text) in _METRICS.items():
        having = [case for case in suite.cases if name in case.figures]
        if not having:
            continue
        metric = f"labctl_{name}"
        yield f"# TYPE {metric} gauge"
        if unit:
            yield f"# UNIT {metric} {unit}"
        yield f"# HELP {metric} {text}"
        for case in having:
            labels = ",".join(f'{key}="{_label(value)}"' for key, value in case.labels.items())
            yield f"{metric}{{{labels}}} {case.figures[name]:.4g}"


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
