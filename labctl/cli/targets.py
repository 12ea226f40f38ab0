"""``labctl build --list``: machine types that labctl builds for."""

import json
from pathlib import Path

import click
from rich.table import Table

from labctl.build.artifact import list_artifacts
from labctl.cli.output import note, output_console
from labctl.config.target import load_targets
from labctl.report.console import plain, print_whole


def list_targets(root: Path, *, as_json: bool) -> None:
    """Print the machine types of the lab's toolchains/ and of labctl, and what is built for each.

    Shows the features of their instruction sets.
    """
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
