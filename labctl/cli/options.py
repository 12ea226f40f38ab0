"""Options that several commands share: quantities, signers of bundles, the choice of boards."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from labctl.cli.complete import BOARD
from labctl.config.lab import Board, LabFile
from labctl.config.types import parse_duration, parse_size, parse_use_time
from labctl.errors import ConfigError


class Quantity(click.ParamType[float | int]):
    """A quantity in the notation of the lab's files."""

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
#: Duration of holding or reserving a board.
USE_TIME = Quantity("duration", parse_use_time)
SIZE = Quantity("size", lambda text: parse_size(int(text) if text.isdecimal() else text))
#: A size per second; the ``/s`` is optional.
RATE = Quantity("rate", _parse_rate)


allowed_signers_option = click.option(
    "--allowed-signers",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Refuse a bundle not signed by somebody in this file (ssh-keygen's ALLOWED SIGNERS).",
)


def several_boards(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--board``, ``--tag`` and ``--all``; :func:`choose_boards` resolves them.

    Also add ``--no-wait``, for boards that others use.
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
