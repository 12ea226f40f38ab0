"""Keys of a recipe's ``engine`` for programs that labctl does not know."""

from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from labctl.config.types import Argument
from labctl.config.yaml.document import refuse
from labctl.config.yaml.loader import Path
from labctl.engines.base import EngineKeys, ProgramSource
from labctl.engines.command.arguments import MODEL, PROMPT, placeholders
from labctl.engines.command.numbers import FIELDS, UNITS
from labctl.engines.command.schema import Reader, Success, TokenStream
from labctl.suggestions import listed


def _with_placeholders(arguments: tuple[str, ...]) -> tuple[str, ...]:
    placeholders(arguments)
    return arguments


def _with_units(output: tuple[Reader, ...]) -> tuple[Reader, ...]:
    read: set[str] = set()
    for index, reader in enumerate(output):
        for name, value in reader.values.items():
            path = (index, "values", name)
            _require_unit(path, value.metric, value.unit, every=reader.occurs == "every")
            if value.metric in read:
                raise refuse(f"{value.metric} is read twice", *path)
            read.add(value.metric)
    return output


def _require_unit(path: Path, metric: str, unit: str, *, every: bool) -> None:
    if metric not in FIELDS:
        return
    dimension = FIELDS[metric][1]
    fitting = [name for name, (other, _) in UNITS.items() if other == dimension]
    if unit not in fitting:
        raise refuse(f"{metric} is in {listed(fitting)}, not in {unit}", *path)
    if every:
        raise refuse(
            f"{metric} is one number, but occurs: every gives many; to keep them all, use another"
            " name",
            *path,
        )


Arguments = Annotated[tuple[Argument, ...], AfterValidator(_with_placeholders)]
Output = Annotated[tuple[Reader, ...], AfterValidator(_with_units)]


class ProgramKeys(EngineKeys):
    """Keys of an engine whose program the recipe names."""

    program: ProgramSource
    """The program."""


class CommandKeys(ProgramKeys):
    """Keys of the engine ``command``."""

    arguments: Arguments
    """Arguments of the program, one word each; no shell reads them. `{model}`, `{prompt}`,
    `{file:NAME}` and the names of parameters in braces are replaced; `{{` and `}}` are braces."""
    output: Output = ()
    """Rules that read its output."""
    tokens: TokenStream | None = None
    """Marks of single tokens in the output, if it has them; each is timed by the board's clock."""
    success: Success | None = None
    """Conditions of success; by default: exit status 0."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if not self.output and self.tokens is None:
            raise refuse("needs output or tokens: without them nothing is measured")
        if self.tokens is not None and self.tokens.count in (MODEL, PROMPT):
            raise refuse(f"{self.tokens.count} is not a parameter", "tokens", "count")
        return self


class SampleKeys(ProgramKeys):
    """Keys of the engine ``nnrt``."""

    arguments: Arguments = ()
    """Arguments of the program, one word each, as with `command`."""
    output: Annotated[tuple[Reader, ...], Field(min_length=1), AfterValidator(_with_units)]
    """Rules that read its output."""
    success: Success | None = None
    """Conditions of success; by default: exit status 0."""
