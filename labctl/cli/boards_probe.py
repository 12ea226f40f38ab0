"""``labctl boards probe``."""

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import click
from rich.table import Table

from labctl.cli.complete import BOARD
from labctl.cli.lab import connect_board, lab_of
from labctl.cli.output import json_option, output_console
from labctl.cli.progress import ProgressView
from labctl.cli.root import Invocation
from labctl.cli.run_view import RunView
from labctl.errors import printable, printable_line
from labctl.records.probe import BoardProbe, StorageRate
from labctl.runs.observer import Observer
from labctl.runs.probe import probe_board
from labctl.units import size


@click.command(epilog="Example: labctl boards probe rk1 --full")
@click.option("--full", is_flag=True, help="Measure longer, with a file of 1 GiB.")
@click.option(
    "--model",
    "models",
    multiple=True,
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="A small GGUF file: also measure the compute rate of its quantization.",
)
@json_option("Print the probe as JSON.")
@click.option("--board", "-b", "named", shell_complete=BOARD, help="The board, as BOARD.")
@click.argument("board", required=False, shell_complete=BOARD)
@click.pass_obj
def probe(
    invocation: Invocation,
    *,
    board: str | None,
    named: str | None,
    full: bool,
    models: tuple[Path, ...],
    as_json: bool,
) -> None:
    """Measure a board's memory, storage and compute rates.

    Holds the board's lease for about half a minute, with --full for two. Predictions and bounds use
    the last probe, which is kept in the lab's boards/BOARD/. Reports what became slower since the
    last probe.
    """
    lab = lab_of(invocation)
    if board is not None and named is not None:
        raise click.UsageError("name the board once")
    chosen = lab.board(board or named)
    with ProgressView() as view:
        shown = RunView(view)
        found, path = probe_board(
            lab,
            chosen,
            partial(connect_board, chosen),
            Observer(shown.show),
            full=full,
            models=models,
        )
        shown.end_step()
    if as_json:
        click.echo(json.dumps(found.model_dump(mode="json"), indent=2))
        return
    console = output_console()
    for line in _summary(found):
        console.print(printable(line), highlight=False, markup=False, soft_wrap=True)
    if found.memory or found.storage or found.compute:
        console.print(_table(found))
    for slow in found.slower:
        click.echo(f"SLOWER: {slow.what}: {size(slow.now)}/s, before {size(slow.before)}/s")
    for remark in found.notes:
        click.echo(printable_line(f"note: {remark}"))
    click.echo(f"probe: {path}")


def _summary(probe: BoardProbe) -> Iterator[str]:
    facts = probe.facts
    yield f"{probe.board}: {facts.machine}, kernel {facts.kernel}, execution {facts.execution}"
    if facts.os_version:
        yield f"system: {facts.os_version}"
    if facts.phone:
        yield f"phone: {facts.phone.text or '-'}"
    if facts.phone_state:
        yield f"battery: {facts.phone_state.text}"
    for cpu in facts.cpus:
        part = cpu.model or f"implementer {cpu.implementer} part {cpu.part}"
        yield f"CPU: {cpu.count} x {part}"
    for governor in sorted({clock.governor for clock in probe.clocks if clock.governor}):
        cpus = [clock for clock in probe.clocks if clock.governor == governor]
        highest = max((clock.highest_khz or 0 for clock in cpus), default=0)
        up_to = f", up to {highest / 1000:g} MHz" if highest else ""
        yield f"governor: {governor} on {len(cpus)} CPUs{up_to}"
    if clock := facts.memory_clock:
        most = f", up to {clock.highest_hz / 1e6:g} MHz" if clock.highest_hz else ""
        yield f"memory governor: {clock.governor or '-'}{most}"
    yield (
        f"memory: {size(facts.memory_total_bytes)}; storage: {facts.storage_kind or '-'}"
        f" on {probe.storage_device or '-'}, {size(facts.storage_free_bytes)} free"
    )
    for zone, temperature in probe.temperatures_after_mc.items():
        yield f"temperature: {zone} {temperature / 1000:.1f} °C"


def _table(probe: BoardProbe) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("measured")
    table.add_column("threads", justify="right")
    table.add_column("rate", justify="right")
    table.add_column("from storage")
    for memory in probe.memory:
        table.add_row("memory read", str(memory.threads), f"{size(memory.bytes_per_second)}/s", "")
    for storage in probe.storage:
        table.add_row(
            f"{storage.pattern} read, {storage.method}",
            str(storage.threads),
            f"{size(storage.bytes_per_second)}/s",
            _uncached(storage),
        )
    for compute in probe.compute:
        threads = "-" if compute.threads is None else str(compute.threads)
        for what, speed in (
            ("decode", compute.bytes_per_second),
            ("prompt", compute.prompt_bytes_per_second),
        ):
            shown = "-" if speed is None else f"{size(speed)}/s"
            table.add_row(f"{what}, {compute.quantization} weights", threads, shown, "")
    return table


def _uncached(storage: StorageRate) -> str:
    return {True: "yes", False: "NO: cached", None: "not known"}[storage.uncached]
