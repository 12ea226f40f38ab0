"""``labctl worker``: the lab hosts that run the queue's jobs."""

import json
import socket
from collections.abc import Sequence

import click

from labctl.cli.complete import BOARD
from labctl.cli.lab import connect_board, lab_of
from labctl.cli.output import json_option, note
from labctl.cli.root import Invocation
from labctl.cli.run import comparing_with
from labctl.config.lab import LabFile
from labctl.errors import ConfigError, printable_line
from labctl.state.state import lab_state
from labctl.units import duration


@click.command(epilog="Examples: labctl worker --host lab2; labctl worker --list")
@click.option("--host", metavar="NAME", help="Name of this lab host; default: its own name.")
@click.option(
    "--board",
    "--boards",
    "-b",
    "named",
    multiple=True,
    metavar="BOARD",
    shell_complete=BOARD,
    help="Serve this board; repeatable. Default: the boards of this host in devices.yaml, and those"
    " without a host that it reaches.",
)
@click.option(
    "--until-empty", is_flag=True, help="End when no job waits that this worker could run."
)
@click.option(
    "--list",
    "lists",
    is_flag=True,
    help="List the workers of all lab hosts, their boards, and if they are alive; run nothing.",
)
@json_option("With --list: print the workers as JSON, times in s since 1970.")
@click.pass_obj
def worker(
    invocation: Invocation,
    *,
    host: str | None,
    named: Sequence[str],
    until_empty: bool,
    lists: bool,
    as_json: bool,
) -> None:
    """Run the queue's jobs on the boards attached to this host, until stopped.

    A first SIGTERM or Ctrl-C lets running jobs end. A second one interrupts them; they are resumed
    later, on this host or another. Jobs submitted by a newer labctl wait for a newer worker. In a
    lab with several hosts, each has a worker: `database` in devices.yaml names a PostgreSQL,
    `store` the shared store.
    """
    if as_json and not lists:
        raise click.UsageError("--json is for --list")
    if lists:
        _list(invocation, as_json=as_json)
        return
    from labctl.farm.host_setup import host_worker, missing_tools

    lab = lab_of(invocation)
    own = host or socket.gethostname()
    boards = served_boards(lab, own, named)
    made = host_worker(
        lab,
        own,
        boards,
        connect=connect_board,
        compare=comparing_with(lab),
        note=lambda line: note(printable_line(line)),
    )
    note(f"worker {printable_line(made.name)} serves {', '.join(boards)}")
    for lack in missing_tools(lab, boards):
        note(f"warning: {printable_line(lack)}")
    made.run(until_empty=until_empty)


def _list(invocation: Invocation, *, as_json: bool) -> None:
    found = lab_state(lab_of(invocation)).workers.list()
    if as_json:
        click.echo(json.dumps([one.document() for one in found], indent=2))
        return
    if not found:
        note("no worker: start one with `labctl worker`, in a lab of several hosts on each")
    for one in found:
        silent = max(0.0, one.silent_seconds)
        signs = "alive" if one.is_alive else f"silent for {duration(silent * 1e9)}"
        signs = one.damaged or signs
        text = f"{one.host}  {signs}  {', '.join(one.boards)}  labctl {one.version}  {one.name}"
        click.echo(printable_line(text))


def served_boards(lab: LabFile, host: str, named: Sequence[str]) -> list[str]:
    """Return the boards that a worker serves. Raises ConfigError for unknown boards or no board."""
    if named:
        return [lab.board(name).name for name in dict.fromkeys(named)]
    found = [board.name for board in lab.lab.boards.values() if board.host in (host, None)]
    if not found:
        raise ConfigError(
            f"no board in {lab.path} is attached to host {host}",
            hint=f"add `host: {host}` to a board, or name this host: `labctl worker --host NAME`",
        )
    return found
