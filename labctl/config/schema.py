"""JSON Schemas of the user's files, for editors that complete and check."""

import ast
import inspect
import sys
from collections.abc import Container, Mapping, Sequence
from functools import cache
from itertools import pairwise
from typing import Any, Literal, get_args

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core.core_schema import DataclassSchema, ModelSchema

Kind = Literal[
    "recipe",
    "evaluation",
    "load-test",
    "devices",
    "models",
    "references",
    "target",
    "nightly",
    "batch",
]
KINDS: tuple[Kind, ...] = get_args(Kind)

_TITLES: dict[Kind, str] = {
    "recipe": "labctl recipe",
    "evaluation": "labctl evaluation recipe",
    "load-test": "labctl load test recipe",
    "devices": "labctl devices.yaml",
    "models": "labctl models.yaml",
    "references": "labctl references.yaml",
    "target": "labctl target.yaml",
    "nightly": "labctl plan of a night",
    "batch": "labctl plan of a batch",
}


def json_schema(
    kind: Kind,
    model: type[BaseModel] | None = None,
    metrics: Mapping[str, Sequence[str]] | None = None,
) -> dict[str, Any]:
    """Return the schema (draft 2020-12) of a kind of document.

    It accepts what labctl accepts. It does not check rules between keys (a model that another key
    names) and an engine's own parameters. ``model`` replaces the document's model by one that knows
    more, such as the keys of all engines. Recipes of evaluations and load tests, and plans of
    nights and batches, are defined on a higher floor: their ``model`` is required. ``metrics``:
    names of the figures that ``metric`` accepts, by part of the document.
    """
    schema = described(model or document_model(kind))
    _close(schema)
    for part, names in (metrics or {}).items():
        schema["$defs"][part]["properties"]["metric"]["enum"] = [*names]
    return {"$schema": GenerateJsonSchema.schema_dialect, **schema, "title": _TITLES[kind]}


def described(model: type[BaseModel]) -> dict[str, Any]:
    """Return the schema of a model; docstrings of attributes describe its keys."""
    return model.model_json_schema(schema_generator=_Described, mode="validation")


class _Described(GenerateJsonSchema):
    """Describe each key with the docstring of its attribute.

    pydantic's ``use_attribute_docstrings`` would read the source of every model at import: half of
    the start-up time of commands that read a lab but print no schema.
    """

    def model_schema(self, schema: ModelSchema) -> JsonSchemaValue:
        model = schema["cls"]
        keys = {name: field.alias or name for name, field in model.model_fields.items()}
        return _with_docstrings(model, super().model_schema(schema), keys)

    def dataclass_schema(self, schema: DataclassSchema) -> JsonSchemaValue:
        described = super().dataclass_schema(schema)
        return _with_docstrings(schema["cls"], described, {key: key for key in schema["fields"]})


def _with_docstrings(
    model: type, described: JsonSchemaValue, keys: Mapping[str, str]
) -> JsonSchemaValue:
    """Describe keys of a schema; ``keys`` has them by the names of the model's fields."""
    for name, text in _attribute_docstrings(model, keys).items():
        described["properties"][keys[name]].setdefault("description", text)
    return described


def _attribute_docstrings(model: type, fields: Container[str]) -> dict[str, str]:
    """Return the string literal below each field of a model or dataclass, by the field's name."""
    found: dict[str, str] = {}
    for one in reversed(model.__mro__):
        if one in (BaseModel, object):
            continue
        source = _classes(one.__module__).get(one.__name__)  # None for a model of create_model
        for field, text in pairwise(source.body if source else ()):
            match field, text:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(
                    value=ast.Constant(value=str(docstring))
                ) if name in fields:
                    found[name] = inspect.cleandoc(docstring)
    return found


@cache
def _classes(module: str) -> dict[str, ast.ClassDef]:
    try:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    except OSError:  # the source of an engine's package may be missing
        return {}
    return {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}


def document_model(kind: Kind) -> type[BaseModel]:
    """Return the model for this kind of document."""
    # Import on demand: a command needs only one of them.
    if kind == "recipe":
        from labctl.config.recipe import Recipe

        return Recipe
    if kind == "devices":
        from labctl.config.lab import Lab

        return Lab
    if kind == "models":
        from labctl.config.models import Catalogue

        return Catalogue
    if kind == "references":
        from labctl.config.references import References

        return References
    if kind == "target":
        from labctl.config.target import Target

        return Target
    raise ValueError(f"the model of documents of this kind has to be given: {kind}")


def _close(schema: Any) -> None:
    """Refuse invalid names, which pydantic's schema allows; drop the needless titles."""
    if isinstance(schema, list):
        for member in schema:
            _close(member)
    if not isinstance(schema, dict):
        return
    if "patternProperties" in schema:
        schema["additionalProperties"] = False
        schema.pop("propertyNames", None)
    if isinstance(schema.get("title"), str):
        del schema["title"]
    for key, member in schema.items():
        if key not in ("default", "examples", "enum", "const"):
            _close(member)
