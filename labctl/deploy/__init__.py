"""Plan which files a board needs, send them, verify them."""

from typing import TYPE_CHECKING

from labctl.lazy import lazy_names

if TYPE_CHECKING:
    from labctl.deploy.pace import Pace, Stopwatch, known_rate
    from labctl.deploy.plan import DeployPlan, Object, agent_object, describe
    from labctl.deploy.preflight import problems, refuse
    from labctl.deploy.send import DeployOptions, OnProgress, Sources
else:
    __getattr__ = lazy_names(
        __name__,
        {
            "send": "DeployOptions OnProgress Sources",
            "pace": "Pace Stopwatch known_rate",
            "plan": "DeployPlan Object agent_object describe",
            "preflight": "problems refuse",
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
