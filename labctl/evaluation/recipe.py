"""Recipes of evaluations: their questions, models, prompts and budgets.

A recipe with a ``dataset`` and without an ``engine`` is of this kind.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field

from labctl.config.models import ancestors, derive_problems
from labctl.config.types import Name, RunTime
from labctl.config.yaml.document import Document
from labctl.config.yaml.loader import Path as DocumentPath
from labctl.evaluation.datasets.source import DatasetSource
from labctl.evaluation.prompts import Prompt
from labctl.evaluation.recipe_parts import (
    READY_SECONDS,
    UNLIMITED,
    AccuracyGate,
    AnswerTimeouts,
    Budgets,
    EndpointSource,
    Sampling,
    ServedRecipe,
    StopRule,
    WrittenBudgets,
)
from labctl.suggestions import did_you_mean, unknown

#: A server that labctl starts may run as long as the evaluation; this limit ends a forgotten
#: server.
_LONGEST_SECONDS = 30 * 86400.0


class EvaluationRecipe(ServedRecipe):
    """One evaluation: the same questions for every model, with every prompt and budget."""

    kind = "evaluation"

    dataset: DatasetSource
    """The questions."""
    endpoints: Annotated[dict[Name, EndpointSource], Field(min_length=1)]
    """The servers that answer, by a short name. Several with the same model share its questions."""
    prompts: Annotated[dict[Name, Prompt], Field(min_length=1)]
    """Prompts, by a short name."""
    budgets: WrittenBudgets = Budgets.model_validate({"tokens": [UNLIMITED]})
    """Limits of the generated tokens: a list of numbers and `unlimited`; or a mapping for limits of
    time. By default unlimited alone."""
    sampling: Sampling = Sampling()
    """Choice of each token."""
    graders: Annotated[tuple[Name, ...], Field(min_length=1)] = ("boxed",)
    """Graders of the answers; the results of the first one are shown first."""
    cut: bool = True
    """Take the answers within the smaller budgets from one long generation, if the prompt does not
    state the budget and the server reports the tokens. False: ask at every budget."""
    stop_when: StopRule | None = None
    """Stop once the accuracies are precise enough; by default all questions are asked."""
    concurrency: int = Field(default=1, ge=1, le=1024)
    """Number of concurrent questions per endpoint."""
    attempts: int = Field(default=5, ge=1, le=100)
    """Most attempts for one answer, if the server is busy, failing or out of reach."""
    timeouts: AnswerTimeouts = AnswerTimeouts()
    """Longest time of each step."""
    max_time: RunTime | None = None
    """Longest time of the asking. After that, only questions answered by every variant count, so
    that all are compared on the same questions."""
    gates: tuple[AccuracyGate, ...] = ()
    """Bounds that the accuracies must keep."""
    references: tuple[Name, ...] = ()
    """Published figures to show beside the results, by their names in references.yaml; they are
    quoted, and no statistic uses them."""

    def problems(self) -> Iterable[tuple[DocumentPath, str]]:
        """Yield the keys that contradict other ones, each with a sentence."""
        yield from self._model_problems()
        yield from self._endpoint_problems()
        yield from self._layout_problems()
        yield from self._choice_problems()
        yield from self._budget_problems()
        yield from self._gate_problems()

    def _model_problems(self) -> Iterable[tuple[DocumentPath, str]]:
        yield from derive_problems(self.models)
        for key, source in self.models.items():
            base = self.models.get(source.derive.source) if source.derive else None
            if base and base.declared is not None:
                problem = "this model is declared: its file is not here"
                yield ("models", key, "derive", "from"), problem
        used = {*self.evaluated_models(), *(one.draft for one in self.endpoints.values())}
        needed = {key for one in used if one for key in (one, *self._bases(one))}
        for key in self.models:
            if key not in needed:
                yield ("models", key), "no endpoint serves this model"

    def _bases(self, key: str) -> list[str]:
        return ancestors(self.models, key)

    def _endpoint_problems(self) -> Iterable[tuple[DocumentPath, str]]:
        boards: dict[str | None, str] = {}
        for key, endpoint in self.endpoints.items():
            path = ("endpoints", key)
            if problem := endpoint.draft_problem(self.models):
                yield (*path, "draft"), problem
            first = self.endpoints[self.endpoints_of(endpoint.model)[0]]
            if endpoint.scaled_lora != first.scaled_lora:
                problem = f"another endpoint of model {endpoint.model} has other adapters, and the"
                way = "answers would count as one model's; name the file as a second model"
                yield (*path, "lora"), f"{problem} {way}"
            if endpoint.model not in self.models:
                yield (*path, "model"), unknown("model", endpoint.model, self.models)
            elif endpoint.start and self.models[endpoint.model].declared:
                problem = (
                    f"model {endpoint.model} is only declared, but a server that labctl starts"
                )
                yield (*path, "start"), f"{problem} needs its file"
            if endpoint.start == "board":
                other = boards.setdefault(endpoint.board, key)
                if other != key:
                    yield (
                        (*path, "start"),
                        f"endpoint {other} has the same board; a board serves one model in a run",
                    )

    def _layout_problems(self) -> Iterable[tuple[DocumentPath, str]]:
        for key, endpoint in self.endpoints.items():
            for name, prompt in self.prompts.items():
                if prompt.is_chat and endpoint.api == "openai-completions":
                    problem = (
                        f"{endpoint.api} takes no messages, but prompt {name} has layout: chat"
                    )
                    yield ("endpoints", key, "api"), problem
                elif not prompt.is_chat and endpoint.api == "openai-chat":
                    problem = f"openai-chat takes messages, but prompt {name} is a text"
                    yield ("endpoints", key, "api"), f"{problem} (layout: {prompt.layout})"

    def _choice_problems(self) -> Iterable[tuple[DocumentPath, str]]:
        for name, prompt in self.prompts.items():
            if prompt.choose_by == "generation":
                continue
            path = ("prompts", name, "choose_by")
            if self.dataset.format != "choice":
                yield path, "goes with questions that have choices (dataset: format: choice)"
            if self.graders != ("choice",):
                yield path, "the answers are letters: set graders to [choice]"
            if self.sampling.samples > 1:
                yield path, "all samples are the same: set sampling.samples to 1"

    def _budget_problems(self) -> Iterable[tuple[DocumentPath, str]]:
        budgets, used = self.budgets, self.evaluated_models()
        for name, prompt in self.prompts.items():
            for limit in budgets.tokens or ():
                if prompt.stated(limit) == 0:
                    problem = f"a budget of {limit} would be stated as 0 tokens; take a larger one"
                    yield ("prompts", name, "state_budget"), problem
        if budgets.equal_to is not None and budgets.equal_to not in used:
            yield ("budgets", "equal_to"), unknown("evaluated model", budgets.equal_to, used)
        for key in budgets.time_per_token:
            if key not in used:
                yield ("budgets", "time_per_token", key), unknown("evaluated model", key, used)
        if budgets.time_per_token:
            for key in used:
                if key not in budgets.time_per_token:
                    yield ("budgets", "time_per_token"), f"the time per token of {key} is missing"

    def _gate_problems(self) -> Iterable[tuple[DocumentPath, str]]:
        known = {
            "model": list(self.models),
            "prompt": list(self.prompts),
            "grader": list(self.graders),
        }
        if not self.budgets.is_timed:
            tokens = self.budgets.tokens or ()
            known["budget"] = [UNLIMITED if one is None else str(one) for one in tokens]
        for index, gate in enumerate(self.gates):
            for key, value in gate.where.items():
                if key in known and str(value) not in known[key]:
                    yield ("gates", index, "where", key), unknown(key, str(value), known[key])

    @property
    def questions(self) -> DatasetSource:
        """Data set of the recipe."""
        return self.dataset

    @property
    def servers(self) -> Mapping[str, EndpointSource]:
        """All servers, by name."""
        return self.endpoints

    @property
    def longest_seconds(self) -> float:
        """Longest run time of its servers, in s."""
        if self.max_time is None:
            return _LONGEST_SECONDS
        return self.max_time + len(self.endpoints) * READY_SECONDS

    def changed_on_board(self, **changes: str) -> Self:
        """Return the recipe with these keys of the servers that it starts on a board."""
        changed = {name: one.changed_on_board(changes) for name, one in self.endpoints.items()}
        return self.model_copy(update={"endpoints": changed})

    def evaluated_models(self) -> list[str]:
        """Return the keys of the models with an endpoint, in the order of `models`."""
        served = {endpoint.model for endpoint in self.endpoints.values()}
        return [key for key in self.models if key in served]

    def endpoints_of(self, model: str) -> list[str]:
        """Return the keys of the endpoints that serve a model."""
        return [key for key, endpoint in self.endpoints.items() if endpoint.model == model]

    def concurrency_of(self, endpoint: str) -> int:
        """Return the number of concurrent questions of an endpoint."""
        return self.endpoints[endpoint].concurrency or self.concurrency


def variant_name(model: str, prompt: str) -> str:
    """Return the name of a variant, MODEL/PROMPT."""
    return f"{model}/{prompt}"


def load_evaluation(
    source: Path | Document, set_values: Sequence[str] = (), *, lab_root: Path | None = None
) -> EvaluationRecipe:
    """Load the evaluation recipe in a file or a document, with ``key=value`` overrides applied.

    ``lab_root``: folder of the lab whose references it may name. Raises ConfigError with a line for
    each problem.
    """
    return EvaluationRecipe.read(
        source, set_values, check=lambda recipe: _outer_problems(recipe, lab_root)
    )


def _outer_problems(
    recipe: EvaluationRecipe, lab_root: Path | None
) -> Iterable[tuple[DocumentPath, str]]:
    """Yield unknown graders and references."""
    from labctl.config.references import known_references
    from labctl.evaluation.graders import GRADERS

    for index, name in enumerate(recipe.graders):
        if name not in GRADERS:
            yield ("graders", index), unknown("grader", name, GRADERS)
        elif name in recipe.graders[:index]:
            yield ("graders", index), "this grader is given twice"
    if recipe.references:
        references = known_references(lab_root)
        for index, name in enumerate(recipe.references):
            if name not in references:
                near = did_you_mean(name, references)
                yield ("references", index), f"no reference {name!r} in references.yaml{near}"
