"""``labctl bundle``."""

import json
from pathlib import Path

import click

from labctl.cli.complete import COMPARED
from labctl.cli.lab import find_only_run
from labctl.cli.output import json_option, note
from labctl.cli.root import Invocation
from labctl.errors import printable_line
from labctl.units import counted, size


@click.command(epilog="Example: labctl bundle latest -o q8.labctl.zip --sign ~/.ssh/id_ed25519")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="The file to write; default: the run's id and .labctl.zip.",
)
@click.option(
    "--with-identity",
    is_flag=True,
    help="Leave in host names, users, paths, serial numbers, addresses and the run's note.",
)
@click.option(
    "--sign",
    "key",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="KEY",
    help="Sign with this ssh key: a private one, or a public one that ssh-agent has.",
)
@json_option("Print the manifest as JSON.")
@click.argument("run", default="latest", shell_complete=COMPARED)
@click.pass_obj
def bundle(
    invocation: Invocation,
    *,
    run: str,
    output: Path | None,
    with_identity: bool,
    key: Path | None,
    as_json: bool,
) -> None:
    """Write a run into one file that others can check and reproduce.

    The file has recipe, records, raw logs, manifests of the builds, the board's probe, the source
    of each model, and the tables. Host names, users, home and lab paths, serial numbers, addresses
    and keys are replaced, and the replacements are listed. The same run gives the same bytes.
    """
    from labctl.bundle.form import SUFFIX
    from labctl.bundle.make import make_bundle

    directory = find_only_run(invocation, run)
    path = output or Path(f"{directory.path.resolve().name}{SUFFIX}")
    made = make_bundle(directory, path, with_identity=with_identity, key=key)
    if as_json:
        click.echo(json.dumps(made.document(path), indent=2))
        return
    for one in made.left_out:
        where = counted(len(one.entries), "file")
        note(f"left out: {one.kind}, {counted(one.times, 'time')} in {where}")
    if with_identity:
        note("nothing was left out: it contains names, paths and addresses of this lab")
    for text in made.notes:
        note(f"note: {printable_line(text)}")
    click.echo(f"{path}: {counted(len(made.entries), 'file')}, {size(path.stat().st_size)}")
