"""Options that choose runs, for every command that takes several."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from labctl.cli.complete import BOARD, PARAMETER, TAG
from labctl.index.filters import KINDS, STATES, VERDICTS, Filter, no_state, parse_moment
from labctl.suggestions import unknown

if TYPE_CHECKING:
    from labctl.runs.record.repository import RunRepository


class Moment(click.ParamType[datetime]):
    """A date, a time of a day, or an age."""

    name = "when"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> datetime:
        """Return the moment; without an offset it is in UTC, like the ids of runs."""
        try:
            return parse_moment(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Setting(click.ParamType[tuple[str, str]]):
    """A parameter with its value."""

    name = "setting"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        """Return name and value."""
        name, equals, wanted = str(value).partition("=")
        if not (name.strip() and equals):
            self.fail(f"{value!r}: must be NAME=VALUE, such as threads=4", param, ctx)
        return name.strip(), wanted.strip()


class State(click.Choice[str]):
    """A state of runs."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the state. For other words that lists show as a state, fail with the option."""
        if problem := no_state(str(value)):
            self.fail(problem, param, ctx)
        return super().convert(value, param, ctx)


def filter_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that choose runs; the command gets ``wanted``, a Filter."""

    @wraps(command)
    def with_filter(
        *words: Any,
        state: tuple[str, ...],
        tag: tuple[str, ...],
        parameters: tuple[tuple[str, str], ...],
        **options: Any,
    ) -> Any:
        names = (
            "recipe", "board", "model", "quantization", "build", "since", "until", "verdict",
            "kind",
        )  # fmt: skip
        chosen = {name: options.pop(name) for name in names}
        wanted = Filter(states=state, tags=tag, parameters=parameters, **chosen)
        return command(*words, wanted=wanted, **options)

    decorated: Callable[..., Any] = with_filter
    when = Moment()
    for option in (
        click.option(
            "--param",
            "parameters",
            multiple=True,
            type=Setting(),
            shell_complete=PARAMETER,
            metavar="NAME=VALUE",
            help="Engine parameter; repeatable: all names, any value of a name.",
        ),
        click.option("--tag", multiple=True, shell_complete=TAG, help="Tag; repeatable: all."),
        click.option(
            "--kind",
            type=click.Choice(KINDS),
            help="Kind of run: measured times, or answered questions.",
        ),
        click.option(
            "--verdict", type=click.Choice(VERDICTS), help="Verdict on a run that has ended."
        ),
        click.option("--state", multiple=True, type=State(STATES), help="State; repeatable: any."),
        click.option("--until", type=when, metavar="WHEN", help="Started before this."),
        click.option(
            "--since", type=when, metavar="WHEN", help="Started since: 2026-11-22, 7d, 12h."
        ),
        click.option("--build", help="Version of the program, start of its commit or build key."),
        click.option("--quantization", help="Quantization of a model, such as Q8_0."),
        click.option("--model", help="Key, file or name of a model, or the start of its SHA-256."),
        click.option("--board", "-b", shell_complete=BOARD, help="Board of the run or a trial."),
        click.option("--recipe", help="Name of the recipe."),
    ):
        decorated = option(decorated)
    return decorated


def unknown_names(repository: "RunRepository", wanted: Filter) -> Iterator[str]:
    """Yield names in a filter that no run has, with the nearest existing name."""
    if not (known := repository.query()):
        return
    for kind in ("recipe", "board"):
        word = getattr(wanted, kind)
        if word is not None and not repository.query(replace(Filter(), **{kind: word})):
            names = {name for one in known if (name := getattr(one.run, kind)) is not None}
            yield unknown(kind, word, names, where=" in any run")
    names = {name for name, _ in repository.parameters()}
    for name in dict(wanted.parameters).keys() - names:
        yield unknown("parameter", name, names, where=" in any run")
