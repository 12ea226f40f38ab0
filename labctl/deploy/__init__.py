"""Plan the files that a board needs, send them, verify them."""

from typing import TYPE_CHECKING

from labctl.lazy import lazy_names

if TYPE_CHECKING:
    from labctl.deploy.plan import DeployPlan, Object, agent_object, describe, problems, refuse
    from labctl.deploy.send import DeployOptions, OnProgress, Pace, Sources, Stopwatch, known_rate
else:
    __getattr__ = lazy_names(
        __name__,
        {
            "send": "DeployOptions OnProgress Sources Pace Stopwatch known_rate",
            "plan": "DeployPlan Object agent_object describe problems refuse",
        },
    )

__all__ = [
    "DeployOptions",
    "DeployPlan",
    "Object",
    "OnProgress",
    "Pace",
    "Sources",
    "Stopwatch",
    "agent_object",
    "describe",
    "known_rate",
    "problems",
    "refuse",
]
