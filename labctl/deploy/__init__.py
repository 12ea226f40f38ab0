"""What must be on a board, moved there, verified."""

from labctl.deploy.deploy import deploy
from labctl.deploy.plan import DeployPlan, Object, agent_object, describe, plan

__all__ = ["DeployPlan", "Object", "agent_object", "deploy", "describe", "plan"]
