"""Numbers and JSON values that programs and devices print."""

import re

from pydantic import JsonValue

#: A printed number. Without a bound, 1e999999999 would be one of a billion digits.
NUMBER = re.compile(r"[+-]?([0-9]{1,30}(\.[0-9]{0,30})?|\.[0-9]{1,30})([eE][+-]?[0-9]{1,2})?")


def text_at(document: JsonValue, path: str) -> str | None:
    """Return the number or text at a path such as ``runs.0.ns``; None if there is none."""
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
