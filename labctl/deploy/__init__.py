"""What must be on a board, moved there, verified."""

from labctl.deploy.deploy import DeployOptions, OnProgress, deploy
from labctl.deploy.pace import Pace
from labctl.deploy.plan import DeployPlan, Object, agent_object, describe, plan
from labctl.deploy.preflight import problems, refuse
from labctl.deploy.rates import Stopwatch, known_rate
from labctl.deploy.sources import Sources

__all__ = [
    "DeployOptions",
    "DeployPlan",
    "Object",
    "OnProgress",
    "Pace",
    "Sources",
    "Stopwatch",
    "agent_object",
    "deploy",
    "describe",
    "known_rate",
    "plan",
    "problems",
    "refuse",
]
