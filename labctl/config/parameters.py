"""An engine's model of its parameters, held against every variant of a recipe."""

import json
from collections.abc import Iterator

from pydantic import BaseModel, ValidationError

from labctl.config.recipe import Recipe
from labctl.config.yaml.loader import Path
from labctl.config.yaml.messages import explain


def parameter_problems(recipe: Recipe, model: type[BaseModel]) -> Iterator[tuple[Path, str]]:
    """Yield the parameters that ``model`` refuses, as (path in the recipe, sentence), each once.

    For the ``check`` of ``load_recipe``: a value from the matrix is placed there.
    """
    seen: set[tuple[Path, str]] = set()
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


def _place(recipe: Recipe, values: dict[str, bool | int | float | str], inner: Path) -> Path:
    axis = inner[0] if inner else ""
    if isinstance(axis, str) and axis in recipe.matrix:
        return ("matrix", axis, recipe.matrix[axis].index(values[axis]))
    return ("parameters", *inner)
