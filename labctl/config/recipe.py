"""``recipes/*.yaml``: a measurement with its models, repeats and maximum time.

The engine checks its own keys (``engine``) and parameters. Everything else is checked here.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    SerializeAsAny,
    ValidationInfo,
    model_validator,
)

from labctl import package_data
from labctl.config.models import ModelSource, ancestors, derive_problems
from labctl.config.recipe_parts import (
    MOST_VARIANTS,
    Conditions,
    Scalar,
    Scheduling,
    Values,
    Variant,
    WrittenRecipe,
    check_bounds,
    expand,
)
from labctl.config.tuning import Tuning
from labctl.config.types import Duration, Interval, Line, Name, RunTime, Share
from labctl.config.yaml.document import (
    Document,
    StrictModel,
    read_text,
    refuse,
)
from labctl.config.yaml.loader import Path as DocumentPath
from labctl.errors import ConfigError
from labctl.files import host_reads
from labctl.suggestions import did_you_mean, listed, unknown
from labctl.text_types import HostPath, Word

#: Axis of the matrix that varies the model instead of a parameter.
MODEL_AXIS = "model"

#: Check by another package; gives problems as (path in the recipe, sentence).
Check = Callable[["Recipe"], Iterable[tuple[DocumentPath, str]]]
#: Reads the keys of `engine` into the engine's own model, or raises the error of ``refuse``.
EngineCheck = Callable[["EngineChoice"], "EngineChoice"]
#: Key of the validation context that holds this function.
_ENGINE_CHECK = "engine_check"


def _prompt(text: str) -> str:
    if not text:
        raise ValueError("the prompt is empty")
    if "\0" in text:
        raise ValueError("the prompt has a NUL character in it, which no program can be given")
    return text


class EngineChoice(StrictModel):
    """The program that runs the model. Each engine defines further keys."""

    model_config = ConfigDict(extra="allow")

    name: Name
    """The engine: one that comes with labctl, or one of an installed package."""
    task: Name | None = None
    """Task of the engine; it selects the program and its flags. By default the first of the
    engine's tasks."""
    version: Word | None = None
    """Version label of the build to use; by default the newest build."""


def _by_its_engine(choice: EngineChoice, info: ValidationInfo) -> EngineChoice:
    check: EngineCheck | None = (info.context or {}).get(_ENGINE_CHECK)
    return choice if check is None else check(choice)


class Timeouts(StrictModel):
    """Time-out of each step; all have defaults."""

    trial: Duration | None = None
    """One run of the program on the board, from start to exit. By default ten times the predicted
    time or the time of the previous trial, fifty times where only the bytes are known, at least 10
    minutes; `max_time` where nothing is known."""
    reattach: Duration | None = None
    """Longest time to restore a lost link; the job on the board continues meanwhile. By default 2
    minutes."""


class Precision(StrictModel):
    """Required precision of a result; repeats continue, variants in turns, until each one has
    it.
    """

    metric: Line = "tokens_per_second"
    """Quantity, by its name in gates; each repeat gives one value."""
    confidence_interval: Annotated[float, Field(gt=0, lt=1)]
    """Half of the interval's width over the mean: 0.02 is plus or minus 2 %."""
    level: Annotated[float, Field(ge=0.5, lt=1)] = 0.95
    """Confidence level of Student's interval over the repeats; widened because the interval also
    ends the repeats."""
    max_repeats: int = Field(default=30, ge=3, le=1000)
    """Largest number of repeats of a variant; the smallest is `repeats` (at least 4), unless this
    is less."""
    max_time: RunTime | None = None
    """Time after which no further repeat starts; by default only the recipe's `max_time`
    applies."""


