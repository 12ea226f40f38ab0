"""Numbers and JSON values that programs and devices print."""

import re
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, Field, GetCoreSchemaHandler, JsonValue, ValidationError
from pydantic_core import CoreSchema, from_json

#: A printed number, bounded: 1e999999999 would have a billion digits.
NUMBER = re.compile(r"[+-]?([0-9]{1,30}(\.[0-9]{0,30})?|\.[0-9]{1,30})([eE][+-]?[0-9]{1,2})?")

#: Most bytes of JSON in an answer of a board, server or program; as Python objects 25 times more.
MOST_JSON_BYTES = 16 << 20
#: Text that may be a number which does not fit into a database, a float or a record.
_ODD_NUMBER = re.compile(rb"[0-9]{19}|(?:^|[\[:,\s])-?[0-9][0-9.]*[eE]\+?[0-9]|NaN|Infinity")
_BEYOND = 1 << 63


def read_json(text: str | bytes, *, most_bytes: int = MOST_JSON_BYTES) -> Any:
    """Return an untrusted JSON value, of bounded size and depth.

    Its text consists of whole Unicode characters, its numbers are finite and below 2**63. Raises
    ValueError for everything else; never RecursionError, OverflowError or MemoryError.
    """
    check_json(text, most_bytes=most_bytes)
    return from_json(text, allow_inf_nan=False)


def check_json(text: str | bytes, *, most_bytes: int = MOST_JSON_BYTES) -> None:
    """Raise ValueError for JSON that :func:`read_json` refuses; pydantic accepts some of it."""
    raw = text.encode() if isinstance(text, str) else text
    if len(raw) > most_bytes:
        raise ValueError(f"{len(raw):,} bytes of JSON; the most is {most_bytes:,}")
    if _ODD_NUMBER.search(raw):
        _check_numbers(from_json(raw, allow_inf_nan=False))


def _check_numbers(value: JsonValue) -> None:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for one in inner:
        _check_numbers(one)
    if isinstance(value, int | float) and not -_BEYOND <= value < _BEYOND:
        raise ValueError("a number of more than 64 bits")


#: A time that a program or server prints; at most ten years, which fit into ns.
Milliseconds = Annotated[float, Field(ge=0, le=3.2e11)]


def _fail_fast(schema: Any) -> None:
    if isinstance(schema, dict):
        if schema.get("type") in ("list", "tuple", "set", "frozenset"):
            schema["fail_fast"] = True
        for name, inner in schema.items():
            if name not in ("cls", "metadata", "default", "config"):
                _fail_fast(inner)
    elif isinstance(schema, list):
        for inner in schema:
            _fail_fast(inner)


class FailFastModel(BaseModel):
    """A model of untrusted data: validation of a list stops at its first wrong item.

    Otherwise the errors of a million wrong items would take 20 s and a gigabyte.
    """

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: Any, handler: GetCoreSchemaHandler, /
    ) -> CoreSchema:
        """Make the schema as pydantic does, but with lists that stop at the first error."""
        schema = handler(source)
        _fail_fast(schema)
        return schema

    @classmethod
    def of_json(
        cls,
        raw: str | bytes,
        *,
        most_bytes: int = MOST_JSON_BYTES,
        extra: Literal["ignore"] | None = None,
    ) -> Self:
        """Read the model from untrusted JSON. Raises ValueError, as :func:`read_json` does.

        ``extra`` replaces the model's setting for unknown fields.
        """
        if len(raw) > most_bytes:
            raise ValueError(f"{len(raw):,} bytes of JSON; the most is {most_bytes:,}")
        # Here to name the field of an odd number.
        found = cls.model_validate_json(raw, extra=extra)
        check_json(raw, most_bytes=most_bytes)
        return found


def first_problem(error: ValueError) -> str:
    """Return the first problem of JSON that does not fit the model, with its place."""
    if not isinstance(error, ValidationError):
        return f"JSON: {error}"
    problem = error.errors(include_url=False, include_input=False)[0]
    steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in problem["loc"])
    return f"{''.join(steps).removeprefix('.') or 'JSON'}: {problem['msg']}"


def text_at(document: JsonValue, path: str) -> str | None:
    """Return the number or text at a path such as ``runs.0.ns``, or None."""
    for step in path.split("."):
        if isinstance(document, dict):
            document = document.get(step)
        elif isinstance(document, list) and step.isdecimal() and int(step) < len(document):
            document = document[int(step)]
        else:
            return None
    if isinstance(document, bool) or not isinstance(document, int | float | str):
        return None
    return str(document)
