"""JSON Schemas of what the user writes, for editors that complete and check."""

from typing import Any, Literal, get_args

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema

Kind = Literal["recipe", "devices", "models", "target"]
KINDS: tuple[Kind, ...] = get_args(Kind)

_TITLES: dict[Kind, str] = {
    "recipe": "labctl recipe",
    "devices": "labctl devices.yaml",
    "models": "labctl models.yaml",
    "target": "labctl target.yaml",
}


def json_schema(kind: Kind, model: type[BaseModel] | None = None) -> dict[str, Any]:
    """Return the schema (draft 2020-12) of a recipe, devices.yaml, models.yaml or target.yaml.

    It accepts what labctl accepts. Rules between keys (a model that another key names) and an
    engine's own parameters are beyond it. ``model`` stands in for the document's own: one that
    knows more, such as the keys of all engines.
    """
    schema = (model or document_model(kind)).model_json_schema(mode="validation")
    _close(schema)
    return {"$schema": GenerateJsonSchema.schema_dialect, **schema, "title": _TITLES[kind]}


def document_model(kind: Kind) -> type[BaseModel]:
    """The model that reads such a document."""
    # Each is imported when it is asked for: a command needs one.
    if kind == "recipe":
        from labctl.config.recipe import Recipe

        return Recipe
    if kind == "devices":
        from labctl.config.lab import Lab

        return Lab
    if kind == "models":
        from labctl.config.models import Catalogue

        return Catalogue
    from labctl.config.target import Target

    return Target


def _close(schema: Any) -> None:
    """Refuse names that do not fit, which pydantic leaves open; drop the noise of titles."""
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
