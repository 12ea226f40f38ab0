"""A recipe's arguments with placeholders replaced; each argument stays one word."""

import re
from collections.abc import Iterator, Mapping, Sequence

from labctl.text_types import is_name

MODEL, PROMPT = "model", "prompt"
_FILE = "file:"
_PLACEHOLDER = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")


def placeholders(arguments: Sequence[str]) -> list[str]:
    """Return all names in braces, in order, each once. Raises ValueError with a user message."""
    found: dict[str, None] = {}
    for argument in arguments:
        for match in _PLACEHOLDER.finditer(argument):
            name = match[1]
            if name is None and match[0] in ("{", "}"):
                raise ValueError(f"{argument!r} has a single {match[0]}; write {match[0] * 2}")
            if name is not None:
                if not is_name(name.removeprefix(_FILE)):
                    raise ValueError(
                        f"{{{name}}} is not a placeholder; braces are written {{{{ }}}}"
                    )
                found[name] = None
    return list(found)


def files_of(names: Sequence[str]) -> Iterator[str]:
    """Yield the recipe's files among placeholders."""
    return (name.removeprefix(_FILE) for name in names if name.startswith(_FILE))


def parameters_of(names: Sequence[str]) -> list[str]:
    """Return the parameters among placeholders."""
    return [n for n in names if n not in (MODEL, PROMPT) and not n.startswith(_FILE)]


def filled(arguments: Sequence[str], values: Mapping[str, str]) -> list[str]:
    """Replace the placeholders; inserted text is not searched again."""

    def value(match: "re.Match[str]") -> str:
        return values[match[1]] if match[1] is not None else match[0][0]

    return [_PLACEHOLDER.sub(value, word) for word in arguments]
