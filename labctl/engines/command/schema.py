"""Recipe keys for reading the output of a program that labctl does not know."""

import re
import warnings
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from labctl.config.types import Name
from labctl.config.yaml.document import StrictModel, refuse, refuse_all
from labctl.config.yaml.loader import Path as DocumentPath

_LONGEST_PATTERN = 2000

Stream = Literal["stdout", "stderr"]
#: Quantities of a printed number.
Unit = Literal[
    "ns", "us", "ms", "s", "bytes", "kB", "MB", "GB", "KiB", "MiB", "GiB",
    "tokens", "tokens_per_s", "number",
]  # fmt: skip


def compiled(pattern: str) -> "re.Pattern[str]":
    """Compile a recipe's pattern: ``^`` and ``$`` match at every line.

    Raises ValueError with a message for users.
    """
    if len(pattern) > _LONGEST_PATTERN:
        raise ValueError(f"longer than {_LONGEST_PATTERN} characters")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            return re.compile(pattern, re.MULTILINE)
        except (re.error, FutureWarning, DeprecationWarning, RecursionError, OverflowError) as bad:
            raise ValueError(f"not a regular expression: {bad}") from None


def _pattern(text: str) -> str:
    compiled(text)
    return text


Pattern = Annotated[str, AfterValidator(_pattern)]


class ReadValue(StrictModel):
    """Meaning of a printed number."""

    metric: Name
    """`load`, `prompt_eval`, `eval`, `sampling`, `total`, `ttft` (times), `prompt_tokens`,
    `generated_tokens` or `tokens_per_second` of the record; any other name becomes a measure in the
    record."""
    unit: Unit
    """Unit of the printed number."""


class Reader(StrictModel):
    """Rule to find numbers in a program's output."""

    stream: Stream = "stdout"
    """Output that holds them."""
    pattern: Pattern | None = None
    """A regular expression (Python's) with named groups, `(?P<load>[0-9.]+) ms` for instance; `^`
    and `$` match at every line."""
    json_lines: bool = False
    """Instead of a pattern: every line that begins with `{` is an object of JSON."""
    occurs: Literal["once", "first", "last", "every"] = "once"
    """Matches that count; with `once`, a second one is an error."""
    optional: bool = False
    """True if the program may leave it out; then it is absent from the record."""
    values: Annotated[dict[str, ReadValue], Field(min_length=1)]
    """Meaning of each group; for JSON lines, of each path (`timings.load`, `runs.0.ns`)."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if (self.pattern is None) != self.json_lines:
            raise refuse("give either a pattern or json_lines: true")
        if self.pattern is not None:
            groups = compiled(self.pattern).groupindex
            problems: list[tuple[DocumentPath, str]] = [
                (("values", name), f"the pattern has no group (?P<{name}>…)")
                for name in self.values
                if name not in groups
            ]
            if problems:
                raise refuse_all(problems)
        return self


class TokenStream(StrictModel):
    """Mark of each generated token in the output."""

    stream: Stream = "stdout"
    """The stream with the tokens."""
    each: Literal["chunk", "line"] = "chunk"
    """`chunk`: the program flushes after each token and prints nothing else there; `line`: each
    token ends a line."""
    count: Name | None = None
    """Parameter with the number of generated tokens, if the output does not report it
    (`generated_tokens`). Without either, results per token are absent."""


class Success(StrictModel):
    """Conditions of a program's success."""

    exit_status: Annotated[tuple[Annotated[int, Field(ge=0, le=255)], ...], Field(min_length=1)] = (
        0,
    )
    """Exit statuses of success."""
    require: Pattern | None = None
    """A pattern that must be in its output, on either stream."""
    refuse: Pattern | None = None
    """A pattern that must not be in its output, on either stream."""
