"""Inputs of a recipe on this host, found before any contact with a board: programs, models,
prompt.
"""

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, JsonValue, ValidationError

from labctl.build.artifact import Artifact
from labctl.config.lab import Board
from labctl.config.recipe import Recipe, load_recipe
from labctl.config.references import known_references
from labctl.config.target import target_file, target_names
from labctl.config.yaml.document import Document
from labctl.config.yaml.loader import Path as DocumentPath
from labctl.config.yaml.messages import explain
from labctl.deploy.plan import Object, describe
from labctl.engines.base import Engine, Tool
from labctl.engines.registry import check_engine, make_engine
from labctl.errors import ConfigError
from labctl.gguf.adapter import adapted, identify_adapter
from labctl.models.cache import ModelFile
from labctl.models.expected import are_here, are_ready, check_files, expect
from labctl.models.quantizer import find_quantizer
from labctl.models.resolve import resolve
from labctl.progress import Progress
from labctl.records.trial import AdapterIdentity
from labctl.results.gates import metric_problems
from labctl.runs.inputs.options import refuse_unknown
from labctl.runs.inputs.programs import find_or_name_program, find_program
from labctl.suggestions import listed, unknown
from labctl.units import size

if TYPE_CHECKING:
    from labctl.runs.inputs.untrusted_recipe import Workspace


def parameter_problems(
    recipe: Recipe, model: type[BaseModel]
) -> Iterator[tuple[DocumentPath, str]]:
    """Yield the parameters that ``model`` refuses, as (path in the recipe, sentence), each once.

    For the ``check`` of ``load_recipe``: a value from the matrix is placed there.
    """
    seen: set[tuple[DocumentPath, str]] = set()
    for variant in recipe.variants():
        values = dict(variant.parameters)
        try:
            model.model_validate_json(json.dumps(values), strict=True)
        except ValidationError as failure:
            for inner, sentence, _ in explain(failure.errors(include_url=False), values, model):
                problem = (_place(recipe, values, inner), sentence)
                if problem not in seen:
                    seen.add(problem)
                    yield problem


def _place(
    recipe: Recipe, values: dict[str, bool | int | float | str], inner: DocumentPath
) -> DocumentPath:
    axis = inner[0] if inner else ""
    if isinstance(axis, str) and axis in recipe.matrix:
        return ("matrix", axis, recipe.matrix[axis].index(values[axis]))
    return ("parameters", *inner)


