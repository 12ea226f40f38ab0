"""``labctl targets``: machine types that labctl builds for."""

import json

import click
from rich.table import Table

from labctl.build.artifact import list_artifacts
from labctl.cli.lab import lab_or_own
from labctl.cli.output import json_option, note, output_console
from labctl.cli.root import Invocation
from labctl.config.target import load_targets
from labctl.report.details import plain, print_whole


@click.command(epilog="Example: labctl targets")
@json_option("Print the list as JSON.")
@click.pass_obj
def targets(invocation: Invocation, *, as_json: bool) -> None:
    """List machine types that tools are built for.

    These are the folders of the lab's toolchains/, and those shipped with labctl. Shows the
    features of their instruction sets, and the artifacts built for each.
    """
    root = lab_or_own(invocation).root
    built: dict[str, list[str]] = {}
    for artifact in list_artifacts():
        manifest = artifact.manifest
        built.setdefault(manifest.target, []).append(f"{manifest.product} {manifest.version}")
    found, left_out = load_targets(root)
    for why in left_out:
        note(why)
    if as_json:
        rows = [target.document(built.get(target.name, ())) for target in found]
        click.echo(json.dumps(rows, indent=2))
        return
    for target in found:
        table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
        products = ", ".join(sorted(set(built.get(target.name, ())))) or "nothing"
        features = " ".join(target.features) or "-"
        table.add_row(f"[bold]{plain(target.name)}[/]", plain(target.description))
        table.add_row("  features", plain(f"{target.machine}: {features}"))
        table.add_row("  built", plain(products))
        print_whole(output_console(), table)
