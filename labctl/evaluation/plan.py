"""The plan of an evaluation: its generations, and the order of the requests.

Questions are the outermost loop, so at any time all variants have answered the same questions. If
the prompt does not state the budget, one generation at the largest budget serves all smaller ones
by truncation; otherwise each budget has its own generation.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from labctl.evaluation.prompts import Prompt
from labctl.evaluation.recipe import EvaluationRecipe, variant_name
from labctl.records.evaluation import EvaluationRecord, TruncationSlots

#: A limit of generated tokens; None = no limit.
Limit = int | None
#: Number of questions on which cut answers are compared with real limits, for each model.
CHECKED_QUESTIONS = 100


class Key(NamedTuple):
    """One sample of a variant's answers to one question."""

    question: str
    variant: str
    sample: int


class Ask(NamedTuple):
    """A wanted generation: its key, its limit, and the truncation check that needs it."""

    key: Key
    max_tokens: Limit
    check: TruncationSlots | None = None


@dataclass(frozen=True)
class PlannedVariant:
    """A model with a prompt and its limits (ascending, None last); ``cut``: answers are cut."""

    name: str
    model: str
    prompt_name: str
    prompt: Prompt
    limits: tuple[Limit, ...]
    cut: bool

    @property
    def one_token(self) -> bool:
        """True if one token is the whole answer, for any limit."""
        return self.prompt.choose_by == "probability"

    @property
    def first_limits(self) -> tuple[Limit, ...]:
        """Limits of the first requests, largest first."""
        largest_first = self.limits[::-1]
        return largest_first[:1] if self.cut else largest_first


@dataclass(frozen=True)
class EvaluationPlan:
    """All generations of an evaluation."""

    questions: tuple[str, ...]
    variants: tuple[PlannedVariant, ...]
    samples: int
    #: True for each model with more than one concurrent request at all its endpoints together.
    concurrent: Mapping[str, bool]
    #: True at temperature 0. Otherwise generations differ by chance, and cannot be compared.
    greedy: bool

    def variant(self, name: str) -> PlannedVariant:
        """Return a variant by its name."""
        return next(one for one in self.variants if one.name == name)

    @property
    def planned(self) -> int:
        """Number of generations to request at first, without checks."""
        each = sum(len(variant.first_limits) for variant in self.variants)
        return len(self.questions) * self.samples * each

    def checks(self, model: str) -> Iterator[Ask]:
        """Yield the generations at real limits with which cut answers of a model are compared.

        Up to 100 questions take turns through the smaller limits and the prompts: with one request
        at a time, and also at the run's own concurrency if that is higher.
        """
        cut = [one for one in self.variants if one.model == model and one.cut and not one.one_token]
        if not self.greedy or not cut:
            return
        pairs = [(one, limit) for limit in cut[0].limits[:-1] for one in cut]
        slots: tuple[TruncationSlots, ...] = ("one",)
        if self.concurrent[model]:
            slots = ("concurrent", "one")
        if pairs:
            for slot in slots:
                for number, question in enumerate(self.questions[:CHECKED_QUESTIONS]):
                    variant, limit = pairs[number % len(pairs)]
                    yield Ask(Key(question, variant.name, 1), limit, slot)

    def order(self, ask: Ask) -> tuple[int, int, int]:
        """Return the place of a request: by question; the checks with one slot form one block."""
        number = self._number[ask.key.question]
        if ask.check == "one":
            return min(len(self.questions), CHECKED_QUESTIONS) - 1, 2, number
        return number, 0 if ask.check is None else 1, 0

    @cached_property
    def _number(self) -> dict[str, int]:
        return {question: number for number, question in enumerate(self.questions)}


def make_plan(recipe: EvaluationRecipe, record: EvaluationRecord) -> EvaluationPlan:
    """Return the plan of a recipe whose questions and limits are recorded."""
    return plan_of(recipe, record.dataset.questions, record.budgets, record.model_budgets)


def plan_of(
    recipe: EvaluationRecipe,
    questions: tuple[str, ...],
    budgets: tuple[Limit, ...],
    model_budgets: Mapping[str, tuple[Limit, ...]],
) -> EvaluationPlan:
    """Return the plan of a recipe; ``model_budgets``: given if limits are times."""
    models = recipe.evaluated_models()
    variants = []
    for model in models:
        limits = model_budgets.get(model, budgets)
        for name, prompt in recipe.prompts.items():
            # Two limits of time may give the same number of tokens.
            distinct = tuple(dict.fromkeys(limits))
            by_letter = prompt.choose_by == "probability"
            cut = (recipe.cut or by_letter) and not prompt.state_budget
            variants.append(
                PlannedVariant(variant_name(model, name), model, name, prompt, distinct, cut)
            )
    concurrent = {
        model: any(recipe.concurrency_of(key) > 1 for key in recipe.endpoints_of(model))
        for model in models
    }
    return EvaluationPlan(
        questions=questions,
        variants=tuple(variants),
        samples=recipe.sampling.samples,
        concurrent=concurrent,
        greedy=recipe.sampling.temperature == 0,
    )
