"""The references of recipes and devices.yaml say what the models say."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from labctl.config.lab import Lab, lab_model
from labctl.config.models import Catalogue
from labctl.config.recipe import EngineChoice, Recipe
from labctl.config.schema import Kind, described, json_schema
from labctl.config.yaml.document import parse
from labctl.engines.base import Engine
from labctl.engines.registry import engine_names, engine_tasks, make_engine
from labctl.evaluation.recipe import EvaluationRecipe
from labctl.transport.registry import TRANSPORTS

DOCS = Path(__file__).parents[2] / "docs"
FILES: dict[Kind, Path] = {
    "recipe": DOCS / "recipes.md",
    "devices": DOCS / "devices.md",
    "models": DOCS / "models.md",
}

#: Engines whose parameters are the same in every recipe.
FIXED_PARAMETERS = [
    *(
        ("llama_cpp", task)
        for task, e in engine_tasks("llama_cpp").items()
        if issubclass(e, Engine)
    ),
    ("mindspore_lite", "benchmark"),
]


def rows(model: dict[str, Any]) -> list[str]:
    """One row for each key of a mapping: its name, its default, what it is."""
    found = []
    for key, member in model["properties"].items():
        value = member.get("default")
        default = "required" if key in model.get("required", ()) else ""
        if isinstance(value, str | int | float):
            default = f"`{value if isinstance(value, str) else json.dumps(value)}`"
        row = f"`{key}` | {default} | {' '.join(member['description'].split())}"
        found.append(f"| {row} |".replace("\n", "\\n").replace("<|im_end|>", "<\\|im_end\\|>"))
    return found


def tables(kind: Kind) -> dict[str, list[str]]:
    schema = json_schema(kind, lab_model(TRANSPORTS) if kind == "devices" else None)
    models = {kind: schema, **schema["$defs"]}
    if kind == "recipe":
        for name in engine_names():
            for task, engine in engine_tasks(name).items():
                keys = described(engine.keys_model)
                for known in EngineChoice.model_fields:
                    del keys["properties"][known]
                models |= {f"engine: {name} {task}": keys, **keys.get("$defs", {})}
        for name, task in FIXED_PARAMETERS:
            program = {} if name == "llama_cpp" else {"program": {"board": "/data/program"}}
            choice = EngineChoice.model_validate({"name": name, "task": task, **program})
            models[f"{name} {task}"] = make_engine(choice).parameters_model.model_json_schema()
    return {name: rows(model) for name, model in models.items() if model.get("properties")}


@pytest.mark.parametrize("kind", FILES)
def test_the_reference_has_every_key_as_the_model_has_it(kind: Kind) -> None:
    text = FILES[kind].read_text()
    for name, lines in tables(kind).items():
        block = "| key | default | |\n|---|---|---|\n" + "\n".join(lines) + "\n"
        assert block in text, f"the table of {name} in {FILES[kind].name} should be:\n{block}"


def test_the_reference_of_evaluations_has_every_key() -> None:
    text = (DOCS / "evaluation-recipes.md").read_text()
    schema = described(EvaluationRecipe)
    known = tables("recipe")
    for name, model in {"evaluation": schema, **schema["$defs"]}.items():
        # Sources of models are those of timing recipes, and documented there.
        if not model.get("properties") or name in known or name == "EvaluatedModel":
            continue
        block = "| key | default | |\n|---|---|---|\n" + "\n".join(rows(model)) + "\n"
        assert block in text, f"the table of {name} should be:\n{block}"


@pytest.mark.parametrize(
    ("path", "model"),
    [
        (FILES["recipe"], Recipe),
        (DOCS / "evaluation-recipes.md", EvaluationRecipe),
        (DOCS / "first-recipe.md", Recipe),
        (FILES["devices"], lab_model(TRANSPORTS)),
        (FILES["models"], Catalogue),
    ],
)
def test_the_examples_of_the_pages_are_valid(
    path: Path, model: type[Recipe | EvaluationRecipe | Lab | Catalogue]
) -> None:
    examples = re.findall(r"```yaml\n(.*?)```", path.read_text(), re.DOTALL)
    assert examples
    for example in examples:
        document = parse(example, model, path.name)
        if isinstance(document, Recipe):
            make_engine(document.engine)
