"""Plan which files a board needs, send them, verify them."""

from typing import TYPE_CHECKING

from labctl.lazy import lazy_names

if TYPE_CHECKING:
    from labctl.deploy.deploy import DeployOptions, OnProgress
    from labctl.deploy.pace import Pace
    from labctl.deploy.plan import DeployPlan, Object, agent_object, describe
    from labctl.deploy.preflight import problems, refuse
    from labctl.deploy.rates import Stopwatch, known_rate
    from labctl.deploy.sources import Sources
else:
    __getattr__ = lazy_names(
        __name__,
        {
            "deploy": "DeployOptions OnProgress",
            "pace": "Pace",
            "plan": "DeployPlan Object agent_object describe",
            "preflight": "problems refuse",
            "rates": "Stopwatch known_rate",
            "sources": "Sources",
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