@dataclass(frozen=True)
class RecipeFiles:
    """A recipe with its inputs on this host, without its models, which may have to be fetched."""

    lab_root: Path
    recipe: Recipe
    engine: Engine[Any]
    #: None: labctl did not build the program.
    artifact: Artifact | None
    tool: Tool
    #: None: it is on the board already; the tool's name is its path.
    program: Object | None
    prompt: str | None
    files: dict[str, Object]
    adapters: tuple[AdapterIdentity, ...] = field(default=(), kw_only=True)
    #: Notes for the user on the program.
    notes: tuple[str, ...] = field(default=(), kw_only=True)

    @property
    def revision(self) -> str | None:
        """Revision of the program's source, if labctl built it."""
        return self.artifact.manifest.source.revision if self.artifact else None

    @property
    def prompt_sha256(self) -> str | None:
        """Digest of the prompt's UTF-8 bytes; None without a prompt."""
        return None if self.prompt is None else hashlib.sha256(self.prompt.encode()).hexdigest()

    @property
    def comparability(self) -> dict[str, JsonValue]:
        """The comparability key without the engine's parameters: build, prompt and files."""
        manifest = self.artifact.manifest if self.artifact else None
        committed = manifest.source.committed if manifest else None
        return {
            "product": manifest.product if manifest else None,
            "version": manifest.version if manifest else None,
            "build_key": manifest.key if manifest else None,
            "build_commit": manifest.commit if manifest else None,
            "build_committed": committed.isoformat() if committed else None,
            "program_sha256": self.program.sha256 if self.program else None,
            "prompt_sha256": self.prompt_sha256,
            "files_sha256": {name: item.sha256 for name, item in self.files.items()},
            "lora": [one.model_dump(mode="json") for one in self.recipe.lora] or None,
        }

    @property
    def models_are_here(self) -> bool:
        """True if no model must be fetched or quantized. Raises ConfigError."""
        return are_here(self.recipe.models, self.recipe.measured_models(), self.lab_root)

    @property
    def models_are_ready(self) -> bool:
        """True if no model must be fetched, quantized or hashed. Raises ConfigError."""
        return are_ready(self.recipe.models, self.recipe.measured_models(), self.lab_root)

    def with_models(self, progress: Progress) -> "Prepared":
        """Fetch or derive the models. Raises the errors of :func:`labctl.models.resolve`."""
        return self._with(resolve, progress)

    def expected(self, progress: Progress) -> "Prepared":
        """Return the expected inputs, before anything large is fetched or made.

        Raises what :func:`labctl.models.expected.expect` raises.
        """
        return self._with(expect, progress)

    def for_plan(self, progress: Progress) -> "Prepared":
        """Return the expected inputs, with some facts of every model; nothing is made.

        Raises what :func:`labctl.models.expected.expect` raises.
        """
        found = self._with(partial(expect, plan_only=True), progress)
        estimates = (
            f"the model {key!r} is estimated from the one that it is made from:"
            f" at least {size(model.identity.size_bytes)},"
            f" {model.identity.bits_per_weight:.4g} bits per weight"
            for key, model in found.models.items()
            if model.estimated and model.identity.bits_per_weight is not None
        )
        return replace(found, notes=(*found.notes, *estimates))

    def _with(
        self, models_of: Callable[..., dict[str, ModelFile]], progress: Progress
    ) -> "Prepared":
        known = {one.name: getattr(self, one.name) for one in fields(self)}
        models = models_of(
            self.recipe.models,
            self.recipe.measured_models(),
            root=self.lab_root,
            find_quantizer=lambda: find_quantizer(self.recipe.target, self.lab_root),
            progress=progress,
            gguf_only=self.engine.reads_gguf,
        )
        models = {
            key: replace(file, identity=adapted(file.identity, self.adapters))
            for key, file in models.items()
        }
        return Prepared(**known, models=models)


@dataclass(frozen=True)
class Prepared(RecipeFiles):
    """A recipe with all its inputs on this host."""

    models: dict[str, ModelFile]

    @property
    def has_all_models(self) -> bool:
        """True if facts of every model are known, at least as an estimate."""
        return self.models.keys() == set(self.recipe.measured_models())

    @property
    def tells_memory(self) -> bool:
        """True if enough is known of every model to compute the memory it needs."""
        return all(
            key in self.models
            and (self.models[key].identity.architecture or not self.engine.reads_gguf)
            for key in self.recipe.measured_models()
        )


def read_recipe(
    source: Path | Document,
    set_values: tuple[str, ...] = (),
    *,
    lab_root: Path | None = None,
    workspace: "Workspace | None" = None,
) -> Recipe:
    """Load a recipe from its file or document, checked by targets, engine and gates.

    An untrusted recipe has a ``workspace``, which it may not leave. Raises ConfigError.
    """
    recipe = load_recipe(
        source,
        set_values,
        engine_check=check_engine,
        check=lambda recipe: (
            *_problems(recipe, lab_root),
            *(workspace.problems(recipe) if workspace else ()),
        ),
    )
    return workspace.within(recipe) if workspace else recipe


def _problems(recipe: Recipe, lab_root: Path | None) -> Iterator[tuple[DocumentPath, str]]:
    if target_file(recipe.target, lab_root) is None:
        yield ("target",), unknown("target", recipe.target, target_names(lab_root))
    yield from metric_problems(recipe)
    yield from _reference_problems(recipe, lab_root)
    engine = make_engine(recipe.engine)
    yield from _input_problems(recipe, engine)
    yield from parameter_problems(recipe, engine.parameters_model)
    yield from _tuning_problems(recipe, engine)


def _reference_problems(
    recipe: Recipe, lab_root: Path | None
) -> Iterator[tuple[DocumentPath, str]]:
    """Yield references to unknown published figures."""
    if not recipe.references:
        return
    known = known_references(lab_root)
    for index, name in enumerate(recipe.references):
        if name not in known:
            yield ("references", index), unknown("reference", name, known)