class Gate(StrictModel):
    """A bound that a measured value must keep; a run with a missed gate ends with status 1."""

    metric: Line
    """Quantity that is bounded, by its name in the table, `tpot_p50_ms` for instance."""
    min: Annotated[float, Field(allow_inf_nan=False)] | None = None
    """Smallest allowed value."""
    max: Annotated[float, Field(allow_inf_nan=False)] | None = None
    """Largest allowed value."""
    against: Line | None = None
    """Instead of min and max: a baseline, or `last-good` for the newest runs of this recipe on this
    board that passed. A slower result misses the gate."""
    tolerance: Share | None = None
    """With `against`: loss of speed that is allowed; by default `practical` of `comparison`."""
    where: dict[str, Scalar] = Field(default_factory=dict)
    """Variants that it applies to: `model` or a parameter, and its value. By default all."""

    @model_validator(mode="after")
    def _bounded(self) -> Self:
        bounds = [name for name in ("min", "max") if getattr(self, name) is not None]
        if self.against is None and self.tolerance is not None:
            raise refuse("tolerance goes with against: name a baseline, or last-good", "tolerance")
        if self.against is not None and bounds:
            raise refuse(f"against and {bounds[0]} are two gates; write both", bounds[0])
        if self.against is None:
            check_bounds(self.min, self.max)
        return self


class ComparisonLimits(StrictModel):
    """Judgement of `labctl compare` on the results, in shares of the compared figure."""

    same_within: Share = 0.03
    """Two results are the same where the ratio's 90 % interval is within plus or minus this."""
    practical: Share = 0.02
    """Smallest difference that counts as slower or faster; at most `same_within`."""


class Adapter(StrictModel):
    """A low-rank adapter (LoRA) that changes the model's weights."""

    file: Name
    """Its GGUF file: a name in `files`; for an endpoint a path from the lab's folder."""
    scale: Annotated[float, Field(allow_inf_nan=False)] = 1.0
    """Factor of its change; 1 as it was trained."""


