"""``labctl boards probes``: the probes in the lab's files."""

import json

import click

from labctl.cli.complete import BOARD
from labctl.cli.lab import lab_of
from labctl.cli.output import json_option, note
from labctl.cli.root import Invocation
from labctl.errors import printable_line
from labctl.index.rows import ProbeRow
from labctl.units import rate


@click.command(epilog="Example: labctl boards probes rk1")
@json_option("Print the probes as JSON, rates in bytes per second.")
@click.argument("board", required=False, shell_complete=BOARD)
@click.pass_obj
def probes(invocation: Invocation, board: str | None, *, as_json: bool) -> None:
    """List the probes of all boards or of one, newest first.

    Contacts no board. Storage rates include only reads that provably came from the storage.
    """
    from labctl.runs.record.repository import RunRepository

    found = RunRepository(lab_of(invocation).root / "runs", note).probes(board)
    if as_json:
        click.echo(json.dumps([one.document() for one in found], indent=2))
        return
    for one in found:
        click.echo(printable_line(_line(one)))
    if not found:
        note("no probes; make one: `labctl boards probe`")


def _line(one: ProbeRow) -> str:
    when = one.taken[:16].replace("T", " ")
    if one.damage is not None:
        return f"{when}  {one.board}  damaged: {one.damage}"
    rates = [
        f"{name} {rate(value, 'bytes')}"
        for name, value in (
            ("memory", one.memory_bytes_per_second),
            ("mapping", one.mapping_bytes_per_second),
            ("sequential", one.sequential_bytes_per_second),
            ("random", one.random_bytes_per_second),
        )
        if value is not None
    ]
    mark = "" if one.execution == "board" else f"  {str(one.execution).upper()}"
    slower = f"  SLOWER: {one.slower}" if one.slower else ""
    return f"{when}  {one.board}  {', '.join(rates) or 'no rates'}{mark}{slower}"
