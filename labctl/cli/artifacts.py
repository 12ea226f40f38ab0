"""``labctl artifacts``."""

import json
from datetime import timedelta

import click
from rich.table import Table

from labctl.build import artifact_store
from labctl.build.artifact import list_artifacts
from labctl.cli.complete import ARTIFACT, TARGET
from labctl.cli.output import json_option, note, output_console
from labctl.config.types import parse_duration
from labctl.errors import ConfigError, IntegrityError, printable_line
from labctl.report.console import plain, print_fitting, print_whole
from labctl.units import size

#: In the table of differences; JSON has everything.
_WIDEST_CELL = 48


@click.group(epilog="Example: labctl artifacts diff rk3568/llama.cpp-new 3f2a91")
def artifacts() -> None:
    """List, verify, compare and remove built artifacts.

    Name an artifact TARGET/PRODUCT-VERSION (the last build), or by the first digits of its key.
    """


@artifacts.command("list", epilog="Example: labctl artifacts list --target rk3568")
@click.option("--target", shell_complete=TARGET, help="Only artifacts for this target.")
@json_option("Print JSON.")
def list_command(target: str | None, *, as_json: bool) -> None:
    """List all artifacts; a star marks the current one of a version.

    On a narrow terminal, source and toolchain are left out: `labctl artifacts show` has them.
    """
    found = [a for a in list_artifacts() if target in (None, a.manifest.target)]
    if as_json:
        click.echo(json.dumps(artifact_store.list_document(found), indent=2))
        return
    current = artifact_store.current_paths()
    table = Table(box=None, pad_edge=False, show_edge=False)
    for heading in ("", "artifact", "key", "size", "built", "source", "toolchain"):
        table.add_column(heading, justify="right" if heading == "size" else "left")
    for artifact in found:
        manifest = artifact.manifest
        table.add_row(
            "*" if artifact.path.resolve() in current else "",
            plain(f"{manifest.target}/{manifest.product}-{manifest.version}"),
            plain(manifest.key[: artifact_store.KEY_DIGITS]),
            size(artifact_store.size_bytes(artifact)),
            f"{artifact.built:%Y-%m-%d %H:%M}",
            plain(manifest.source.revision),
            plain(str(manifest.toolchain)),
        )
    print_fitting(output_console(), table, spare=2)


@artifacts.command(epilog="Example: labctl artifacts show rk3568/llama.cpp-new")
@click.argument("name", shell_complete=ARTIFACT)
def show(name: str) -> None:
    """Print an artifact's manifest as JSON."""
    click.echo(json.dumps(artifact_store.resolve_artifact(name).document(), indent=2))


@artifacts.command(epilog="Example: labctl artifacts verify")
@click.argument("names", metavar="[NAME]...", nargs=-1, shell_complete=ARTIFACT)
def verify(names: tuple[str, ...]) -> None:
    """Hash the tools of artifacts again; default: of all artifacts."""
    found = [artifact_store.resolve_artifact(name) for name in names] if names else list_artifacts()
    damaged: list[str] = []
    for artifact in found:
        try:
            artifact.verify()
        except IntegrityError as error:
            damaged.append(error.message)
        else:
            tools = len(artifact.manifest.tools)
            word = "tool" if tools == 1 else "tools"
            click.echo(printable_line(f"good  {artifact.path}  {tools} {word}"))
    if damaged:
        raise IntegrityError(
            f"{len(damaged)} of {len(found)} artifacts are damaged",
            hint="labctl build makes their tools again",
            details="\n".join(damaged),
        )


@artifacts.command(epilog="Example: labctl artifacts diff rk3568/llama.cpp-new 3f2a91")
@click.argument("names", metavar="NAME NAME [NAME]...", nargs=-1, shell_complete=ARTIFACT)
@json_option("Print JSON.")
def diff(names: tuple[str, ...], *, as_json: bool) -> None:
    """Compare the manifests of artifacts, and the sizes of their sections."""
    if len(names) < 2:
        raise ConfigError("name two or more artifacts", hint="labctl artifacts list")
    found = [artifact_store.resolve_artifact(name) for name in names]
    fields, tables = artifact_store.differences(found), artifact_store.section_sizes(found)
    if as_json:
        click.echo(json.dumps(artifact_store.difference_document(found), indent=2))
        return
    heads = [f"{a.manifest.target}/{a.manifest.key[: artifact_store.KEY_DIGITS]}" for a in found]
    console = output_console()
    if not fields:
        click.echo("the manifests are equal")
    else:
        table = _table("field", *heads)
        for one in fields:
            table.add_row(plain(one.field), *(plain(_shown(value)) for value in one.values))
        print_whole(console, table)
    for tool, rows in tables.items():
        click.echo()
        table = _table(f"{tool}: bytes", *heads, right=True)
        for row in rows:
            cells = ("-" if value is None else f"{value:,}" for value in row.values)
            table.add_row(plain(row.field), *cells)
        print_whole(console, table)


@artifacts.command(epilog="Example: labctl artifacts prune --older 7d --dry-run")
@click.option(
    "--older",
    default="30d",
    show_default=True,
    metavar="DURATION",
    help="Remove artifacts built longer ago than this.",
)
@click.option("--dry-run", is_flag=True, help="List what would be removed; remove nothing.")
def prune(older: str, *, dry_run: bool) -> None:
    """Remove old artifacts and their build trees; the last one of each version stays.

    The last of an untrusted version does not. What builds left that made no artifact goes too.
    """
    try:
        age = timedelta(seconds=parse_duration(older))
    except ValueError as error:
        raise ConfigError(f"--older {older}: {error}") from error
    pruned = artifact_store.prune(age, dry_run=dry_run)
    for one in (*(str(artifact.path) for artifact in pruned.artifacts), *pruned.others):
        click.echo(printable_line(f"{'would remove' if dry_run else 'removed'}  {one}"))
    total = size(sum(map(artifact_store.size_bytes, pruned.artifacts)))
    note(
        f"{len(pruned.artifacts)} artifacts, {total} of tools; {len(pruned.others)} left by builds"
    )


def _shown(value: object) -> str:
    match value:
        case None:
            return "-"
        case list() | tuple():
            text = " ".join(map(str, value)) or "none"
        case _:
            text = str(value)
    return text if len(text) <= _WIDEST_CELL else f"{text[: _WIDEST_CELL - 1]}…"


def _table(*headings: str, right: bool = False) -> Table:
    table = Table(box=None, pad_edge=False, show_edge=False, padding=(0, 2))
    for index, heading in enumerate(headings):
        numbers = (right and index > 0) or heading == "size"
        table.add_column(plain(heading), justify="right" if numbers else "left")
    return table