class Recipe(WrittenRecipe):
    """One experiment."""

    kind = "timing"

    target: Name
    """Machine type of the boards: a folder of toolchains/."""
    engine: Annotated[SerializeAsAny[EngineChoice], AfterValidator(_by_its_engine)]
    """Program that runs the model, and its task."""
    models: Annotated[dict[Name, ModelSource], Field(min_length=1)]
    """The models, by a short name."""
    model: Name | None = None
    """Model to measure, unless `matrix.model` names them; needed if there are several models."""
    prompt: Annotated[str, AfterValidator(_prompt)] | None = None
    """Prompt, byte for byte."""
    prompt_file: HostPath | None = None
    """A UTF-8 file with that text; a relative path begins at the lab's folder."""
    files: dict[Name, HostPath] = Field(default_factory=dict)
    """Other files that the program reads, by the names that the engine has for them; sent to the
    board. A relative path begins at the lab's folder."""
    lora: tuple[Adapter, ...] = ()
    """Low-rank adapters for all models, in the order of their application."""
    parameters: dict[str, Scalar] = Field(default_factory=dict)
    """Parameters of the engine, the same for all variants."""
    matrix: dict[str, Values] = Field(default_factory=dict)
    """Parameters (and `model`) that vary; every combination is measured."""
    repeats: int = Field(default=1, ge=1, le=1000)
    """Trials of each variant; each is a separate process."""
    warm_up: int = Field(default=0, ge=0, le=100)
    """Trials of each variant that run first and are not counted."""
    repeats_until: Precision | None = None
    """Repeat until the result is precise enough, instead of a fixed number of times."""
    order: Literal["interleaved", "grouped", "randomised"] = "interleaved"
    """`interleaved`: A B A B, so that slow drift affects all variants equally; `grouped`: A A B B;
    `randomised`: interleaved, each round in a random order."""
    order_seed: int = Field(default=1, ge=0)
    """Seed of the order `randomised`; the same seed gives the same order."""
    conditions: Conditions = Conditions()
    """Required state of the board."""
    scheduling: Scheduling = Scheduling()
    """CPUs and priority of the program."""
    sampling_interval: Interval | None = None
    """Interval at which the agent samples temperatures, frequencies, CPU time, memory and storage;
    `none`: no samples, and no results that need samples. By default 1s."""
    max_time: RunTime
    """Longest time of the run. Where the predicted time exceeds it, first warm-ups are left out,
    then repeats, then tokens down to `min_tokens`; a run that still does not fit is refused."""
    min_tokens: int | None = Field(default=None, ge=1)
    """Lowest number of tokens that `max_time` may reduce to; by default tokens are never
    reduced."""
    timeouts: Timeouts = Timeouts()
    """Longest time of each step."""
    infra_retries: int = Field(default=1, ge=0, le=100)
    """Number of times that a trial is retried after the board interrupted it (by a restart, for
    instance). A lost link alone interrupts no trial, and a failed program is not retried."""
    gates: tuple[Gate, ...] = ()
    """Bounds that the results must keep."""
    comparison: ComparisonLimits = ComparisonLimits()
    """Judgement of `labctl compare` on the results."""
    tune: Annotated[Tuning | None, AfterValidator(lambda given: given or Tuning())] = None
    """Search for the best parameters instead of measuring given ones."""
    references: tuple[Name, ...] = ()
    """Published figures to show beside the results, by their names in references.yaml; they are
    quoted, and no statistic uses them."""

    def problems(self) -> Iterable[tuple[DocumentPath, str]]:
        """Yield the keys that contradict other ones, each with a sentence."""
        yield from self._prompt_problems()
        yield from derive_problems(self.models)
        yield from self._lora_problems()
        yield from self._matrix_problems()
        yield from self._gate_problems()
        yield from self._tuning_problems()

    def _prompt_problems(self) -> Iterable[tuple[DocumentPath, str]]:
        if self.prompt is not None and self.prompt_file is not None:
            yield ("prompt_file",), "prompt is given too; keep one of them"

    def _lora_problems(self) -> Iterable[tuple[DocumentPath, str]]:
        names = [one.file for one in self.lora]
        for index, name in enumerate(names):
            if name not in self.files:
                yield ("lora", index, "file"), unknown("file", name, self.files, where=" in files")
            elif name in names[:index]:
                yield ("lora", index, "file"), "this adapter is given twice"

    def ancestors(self, key: str) -> list[str]:
        """Return the models that a model is made from, nearest first."""
        return ancestors(self.models, key)

    def _matrix_problems(self) -> Iterable[tuple[DocumentPath, str]]:
        if self.model is not None and self.model not in self.models:
            yield ("model",), unknown("model", self.model, self.models)
        for index, key in enumerate(self.matrix.get(MODEL_AXIS, ())):
            if key not in self.models:
                yield ("matrix", MODEL_AXIS, index), unknown("model", str(key), self.models)
        if MODEL_AXIS in self.matrix and self.model is not None:
            yield ("model",), "matrix.model is given too; keep one of them"
        if MODEL_AXIS not in self.matrix and self.model is None and len(self.models) > 1:
            yield (), f"name the model to measure: model: {listed(self.models)}, or matrix.model"
        for axis in self.matrix:
            if axis in self.parameters:
                yield ("matrix", axis), f"parameters.{axis} is given too; keep one of them"
        number = math.prod(len(values) for values in self.matrix.values())
        if number > MOST_VARIANTS:
            yield ("matrix",), f"{number} combinations; the most is {MOST_VARIANTS}"

    def _tuning_problems(self) -> Iterable[tuple[DocumentPath, str]]:
        if self.tune is None:
            return
        if self.matrix:
            yield ("matrix",), "a search has no matrix; name the values to try in tune.space"
        if self.gates:
            yield ("gates",), "a search has no gates"
        space = self.tune.space
        if space and all(len(values) < 2 for values in space.values()):
            yield ("tune", "space"), "one point: nothing to choose from; give a key several values"
        if (count := math.prod(map(len, space.values()))) > MOST_VARIANTS:
            yield ("tune", "space"), f"{count} combinations; the most is {MOST_VARIANTS}"
        for index, one in enumerate(self.tune.never):
            for key in one:
                if space and key not in space and key not in self.parameters:
                    known = {*space, *self.parameters}
                    yield ("tune", "never", index, key), unknown("parameter", key, known)

    def _gate_problems(self) -> Iterable[tuple[DocumentPath, str]]:
        known = {MODEL_AXIS, *self.matrix, *self.parameters}
        for index, gate in enumerate(self.gates):
            for key, value in gate.where.items():
                path = ("gates", index, "where", key)
                if key not in known:
                    yield (
                        path,
                        f"neither model nor a parameter of this recipe{did_you_mean(key, known)}",
                    )
                elif key == MODEL_AXIS and value not in self.models:
                    yield path, unknown("model", str(value), self.models)

    def measured_models(self) -> list[str]:
        """Return the keys of the measured models in order."""
        if MODEL_AXIS in self.matrix:
            return [str(key) for key in self.matrix[MODEL_AXIS]]
        return [self.model] if self.model else list(self.models)[:1]

    def variants(self) -> list[Variant]:
        """All combinations of the matrix; the model varies slowest."""
        axes = {axis: values for axis, values in self.matrix.items() if axis != MODEL_AXIS}
        return expand(self.measured_models(), self.parameters, axes)

    def prompt_text(self, root: Path) -> str | None:
        """Return the prompt, if any; a relative ``prompt_file`` begins at ``root``.

        Raises ConfigError.
        """
        if self.prompt_file is None:
            return self.prompt
        path = root / self.prompt_file
        text = read_text(path)
        try:
            return _prompt(text)
        except ValueError as error:
            raise ConfigError(f"{path}: {error}") from None


