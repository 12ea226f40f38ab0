"""The filters and pages of lists of runs in a query, with the names of `labctl runs`."""

from collections.abc import Iterable
from typing import Any

from labctl.errors import ConfigError
from labctl.index.filters import KINDS, STATES, VERDICTS, Filter, parse_moment

PAGE_RUNS = 50
_SINGLE = ("recipe", "board", "model", "quantization", "build", "verdict", "kind")
_SEVERAL = {"state": "states", "tag": "tags", "param": "parameters"}
_MOMENTS = ("since", "until")
_KNOWN = {"state": STATES, "verdict": VERDICTS, "kind": KINDS}
_OTHERS = ("page", "lang")
_LONGEST, _MOST = 200, 20


def page_number(text: str | None) -> int:
    """Return the number of a page. Raises ConfigError."""
    if text is None:
        return 1
    if not (text.isascii() and text.isdigit() and len(text) < 8 and int(text) > 0):
        raise ConfigError("page must be a number from 1")
    return int(text)


def pages(count: int) -> int:
    """Return the number of pages for a number of runs."""
    return max(1, -(-count // PAGE_RUNS))


def filter_words(query: Iterable[tuple[str, str]]) -> Filter:
    """Return the filter of a query; empty values are ignored. Raises ConfigError."""
    chosen: dict[str, Any] = {}
    for name, value in query:
        if not value or name in _OTHERS:
            continue
        if len(value) > _LONGEST:
            raise ConfigError(f"{name}: at most {_LONGEST} characters")
        if name in _KNOWN and value not in _KNOWN[name]:
            raise ConfigError(f"{name}: {value!r} is none of {', '.join(_KNOWN[name])}")
        if name in _SEVERAL:
            key = _SEVERAL[name]
            chosen[key] = (*chosen.get(key, ()), _setting(value) if name == "param" else value)
            if len(chosen[key]) > _MOST:
                raise ConfigError(f"{name}: at most {_MOST} times")
        elif name in _MOMENTS:
            chosen[name] = _moment(name, value)
        elif name in _SINGLE:
            chosen[name] = value
        else:
            raise ConfigError(f"unknown filter {name!r}")
    return Filter(**chosen)


def _moment(name: str, text: str) -> object:
    try:
        return parse_moment(text)
    except ValueError as error:
        raise ConfigError(f"{name}: {error}") from None


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name.strip() and equals):
        raise ConfigError(f"param: {text!r}: must be NAME=VALUE, such as threads=4")
    return name.strip(), value.strip()
