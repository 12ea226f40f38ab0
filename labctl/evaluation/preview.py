"""The plan of an evaluation before any server is asked."""

from dataclasses import asdict, dataclass
from typing import Any

from labctl.config.lab import LabFile
from labctl.evaluation.datasets.load import load_dataset
from labctl.evaluation.limits import limits_of
from labctl.evaluation.plan import EvaluationPlan, PlannedVariant, plan_of
from labctl.evaluation.recipe import EvaluationRecipe
from labctl.evaluation.recipe_parts import UNLIMITED
from labctl.records.trial import ModelIdentity


@dataclass(frozen=True)
class PreviewRow:
    """One variant: number of generations, their limits, and the source of smaller ones."""

    variant: str
    generations: int
    limits: str
    smaller: str


@dataclass(frozen=True)
class Preview:
    """A plan in numbers. ``seconds`` is the longest time; None: unknown."""

    questions: int
    generations: int
    checks: int
    rows: tuple[PreviewRow, ...]
    seconds: float | None
    seconds_from: str

    def document(self) -> dict[str, Any]:
        """Return it as JSON."""
        return asdict(self)


def preview(recipe: EvaluationRecipe, lab: LabFile) -> Preview:
    """Return the requests of an evaluation in numbers; fetch only the questions.

    Raises ConfigError.
    """
    dataset = load_dataset(recipe.dataset, lab.root)
    identities = {key: _identity(recipe, key) for key in recipe.evaluated_models()}
    limits = limits_of(recipe, lab.root / "runs", identities)
    plan = plan_of(
        recipe, tuple(q.id for q in dataset.questions), limits.all_tokens, limits.by_model
    )
    rows = tuple(_row(plan, variant) for variant in plan.variants)
    seconds = _seconds(recipe, plan, limits.token_seconds)
    return Preview(
        questions=len(plan.questions),
        generations=plan.planned,
        checks=sum(len(list(plan.checks(model))) for model in recipe.evaluated_models()),
        rows=rows,
        seconds=seconds,
        seconds_from="if every answer reaches its limit, one at a time for each model",
    )


def _identity(recipe: EvaluationRecipe, key: str) -> ModelIdentity:
    """Return the facts about a model that the recipe alone contains."""
    declared = recipe.models[key].declared
    sha256 = declared.sha256 if declared else None
    return ModelIdentity(key=key, file="", sha256=sha256 or "", size_bytes=None)


def _row(plan: EvaluationPlan, variant: PlannedVariant) -> PreviewRow:
    if variant.one_token:
        return PreviewRow(variant.name, len(plan.questions) * plan.samples, "1", "-")
    limits = ", ".join(UNLIMITED if one is None else str(one) for one in variant.first_limits)
    cut = ", ".join(str(one) for one in variant.limits[:-1]) if variant.cut else ""
    return PreviewRow(
        variant.name,
        len(plan.questions) * plan.samples * len(variant.first_limits),
        limits,
        f"cut at {cut}" if cut else "-",
    )


def _seconds(
    recipe: EvaluationRecipe, plan: EvaluationPlan, token_seconds: dict[str, float]
) -> float | None:
    longest = []
    for model in recipe.evaluated_models():
        limits = [
            1 if v.one_token else n
            for v in plan.variants
            if v.model == model
            for n in v.first_limits
        ]
        if model not in token_seconds or None in limits:
            return None
        tokens = sum(n for n in limits if n is not None)
        longest.append(tokens * token_seconds[model] * len(plan.questions) * plan.samples)
    return max(longest)
