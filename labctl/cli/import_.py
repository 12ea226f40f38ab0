"""``labctl import``."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from labctl.cli.lab import lab_or_own
from labctl.cli.options import allowed_signers_option
from labctl.cli.output import json_option, note
from labctl.cli.root import Invocation
from labctl.errors import ConfigError
from labctl.files import host_reads
from labctl.units import counted

if TYPE_CHECKING:
    from labctl.exchange.llama_bench_import import Imported

_ZIP = b"PK\x03\x04"


@click.command("import", epilog="Examples: labctl import friends.json; labctl import x.labctl.zip")
@allowed_signers_option
@json_option("Print the runs as JSON.")
@click.argument(
    "files",
    metavar="FILE...",
    nargs=-1,
    required=True,
    type=click.Path(path_type=Path),
)
@click.pass_obj
def import_(
    invocation: Invocation, files: Sequence[Path], *, allowed_signers: Path | None, as_json: bool
) -> None:
    """Import runs that were measured elsewhere: bundles, and results of llama-bench.

    Each file becomes a run. It is a file of `labctl bundle`, the output of `llama-bench -o json`,
    `-o jsonl` or `-o sql`, or its SQLite database; labctl recognises it by its content. The run is
    listed, shown and exported like any other, but never compared as if this lab had measured it. A
    file that was imported before is not imported again.
    """
    from labctl.exchange.llama_bench_import import import_results
    from labctl.runs.record.directory import RunDirectory
    from labctl.runs.record.repository import note_in_index

    runs = lab_or_own(invocation).root / "runs"
    bundles = [file for file in files if _is_bundle(file)]
    if allowed_signers is not None and len(bundles) < len(files):
        raise click.UsageError("--allowed-signers is for bundles")
    done = []
    for file in files:
        if file in bundles:
            found = _import_bundle(runs, file, allowed_signers)
        else:
            found = import_results(runs, file)
        done.append(found.document(file))
        if found.earlier:
            note(f"{file} was imported before")
        else:
            note_in_index(RunDirectory(runs / found.run), note)
        if not as_json:
            click.echo(f"{found.run}: {counted(found.trials, 'trial')}")
    if as_json:
        click.echo(json.dumps(done, indent=2))


def _is_bundle(file: Path) -> bool:
    if file.exists() and not file.is_file():  # reading a pipe would block
        raise ConfigError(f"cannot read {file}: not a regular file")
    with host_reads(file), file.open("rb") as opened:
        return opened.read(len(_ZIP)) == _ZIP


def _import_bundle(runs: Path, file: Path, allowed_signers: Path | None) -> "Imported":
    """Import a bundle after checking all of it. Raises NotABundle, ConfigError or HostError."""
    from labctl.bundle.importing import import_bundle
    from labctl.bundle.reader import open_bundle
    from labctl.cli.bundle import signer_of
    from labctl.exchange.llama_bench_import import Imported, earlier_import

    with open_bundle(file) as bundle:
        signer = signer_of(bundle, allowed_signers)
        if (known := earlier_import(runs, bundle.sha256)) is not None:
            return known
        directory = import_bundle(bundle, runs, signer)
    return Imported(directory.path.name, len(directory.records()))
