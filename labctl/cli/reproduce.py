"""``labctl reproduce``."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from labctl.cli.complete import BOARD
from labctl.cli.lab import connect_board, lab_and_board
from labctl.cli.options import allowed_signers_option
from labctl.cli.output import confirm, json_option, note
from labctl.cli.root import Invocation
from labctl.errors import ConfigError, ExitStatus, printable_line
from labctl.units import duration

if TYPE_CHECKING:
    from labctl.bundle.verdicts import Number


@click.command(epilog="Example: labctl reproduce x.labctl.zip --board rk1 --model q8=q8.gguf")
@click.option(
    "--board",
    "-b",
    shell_complete=BOARD,
    help="The board to measure on; default: the lab's default board.",
)
@click.option(
    "--model",
    "models",
    multiple=True,
    metavar="KEY=FILE",
    help="Use this file as a model, if it has the bundle's SHA-256; repeatable.",
)
@click.option(
    "--file",
    "inputs",
    multiple=True,
    metavar="KEY=FILE",
    help="Use this file as one of the recipe's files, if it has the run's SHA-256; repeatable.",
)
@click.option(
    "--program",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Use this file as a program not built by labctl, if it has the run's SHA-256.",
)
@allowed_signers_option
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@json_option("Print the judgements as JSON, times in ns.")
@click.argument("bundle", type=click.Path(path_type=Path, dir_okay=False))
@click.pass_obj
def reproduce(
    invocation: Invocation,
    bundle: Path,
    *,
    board: str | None,
    models: tuple[str, ...],
    inputs: tuple[str, ...],
    program: Path | None,
    allowed_signers: Path | None,
    yes: bool,
    as_json: bool,
) -> int:
    """Measure a bundle's run again on a board, and compare.

    Shows source, commit, programs, arguments and models, and asks for confirmation. Builds from the
    same source, if possible in a container without network; takes models by their hash; runs the
    same recipe; and judges each number: reproduced, not reproduced, or can't tell. Exit status 1: a
    number was not reproduced, or a program failed.
    """
    from labctl.bundle.reader import open_bundle
    from labctl.bundle.reproduce import plan_reproduction, reproduction_document
    from labctl.bundle.reproduce import reproduce as make_again
    from labctl.bundle.verdicts import Judgement
    from labctl.cli.build import BuildView
    from labctl.cli.bundle import signer_of
    from labctl.cli.progress import ProgressView, Steps
    from labctl.cli.run_view import RunView
    from labctl.results.summary import ESTIMATE
    from labctl.runs.observer import Observer

    files, own_inputs = _files(models, "--model"), _files(inputs, "--file")
    with open_bundle(bundle) as opened:
        signer = signer_of(opened, allowed_signers)
        lab, chosen = lab_and_board(invocation, board)
        planned = plan_reproduction(
            opened, signer, lab, chosen, files=files, inputs=own_inputs, program=program
        )
        for line in planned.lines():
            click.echo(printable_line(line), err=as_json)
        if not yes:
            confirm(f"reproduce it on board {chosen.name}")
        with ProgressView() as view:
            observer, steps = Observer(RunView(view).show), Steps(view)
            outcome, imported, numbers = make_again(
                planned, connect_board, observer, steps.step, BuildView(view).build
            )
    failed = any(one.judgement is Judgement.NOT_REPRODUCED for one in numbers)
    status = ExitStatus.JOB if failed else outcome.exit_status
    if as_json:
        document = reproduction_document(bundle, imported, outcome, numbers)
        click.echo(json.dumps(document, indent=2))
        return status
    _print(numbers)
    note(
        f"the bundle's run is {imported.path.name}, the new one {outcome.run.id};"
        f" values are {ESTIMATE}s over the repeats"
    )
    return status


def _files(words: Sequence[str], option: str) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for word in words:
        key, equals, path = word.partition("=")
        if not key or not equals or not path:
            raise ConfigError(f"{option} {word}: must be KEY=FILE")
        found[key] = Path(path)
    return found


def _print(numbers: Sequence["Number"]) -> None:
    for one in numbers:
        sides = [_shown(one, value) for value in (one.there, one.here)]
        values = "" if None in (one.there, one.here) else f" {sides[0]} there, {sides[1]} here;"
        line = f"{one.variant}, {one.what}: {one.judgement.upper()};{values} {one.reason}"
        click.echo(printable_line(line))


def _shown(number: "Number", value: float | None) -> str:
    if value is None:
        return "-"
    if "share" in number.what:
        return f"{value:.0%}"
    is_rate = number.what in ("tokens/s", "prompt rate")
    return f"{value:.4g} tokens/s" if is_rate else duration(value)
