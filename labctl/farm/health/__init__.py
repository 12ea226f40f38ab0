"""Health of boards: checks against each board's own history, verdicts, suspicion."""

from typing import TYPE_CHECKING

from labctl.lazy import lazy_names

if TYPE_CHECKING:
    from labctl.farm.health.between_jobs import checks_before_jobs, require_health
    from labctl.farm.health.checking import CheckResult, check, check_if_due
    from labctl.farm.health.checks_due import Due, due, suspicion
    from labctl.farm.health.verdict import Finding, Verdict
else:
    __getattr__ = lazy_names(
        __name__,
        {
            "between_jobs": "checks_before_jobs require_health",
            "checking": "CheckResult check check_if_due",
            "checks_due": "Due due suspicion",
            "verdict": "Finding Verdict",
        },
    )

__all__ = [
    "CheckResult",
    "Due",
    "Finding",
    "Verdict",
    "check",
    "check_if_due",
    "checks_before_jobs",
    "due",
    "require_health",
    "suspicion",
]