def load_recipe(
    source: Path | Document,
    set_values: Sequence[str] = (),
    *,
    engine_check: EngineCheck | None = None,
    check: Check | None = None,
) -> Recipe:
    """Load the recipe in a file or a document, with ``key=value`` overrides applied.

    Args:
        source: the file, or its document, which the overrides change.
        set_values: as ``labctl run --set`` takes them; see ``set_values.apply_settings``.
        engine_check: reads the keys of ``engine``; without it, only keys common to all engines are
            read.
        check: further checks of a recipe whose keys are valid.

    Raises ConfigError with a line for each problem.
    """
    return Recipe.read(
        source,
        set_values,
        context={_ENGINE_CHECK: engine_check},
        check=lambda recipe: [*_limits(recipe.comparison), *(check(recipe) if check else ())],
    )


def _limits(limits: ComparisonLimits) -> Iterable[tuple[DocumentPath, str]]:
    """Yield the problems of explicit limits; older records may have wrong limits."""
    same, practical = (f"{100 * share:.3g}%" for share in (limits.same_within, limits.practical))
    if limits.practical > limits.same_within:
        problem = f"{practical} is above same_within, {same}: what lies between would be neither"
        yield ("comparison", "practical"), f"{problem} the same nor a difference"


def known_recipes(root: Path | None) -> dict[str, Path]:
    """Find recipes by name: the lab's own before shipped recipes."""
    folders = [*([root / "recipes"] if root else []), package_data.RECIPES]
    return {path.stem: path for folder in reversed(folders) for path in folder.glob("*.yaml")}


def find_recipe(name: str, root: Path | None) -> Path:
    """Return the file of a recipe given by path or name; the lab's own wins over a shipped one.

    Raises ConfigError with the nearest name.
    """
    given = Path(name)
    with host_reads(name):
        if given.is_file():
            return given
    known = known_recipes(root)
    # `recipes/q8_latency.yaml` means the shipped one if the lab has none of that name.
    plain = given.parent in (Path(), Path("recipes")) and given.suffix in ("", ".yaml")
    if plain and given.stem in known:
        return known[given.stem]
    raise ConfigError(
        f"no recipe {name!r}{did_you_mean(given.stem, known)}",
        hint=f"a path, or one of {listed(sorted(known))}" if known else None,
    )
