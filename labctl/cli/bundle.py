"""``labctl bundle``: make a bundle, or show one without running any part of it."""

import json
from pathlib import Path

import click

from labctl.bundle.form import SUFFIX
from labctl.bundle.reader import Bundle, open_bundle
from labctl.bundle.signature import Signer, verify
from labctl.cli.complete import COMPARED
from labctl.cli.lab import find_only_run
from labctl.cli.output import json_option, note
from labctl.cli.root import Invocation
from labctl.errors import printable, printable_line
from labctl.units import counted, size

#: Size limit of an entry that is printed.
_MOST_SHOWN_BYTES = 4 << 20


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
    from labctl.bundle.make import make_bundle

    directory = find_only_run(invocation, run)
    path = output or Path(f"{directory.path.resolve().name}{SUFFIX}")
    made = make_bundle(directory, path, with_identity=with_identity, key=key)
    if as_json:
        click.echo(json.dumps(made.document(path), indent=2))
        return
    for one in made.left_out:
        note(printable_line(f"left out: {one}"))
    if with_identity:
        note("nothing was left out: it contains names, paths and addresses of this lab")
    for text in made.notes:
        note(f"note: {printable_line(text)}")
    click.echo(f"{path}: {counted(len(made.entries), 'file')}, {size(path.stat().st_size)}")


def as_bundle(name: str) -> tuple[Path, str | None] | None:
    """Return the file and the entry of FILE or FILE/ENTRY; None for a run."""
    if Path(name).is_file():
        return Path(name), None
    head, found, entry = name.partition(f"{SUFFIX}/")
    path = Path(f"{head}{SUFFIX}")
    return (path, entry) if found and path.is_file() else None


def signer_of(bundle: Bundle, allowed_signers: Path | None) -> Signer | None:
    """Return the signer of a bundle; None if it is not signed and needs no signature.

    Raises ConfigError if it must be signed by one of ``allowed_signers``, and what
    :func:`labctl.bundle.signature.verify` raises.
    """
    if bundle.signature is None:
        if allowed_signers is not None:
            raise bundle.refusal("it is not signed, and --allowed-signers asks for it")
        return None
    return verify(bundle.manifest_bytes, bundle.signature, allowed_signers)


def show_bundle(
    path: Path, entry: str | None, allowed_signers: Path | None, *, as_json: bool
) -> None:
    """Print the facts of a checked bundle, or one entry as safe text.

    Raises NotABundle, and what :func:`signer_of` raises.
    """
    with open_bundle(path) as bundle:
        signer = signer_of(bundle, allowed_signers)
        if entry is not None:
            raw = bundle.read(entry, most=_MOST_SHOWN_BYTES)
            click.echo(printable(raw.decode(errors="replace")), nl=False)
            return
        bundle.verify()
    manifest = bundle.manifest
    if as_json:
        click.echo(json.dumps(bundle.document(signer), indent=2))
        return
    lines = [
        f"{path}: run {manifest.run}, recipe {manifest.recipe}, target {manifest.target}",
        f"  whole: {counted(len(manifest.entries), 'file')}, each with its SHA-256",
        f"  {signer}" if signer else "  not signed: its author is unknown",
        f"  made by labctl {manifest.labctl_version}; SHA-256 {bundle.sha256}",
    ]
    left_out = ", ".join(map(str, manifest.left_out)) or "nothing"
    lines.append(f"  left out: {'nothing' if manifest.with_identity else left_out}")
    lines += [f"  note: {text}" for text in manifest.notes]
    lines += [f"  {size(one.size_bytes):>9}  {name}" for name, one in manifest.entries.items()]
    for line in lines:
        click.echo(printable_line(line))
