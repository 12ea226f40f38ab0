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
