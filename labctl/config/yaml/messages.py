"""Texts for people about the problems that pydantic found."""

import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from labctl.config.yaml.loader import Path
from labctl.suggestions import did_you_mean, listed

Schema = dict[str, Any]

#: Type of our validators' own errors, which have paths and sentences (``document.refuse``).
REFUSED = "refused"

#: The text after "must be", by pydantic's type of error.
_WANTED = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "int_parsing": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "path_type": "a path",
    "none_required": "empty",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "dataclass_type": "a mapping",
    "model_attributes_type": "a mapping",
    "list_type": "a list",
    "tuple_type": "a list",
    "set_type": "a list",
    "frozen_set_type": "a list",
}

#: Texts of bounds, by type of error; filled with pydantic's own context.
_BOUNDS = {
    "greater_than": "must be more than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "multiple_of": "must be a multiple of {multiple_of}",
    "string_too_short": "must have at least {min_length} characters",
    "string_too_long": "must have at most {max_length} characters",
}

#: Types of an unknown key, in a model and in a dataclass.
_UNKNOWN_KEY = ("extra_forbidden", "unexpected_keyword_argument")

_COUNTS = {"too_short": ("at least", "min_length"), "too_long": ("at most", "max_length")}


#: An address with a scheme, or a host name with a path.
_ADDRESS = re.compile(r"([A-Za-z][\w+.-]*://)(\S*)|^()((?:[\w-]+\.)+[\w-]+(?::\d+)?/\S+)$")


def _host_alone(found: re.Match[str]) -> str:
    scheme, rest = (found[1], found[2]) if found[1] else (found[3], found[4])
    host = re.split("[/?#]", rest)[0]
    if "@" in rest:  # a password may hold a slash
        return f"{scheme}..."
    return f"{scheme}{host}" if rest in (host, f"{host}/") else f"{scheme}{host}/..."


def shown(value: object) -> str:
    """Format a user's value for a message: short, printable, with a visible type.

    Of an address only the host is shown: the rest may hold a password or a token.
    """
    if value is None:
        return "nothing"
    if isinstance(value, dict):
        return "a mapping" if value else "an empty mapping"
    if isinstance(value, list):
        return "a list" if value else "an empty list"
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    text = _ADDRESS.sub(_host_alone, str(value))
    return repr(text if len(text) <= 60 else f"{text[:57]}...")


