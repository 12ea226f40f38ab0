"""From a recipe and a board to records that stay."""

from labctl.runs.conduct import RunRequest, conduct
from labctl.runs.deploying import deploy_recipes
from labctl.runs.observer import Observer
from labctl.runs.plan import PlannedTrial
from labctl.runs.prepare import Prepared, prepare, read_recipe
from labctl.runs.runner import Outcome

__all__ = [
    "Observer",
    "Outcome",
    "PlannedTrial",
    "Prepared",
    "RunRequest",
    "conduct",
    "deploy_recipes",
    "prepare",
    "read_recipe",
]
