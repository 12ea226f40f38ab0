"""The objects that a controller of an evaluation needs."""

from dataclasses import dataclass

from labctl.evaluation.directory import EvaluationDirectory
from labctl.evaluation.graders.pool import GraderPool
from labctl.evaluation.plan import EvaluationPlan
from labctl.evaluation.question import Dataset
from labctl.evaluation.recipe import EvaluationRecipe


@dataclass(frozen=True)
class Work:
    """A planned evaluation with its questions, its directory and its graders."""

    recipe: EvaluationRecipe
    directory: EvaluationDirectory
    plan: EvaluationPlan
    dataset: Dataset
    pool: GraderPool