def path_text(path: Path) -> str:
    """Return ``boards.rk1.tags[0]``; quote a key that is not a single word."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            word = step if re.fullmatch(r"[\w-]{1,60}", step) else shown(step)
            text += f".{word}" if text else word
    return text


def explain(
    errors: list[ErrorDetails], value: object, model: type[BaseModel]
) -> Iterator[tuple[Path, str, bool]]:
    """Return for each wrong place its path, a sentence, and True if the key itself is wrong."""
    at: dict[Path, list[ErrorDetails]] = {}
    schemas: dict[Path, list[Schema]] = {}
    for error in errors:
        if error["type"] == "too_short" and len(error["input"]) >= error["ctx"]["min_length"]:
            continue  # its length is right: its wrong entries are reported
        path, found = _locate(error, value, _schema(model))
        if error["type"] == REFUSED:
            for inner, message, about_key in error["ctx"]["problems"]:
                yield (*path, *inner), message, about_key
            continue
        if error["type"] == "union_tag_invalid":
            path = (*path, error["ctx"]["discriminator"].strip("'"))
        at.setdefault(path, []).append(error)
        schemas[path] = found
    for path, here in at.items():
        # The branches of a union fail one by one; report their requirements in one sentence.
        wanted = list(dict.fromkeys(_WANTED[e["type"]] for e in here if e["type"] in _WANTED))
        others = [e for e in here if e["type"] not in _WANTED]
        if wanted and not others:
            yield path, _mismatch(wanted, here[0]["input"]), False
        for error in others:
            about_key = error["type"] in _UNKNOWN_KEY or error["loc"][-1:] == ("[key]",)
            known = sorted(
                {key for schema in schemas[path] for key in schema.get("properties", ())}
            )
            yield path, _sentence(error, known), about_key


def _mismatch(wanted: list[str], got: object) -> str:
    must = f"must be {listed(wanted)}"
    if got is None:
        return f"{must}, but nothing is written here"
    if wanted == ["text"] and isinstance(got, bool | int | float):
        return f"{must}, not {shown(got)}; put it in quotes"
    if wanted == ["true or false"] and str(got).lower() in ("yes", "no", "on", "off"):
        return f"{must}; {got} is only text"
    return f"{must}, not {shown(got)}"


def _sentence(error: ErrorDetails, known_keys: list[str]) -> str:
    kind, got = error["type"], error["input"]
    context: dict[str, Any] = error.get("ctx", {})
    match kind:
        case "missing":
            text = "this key is required"
        case _ if kind in _UNKNOWN_KEY:
            text = _unknown_key(str(error["loc"][-1]), known_keys)
        case "literal_error" | "enum":
            text = one_of(got, _quoted(context["expected"]))
        case "union_tag_invalid":
            text = one_of(context["tag"], _quoted(context["expected_tags"]))
        case "union_tag_not_found":
            text = f"the key {context['discriminator']} is required"
        case "too_short" | "too_long":
            bound, number = _COUNTS[kind], context[_COUNTS[kind][1]]
            text = f"must have {bound[0]} {number} {'entry' if number == 1 else 'entries'}"
        case "value_error":
            text = str(context["error"])
            text += f", not {shown(got)}" if text.startswith("must be") else ""
        case _ if kind in _BOUNDS:
            text = f"{_BOUNDS[kind].format(**context)}, not {shown(got)}"
        case _ if kind in _WANTED:
            text = _mismatch([_WANTED[kind]], got)
        case _:
            text = error["msg"]
    return text


def _unknown_key(key: str, known: list[str]) -> str:
    if near := did_you_mean(key, known):
        return f"unknown key{near}"
    return f"unknown key; known here: {', '.join(known)}" if known else "unknown key"


def one_of(got: object, known: list[str]) -> str:
    """Return ``must be a, b or c, not 'x' (did you mean …)``."""
    near = did_you_mean(got, known) if isinstance(got, str) else ""
    return f"must be {listed(known)}, not {shown(got)}{near}"


def _quoted(expected: str) -> list[str]:
    return re.findall(r"'((?:[^'\\]|\\.)*)'", expected) or [expected]


@cache
def _schema(model: type[BaseModel]) -> Schema:
    return model.model_json_schema()


def _locate(error: ErrorDetails, value: object, schema: Schema) -> tuple[Path, list[Schema]]:
    """Return the path of an error in the document, and the schemas of the mapping there.

    pydantic's location also names branches of unions, which the document does not have.
    """
    path: Path = ()
    holders, here = [schema], _branches(schema, schema)
    steps = error["loc"]
    for number, step in enumerate(steps):
        tagged = [s["discriminator"]["mapping"][step] for s in here if _has_tag(s, step)]
        if tagged:
            # A reference, or a nested union.
            here = [
                branch
                for tag in tagged
                for branch in _branches(tag if isinstance(tag, dict) else {"$ref": tag}, schema)
            ]
            continue
        if isinstance(value, dict) and step in value:
            value = value[str(step)]
        elif isinstance(value, list) and isinstance(step, int) and step < len(value):
            value = value[step]
        elif number < len(steps) - 1 or error["type"] != "missing":
            continue
        path = (*path, step)
        holders, here = here, [b for s in here for b in _children(s, step, schema)]
    return path, holders


def _has_tag(schema: Schema, step: object) -> bool:
    return step in schema.get("discriminator", {}).get("mapping", {})


def _branches(schema: Schema, root: Schema) -> list[Schema]:
    """Return the schema with its references followed, and the branches of its unions."""
    if "$ref" in schema:
        return _branches(root["$defs"][schema["$ref"].rpartition("/")[2]], root)
    below = [
        branch
        for union in ("anyOf", "oneOf", "allOf")
        for member in schema.get(union, ())
        if "discriminator" not in schema
        for branch in _branches(member, root)
    ]
    return [schema, *below]


def _children(schema: Schema, step: str | int, root: Schema) -> list[Schema]:
    if isinstance(step, int):
        children = [schema.get("items"), *schema.get("prefixItems", ())[step : step + 1]]
    elif step in schema.get("properties", {}):
        children = [schema["properties"][step]]
    else:
        children = [
            schema.get("additionalProperties"),
            *schema.get("patternProperties", {}).values(),
        ]
    return [b for child in children if isinstance(child, dict) for b in _branches(child, root)]
