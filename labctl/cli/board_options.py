"""The options that choose several boards of a lab, the same for every command."""

from collections.abc import Callable, Sequence
from typing import Any

import click

from labctl.cli.complete import BOARD
from labctl.config.lab import Board, LabFile
from labctl.errors import ConfigError


def several_boards(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--board``, ``--tag`` and ``--all``; :func:`choose_boards` resolves them.

    Also add ``--no-wait``: boards are shared.
    """
    no_wait = "Do not wait for a board in use; exit with status 3."
    for option in (
        click.option("--no-wait", is_flag=True, help=no_wait),
        click.option("--all", "every", is_flag=True, help="All boards of the lab."),
        click.option("--tag", "tags", multiple=True, help="All boards with this tag."),
        click.option(
            "--board",
            "-b",
            "boards",
            multiple=True,
            shell_complete=BOARD,
            help="A board; repeatable.",
        ),
    ):
        command = option(command)
    return command


def choose_boards(
    lab: LabFile, names: Sequence[str], tags: Sequence[str], *, every: bool
) -> list[Board]:
    """Return the boards that options name; without any, the lab's default. Raises ConfigError."""
    known = lab.lab.boards
    if every:
        return list(known.values())
    for tag in tags:
        if not any(tag in board.tags for board in known.values()):
            raise ConfigError(f"no board in {lab.path} has the tag {tag}")
    named = [lab.board(name) for name in names]
    tagged = [board for board in known.values() if set(tags) & set(board.tags)]
    found = {board.name: board for board in (*named, *tagged)}
    return list(found.values()) or [lab.board(None)]
