"""The guard of a search by KL divergence: another task of the engine, in the same run.

It judges settings that generate other tokens than the default, if the recipe's files have the
default's logits.
"""

from collections.abc import Mapping

from labctl.config.recipe import Recipe
from labctl.config.recipe_parts import Scalar
from labctl.engines.base import EngineParameters
from labctl.errors import ConfigError
from labctl.models.logits import context_of, model_of
from labctl.records.board import BoardFacts
from labctl.runs.inputs.options import refuse_unknown
from labctl.runs.inputs.prepare import Prepared, RecipeFiles, guard_engine, recipe_files
from labctl.units import size


def guard_files(files: RecipeFiles) -> tuple[RecipeFiles, ...]:
    """Return the guard's files; none if the recipe has no logits.

    Raises ConfigError if they are damaged, or the guard's program is of another build.
    """
    recipe, engine = files.recipe, guard_engine(files.recipe)
    if engine is None or not all(name in recipe.files for name in engine.files):
        return ()
    context = context_of(files.files[engine.files[0]].local)
    changes = {
        "engine": recipe.engine.model_copy(update={"task": engine.task}),
        "prompt": None,
        "prompt_file": None,
        "parameters": _values(recipe, recipe.parameters, context),
        "tune": None,
    }
    found = recipe_files(recipe.model_copy(update=changes), files.lab_root)
    if found.artifact != files.artifact:
        tools = f"--tool {files.tool.name} --tool {found.tool.name}"
        raise ConfigError(
            f"the guard's {found.tool.name} is of another build than {files.tool.name}",
            hint=f"build both at once: labctl build {recipe.target} {tools}",
        )
    return (found,)


def _values(recipe: Recipe, values: Mapping[str, Scalar], context: int) -> dict[str, Scalar]:
    """Return a setting's parameters for the guard, which reads one chunk at a time."""
    engine = guard_engine(recipe)
    known = engine.parameters_model.model_fields if engine else {}
    kept = {key: value for key, value in values.items() if key in known}
    return engine.of_one_chunk(kept, context) if engine else kept


def guard_parameters(
    prepared: Prepared, guard: Prepared, values: Mapping[str, Scalar], model: str, facts: BoardFacts
) -> dict[str, Scalar]:
    """Return the guard's parameters for a setting with the parameters ``values``.

    Raises ConfigError if program or board cannot have them.
    """
    identity, engine = guard.models[model].identity, guard.engine
    chunk = guard.recipe.parameters[engine.chunk_parameter]
    assert isinstance(chunk, int)
    wanted = _values(prepared.recipe, values, chunk)
    found: EngineParameters = engine.resolved(guard.tool, wanted, facts, identity).parameters
    refuse_unknown(engine, guard, [found], adapters=len(guard.recipe.lora))
    need, there = engine.memory(found, identity), facts.memory_available_bytes
    if need and there is not None and need.anonymous_bytes > there:
        raise ConfigError(
            f"the guard needs {size(need.anonymous_bytes)} of memory, {size(there)} are free",
            hint="write the logits with a smaller --context",
        )
    return dict(found.model_dump(mode="json", exclude_none=True))


def refuse_other_logits(guard: Prepared, model: str) -> None:
    """Raise ConfigError if the logits are known to be of another model than the default's."""
    item = guard.files[guard.engine.files[0]]
    written = model_of(item.local, item.sha256)
    if written and not guard.recipe.lora and written != guard.models[model].identity.sha256:
        raise ConfigError(
            f"the default itself fails the guard: {item.local} has the logits of another model"
            f" ({written[:12]})",
            hint=f"write them with its own: labctl models logits {guard.models[model].path}",
        )
