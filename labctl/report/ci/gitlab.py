"""Formats that GitLab's merge requests show besides JUnit: metrics, and Code Quality findings."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from labctl.errors import printable_line
from labctl.evaluation.serving.figures import OF_A_LOAD
from labctl.figures.trials import FIGURES
from labctl.report.ci.cases import Outcome, Suite

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

#: End of a figure's name -> unit of its metric, and the unit's size. OpenMetrics 1.0 uses base
#: units, and the name of a metric ends with its unit.
_BASE = {"ns": ("seconds", 1e-9), "bytes": ("bytes", 1.0)}
_SEVERITIES = {Outcome.FAILED: "major", Outcome.ERROR: "critical", Outcome.SKIPPED: "info"}


def open_metrics(suite: Suite) -> str:
    """Return the figures of all variants in OpenMetrics' text format, with four digits.

    GitLab shows a metric as changed if its text differs; more digits would be noise.
    """
    from prometheus_client.openmetrics.exposition import generate_latest  # this import takes 30 ms

    return str(generate_latest(_Figures(suite)), "utf-8")


@dataclass(frozen=True)
class _Figures:
    """Collector of a suite's figures for prometheus-client."""

    suite: Suite

    def collect(self) -> Iterator["Metric"]:
        """Yield each figure with the values of all variants."""
        from prometheus_client.metrics_core import Metric

        texts = {
            load_figure.name: load_figure.tip or load_figure.title for load_figure in OF_A_LOAD
        }
        texts |= {figure.name: figure.tip or figure.title for figure in FIGURES}
        texts["head_over_last_good"] = "Time of head over that of the last good build."
        for name, text in texts.items():
            stem, _, end = name.rpartition("_")
            unit, size = _BASE.get(end, ("", 1.0))
            found = Metric(f"labctl_{f'{stem}_{unit}' if unit else name}", text, "gauge", unit)
            for case in self.suite.cases:
                if name in case.figures:
                    labels = {key: printable_line(value) for key, value in case.labels.items()}
                    found.add_sample(found.name, labels, float(f"{case.figures[name] * size:.4g}"))
            if found.samples:
                yield found


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
