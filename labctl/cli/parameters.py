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


DURATION = Quantity("duration", parse_duration)
SIZE = Quantity("size", parse_size)
#: A size each second; the ``/s`` may be left out.
RATE = Quantity("rate", lambda text: parse_size(text.removesuffix("/s")))
