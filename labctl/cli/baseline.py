"""``labctl baseline``: names for runs that others are compared with."""

import json
from collections.abc import Sequence

import click

from labctl.cli.complete import BASELINE, RUN
from labctl.cli.lab import lab_or_own, runs_folder
from labctl.cli.output import json_option, note
from labctl.cli.root import Invocation
from labctl.errors import printable_line
from labctl.runs.record.lookup import find_run
from labctl.state.baselines import Baseline
from labctl.state.state import lab_state


@click.group(epilog="Example: labctl baseline set release-1.2 latest")
def baseline() -> None:
    """Name runs that later runs are compared with."""


@baseline.command("set", epilog="Example: labctl baseline set release-1.2 latest --variant q8_0")
@click.option("--variant", metavar="NAME", help="The variant that counts; default: each.")
@click.option("--note", "text", metavar="TEXT", help="Reason, for people.")
@json_option("Print the baseline as JSON.")
@click.argument("name", shell_complete=BASELINE)
@click.argument("runs", metavar="RUN...", nargs=-1, required=True, shell_complete=RUN)
@click.pass_obj
def set_command(
    invocation: Invocation,
    name: str,
    runs: Sequence[str],
    *,
    variant: str | None,
    text: str | None,
    as_json: bool,
) -> None:
    """Give one run or several runs the name NAME; they replace its earlier runs.

    `labctl runs remove` refuses these runs. A run in progress, one without a good trial, and a mix
    of real and emulated boards are refused.
    """
    from labctl.runs.record.baselines import set_baseline

    lab = lab_or_own(invocation)
    before = lab_state(lab).baselines.get(name)
    directories = [find_run(runs_folder(invocation, run), run) for run in runs]
    new = set_baseline(lab, name, directories, variant=variant, note=text)
    if before:
        note(f"was: {printable_line(_line(before))}")
    click.echo(json.dumps(new.document(), indent=2) if as_json else printable_line(_line(new)))


@baseline.command("list", epilog="Example: labctl baseline list --json")
@json_option("Print all baselines as JSON.")
@click.pass_obj
def list_command(invocation: Invocation, *, as_json: bool) -> None:
    """List all baselines, with who set them, and when."""
    from labctl.runs.record.repository import RunRepository

    lab = lab_or_own(invocation)
    found = lab_state(lab).baselines.list()
    if as_json:
        click.echo(json.dumps([one.document() for one in found], indent=2))
    else:
        for one in found:
            click.echo(printable_line(_line(one)))
    if not found:
        note("no baselines; make one: `labctl baseline set NAME RUN`")
        return
    known = {one.run.id for one in RunRepository(lab.root / "runs", note).query()}
    for one in found:
        if gone := [run for run in one.runs if run not in known]:
            text = f"baseline {one.name}: no longer in this lab: {' '.join(gone)}"
            note(printable_line(text))


@baseline.command("remove", epilog="Example: labctl baseline remove release-1.2")
@click.argument("name", shell_complete=BASELINE)
@click.pass_obj
def remove(invocation: Invocation, name: str) -> None:
    """Remove a baseline. Its runs stay."""
    lab_state(lab_or_own(invocation)).baselines.remove(name)


def _line(one: Baseline) -> str:
    variant = f" variant {one.variant}" if one.variant else ""
    text = f"  {one.note}" if one.note else ""
    if one.damaged:
        return f"{one.name}: {' '.join(one.runs)}  {one.damaged}"
    when = f"{one.set_at:%Y-%m-%d %H:%M}"
    return f"{one.name}: {' '.join(one.runs)}{variant} ({one.set_by}, {when}){text}"
