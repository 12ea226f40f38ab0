"""Types of options: sizes, durations, rates."""

from collections.abc import Callable
from typing import Any

import click

from labctl.config.types import parse_duration, parse_size


class Quantity(click.ParamType[float | int]):
    """A text that a parser of the lab's files understands."""

    def __init__(self, name: str, parse: Callable[[str], float | int]):
        self.name = name
        self._parse = parse

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float | int:
        """Return the number; fails with the parser's message."""
        try:
            return self._parse(str(value))
        except ValueError as error:
            self.fail(f"{value!r}: {error}", param, ctx)


def _parse_rate(text: str) -> int:
    try:
        rate = parse_size(text.removesuffix("/s"))
    except ValueError:
        rate = 0
    if rate == 0:
        raise ValueError("must be a rate with its unit, such as 5MB/s or 500kB/s")
    return rate


DURATION = Quantity("duration", parse_duration)
SIZE = Quantity("size", lambda text: parse_size(int(text) if text.isdecimal() else text))
#: A size per second; the ``/s`` is optional.
RATE = Quantity("rate", _parse_rate)
