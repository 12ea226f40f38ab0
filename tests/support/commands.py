"""All commands of labctl."""

from typing import Any

import click

from labctl.cli.root import cli


def all_commands(group: Any = cli, *before: str) -> list[tuple[tuple[str, ...], click.Command]]:
    """Every command, with the words that name it."""
    found = []
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        found.append(((*before, name), command))
        if isinstance(command, click.Group):
            found += all_commands(command, *before, name)
    return found


def parse(words: list[str]) -> tuple[tuple[str, ...], click.Command]:
    """Parse a command line as labctl does, and run nothing. Return its command, and its words."""
    context = cli.make_context("labctl", words)
    command: click.Command = cli
    named: tuple[str, ...] = ()
    while isinstance(command, click.Group):
        rest = [*context._protected_args, *context.args]
        if not rest:
            break
        name, found, rest = command.resolve_command(context, rest)
        assert name is not None
        assert found is not None
        named += (name,)
        command, context = found, found.make_context(name, rest, parent=context)
    return named, command
