"""Small types that several documents share."""

import re
from pathlib import PurePosixPath
from typing import Annotated, Any

from pydantic import AfterValidator, WithJsonSchema

from labctl.config.names import NAME_PATTERN, NAME_RULE, is_name


def _name(text: str) -> str:
    if not is_name(text):
        raise ValueError(f"must be {NAME_RULE}")
    return text


def _text_schema(pattern: str, *examples: str) -> WithJsonSchema:
    schema: dict[str, Any] = {"type": "string", "pattern": pattern}
    return WithJsonSchema(schema | {"examples": list(examples)} if examples else schema)


#: A board, host, lab, target, recipe, model or tag.
Name = Annotated[str, AfterValidator(_name), _text_schema(NAME_PATTERN)]


def _line(text: str) -> str:
    if not text.strip():
        raise ValueError("must be text, not empty")
    if any(ord(character) < 32 for character in text):
        raise ValueError("must be one line without control characters")
    return text


#: One line of text.
Line = Annotated[
    str,
    AfterValidator(_line),
    _text_schema(r"^[^\u0000-\u001f]*[^\s\u0000-\u001f][^\u0000-\u001f]*$"),
]


def _argument(text: str) -> str:
    if "\0" in text:
        raise ValueError("has a NUL character in it, which no program can be given")
    return text


#: One word for a program.
Argument = Annotated[str, AfterValidator(_argument)]

_SHA256_PATTERN = r"^[0-9a-fA-F]{64}$"


def _sha256(text: str) -> str:
    if not re.fullmatch(_SHA256_PATTERN.removesuffix("$"), text):
        raise ValueError("must be a SHA-256: 64 hexadecimal digits")
    return text.lower()


Sha256 = Annotated[str, AfterValidator(_sha256), _text_schema(_SHA256_PATTERN)]


def _board_path(text: str) -> str:
    if not text.startswith("/") or text.strip("/") == "":
        raise ValueError("must be an absolute path below / on the board")
    if "%" in text:
        # hdcd hands a failing path to printf as its format.
        raise ValueError("must not contain '%': a path with one can crash the board's hdc daemon")
    if any(part in (".", "..") for part in text.split("/")):
        raise ValueError("must not contain the steps '.' and '..'")
    if len(text) > 200 or any(ord(c) < 32 or ord(c) == 127 for c in text):
        raise ValueError("must be at most 200 characters without control characters")
    return str(PurePosixPath("/", text.strip("/")))


#: An absolute path on a board.
BoardPath = Annotated[
    str,
    AfterValidator(_board_path),
    _text_schema(
        r"^(?!(.*/)?\.{1,2}(/|$))(?!/+$)[^%\u0000-\u001f\u007f]{1,200}$",
        "/data/local/tmp/labctl",
    ),
]
