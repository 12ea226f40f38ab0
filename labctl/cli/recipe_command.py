"""Commands for recipes of every kind: help groups the options; options of other kinds are refused.

An option that only some recipes have belongs to one of the groups.
"""

from collections.abc import Mapping
from typing import Any, Literal

import click
from click.core import ParameterSource

from labctl.config.recipe_parts import A_KIND, Kind

#: ``board``: the recipe uses one board of the lab. The others are kinds of recipes.
Group = Literal["board", "timing", "evaluation"]
_TITLES: Mapping[Group, str] = {
    "board": "Options for recipes that use a board",
    "timing": "Options for timing recipes",
    "evaluation": "Options for evaluations",
}


class RecipeCommand(click.Command):
    """A command for recipes. ``only``: group -> names of its options."""

    def __init__(self, *words: Any, only: Mapping[Group, tuple[str, ...]], **options: Any):
        super().__init__(*words, **options)
        self.group_of = {name: group for group, names in only.items() for name in names}

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options in groups; options of all recipes come first."""
        sections: dict[str, list[tuple[str, str]]] = {"Options": []}
        sections |= {title: [] for title in _TITLES.values()}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None and isinstance(parameter, click.Option):
                group = self.group_of.get(str(parameter.name))
                sections[_TITLES[group] if group else "Options"].append(record)
        for title, records in sections.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


def refuse_foreign(kind: Kind) -> None:
    """Raise UsageError if the present command line has an option of another kind of recipes."""
    for group in ("timing", "evaluation"):
        if group != kind:
            refuse_options(group, f"{A_KIND[kind]} does not have this option")


def refuse_options(group: Group, why: str) -> None:
    """Raise UsageError if the present command line has an option of a group."""
    ctx = click.get_current_context()
    command = ctx.command
    if not isinstance(command, RecipeCommand):
        raise TypeError(f"{command.name} has no groups of options")
    for parameter in command.params:
        is_given = ctx.get_parameter_source(str(parameter.name)) is ParameterSource.COMMANDLINE
        if is_given and command.group_of.get(str(parameter.name)) == group:
            raise click.UsageError(f"{parameter.opts[0]}: {why}", ctx)


limit_option = click.option(
    "--limit",
    type=click.IntRange(min=1),
    help="Number of questions; the same as --set dataset.limit=N.",
)


def with_limit(settings: tuple[str, ...], limit: int | None) -> tuple[str, ...]:
    """Add the number of questions, if given, to the settings of an evaluation."""
    return settings if limit is None else (*settings, f"dataset.limit={limit}")
