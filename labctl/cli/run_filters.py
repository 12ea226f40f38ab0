"""Options that choose runs, for every command that takes several."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import wraps
from typing import Any

import click

from labctl.cli.complete import BOARD, TAG
from labctl.config.types import parse_duration
from labctl.index import Filter

STATES = ("finished", "failed", "interrupted", "unfinished", "damaged")
VERDICTS = ("passed", "failed", "infra", "config")
_DAYS = re.compile(r"(\d{1,5})d")


class Moment(click.ParamType[datetime]):
    """A date, a time of a day, or an age."""

    name = "when"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> datetime:
        """Return the moment; without an offset it is in UTC, as the ids of runs are."""
        text = str(value)
        if days := _DAYS.fullmatch(text):
            return datetime.now(UTC) - timedelta(days=int(days[1]))
        try:
            found = datetime.fromisoformat(text)
        except ValueError:
            try:
                return datetime.now(UTC) - timedelta(seconds=parse_duration(text))
            except ValueError:
                self.fail(
                    f"{text!r}: must be a date such as 2026-11-22 or 2026-11-22T08:00 (UTC),"
                    " or an age such as 7d or 12h",
                    param,
                    ctx,
                )
        return found if found.tzinfo else found.replace(tzinfo=UTC)


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
        names = ("recipe", "board", "model", "quantization", "build", "since", "until", "verdict")
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
            metavar="NAME=VALUE",
            help="Engine parameter; repeatable: all names, any value of a name.",
        ),
        click.option("--tag", multiple=True, shell_complete=TAG, help="Tag; repeatable: all."),
        click.option(
            "--verdict", type=click.Choice(VERDICTS), help="Verdict on a run that has ended."
        ),
        click.option(
            "--state", multiple=True, type=click.Choice(STATES), help="State; repeatable: any."
        ),
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