def _input_problems(recipe: Recipe, engine: Engine[Any]) -> Iterator[tuple[DocumentPath, str]]:
    """Yield missing inputs of the engine, and inputs that it would ignore."""
    given = "prompt" if recipe.prompt is not None else "prompt_file"
    has_prompt = recipe.prompt is not None or recipe.prompt_file is not None
    what = f"{engine.name} ({engine.task})"
    if engine.uses_prompt and not has_prompt:
        yield (), "a prompt or a prompt_file is required"
    if has_prompt and not engine.uses_prompt:
        yield (given,), f"{what} reads no prompt; remove it"
    for name in engine.files:
        if name not in recipe.files:
            yield ("files", name), f"{what} needs this file"
    if recipe.lora and not engine.uses_adapters:
        yield ("lora",), f"{what} uses no adapters; remove it"
    adapters = {one.file for one in recipe.lora}
    guard = guard_engine(recipe)
    read = {*engine.files, *adapters, *(guard.files if guard else ())}
    for name in recipe.files:
        if name not in read:
            known = f"; it knows {listed(engine.files)}" if engine.files else ""
            yield ("files", name), f"{what} does not read this file{known}"


def guard_engine(recipe: Recipe) -> Engine[Any] | None:
    """Return the task that can judge a search's settings by divergence; None without one."""
    task = make_engine(recipe.engine).guard_task
    if recipe.tune is None or task is None:
        return None
    return make_engine(recipe.engine.model_copy(update={"task": task}))


def _tuning_problems(recipe: Recipe, engine: Engine[Any]) -> Iterator[tuple[DocumentPath, str]]:
    """Yield values of a search's space that the engine refuses whatever the other values are."""
    if recipe.tune is None:
        return
    model, fixed = engine.parameters_model, dict(recipe.parameters)
    for axis, options in recipe.tune.space.items():
        for index, value in enumerate(options):
            values = {**fixed, axis: value}
            try:
                model.model_validate_json(json.dumps(values), strict=True)
            except ValidationError as failure:
                found = explain(failure.errors(include_url=False), values, model)
                for inner, sentence, _ in found:
                    if inner[:1] == (axis,):
                        yield ("tune", "space", axis, index), sentence


def prepare(recipe: Recipe, board: Board, lab_root: Path, progress: Progress) -> Prepared:
    """Find the programs, fetch or derive the models.

    Raises the errors of :func:`find_files` and :func:`labctl.models.resolve`.
    """
    return find_files(recipe, board, lab_root).with_models(progress)


def find_files(
    recipe: Recipe, board: Board, lab_root: Path, *, untrusted: bool = False
) -> RecipeFiles:
    """Find a recipe's inputs on this host; nothing is built, fetched or made.

    ``untrusted``: as in :func:`labctl.runs.inputs.programs.find_program`.

    Raises ConfigError if the recipe is for other boards, a program is not built yet, a file is
    missing or a model is impossible.
    """
    if recipe.target != board.target:
        raise ConfigError(
            f"recipe {recipe.name} is for target {recipe.target}, board {board.name} is a "
            f"{board.target}",
            hint=f"choose another board, or --set target={board.target}",
        )
    return recipe_files(recipe, lab_root, untrusted=untrusted)


def recipe_files(
    recipe: Recipe, lab_root: Path, *, must_be_built: bool = True, untrusted: bool = False
) -> RecipeFiles:
    """Find a recipe's inputs on this host, for any board.

    Raises as :func:`find_files`; a missing build that is not required is only a note.
    """
    engine = make_engine(recipe.engine)
    if must_be_built:
        program = find_program(engine, recipe, lab_root, untrusted=untrusted)
        variants = (engine.parameters(one.parameters) for one in recipe.variants())
        refuse_unknown(engine, program, variants, adapters=len(recipe.lora))
    else:
        program = find_or_name_program(engine, recipe, lab_root)
    prompt = recipe.prompt_text(lab_root)
    files = {name: describe(lab_root / path) for name, path in recipe.files.items()}
    wanted = recipe.measured_models()
    check_files(recipe.models, wanted, root=lab_root, gguf_only=engine.reads_gguf)
    return RecipeFiles(
        lab_root,
        recipe,
        engine,
        program.artifact,
        program.tool,
        program.file,
        prompt,
        files,
        adapters=tuple(
            identify_adapter(files[one.file].local, files[one.file].sha256, one.scale)
            for one in recipe.lora
        ),
        notes=program.notes,
    )
