"""Show a bundle without running any part of it."""

import json
from pathlib import Path

import click

from labctl.bundle.form import SUFFIX
from labctl.bundle.reader import Bundle, open_bundle
from labctl.bundle.signature import Signer, verify
from labctl.errors import printable, printable_line
from labctl.units import counted, size

#: An entry that is text for people.
_MOST_SHOWN_BYTES = 4 << 20


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
    left_out = ", ".join(one.kind for one in manifest.left_out) or "nothing"
    lines.append(f"  left out: {'nothing' if manifest.with_identity else left_out}")
    lines += [f"  note: {text}" for text in manifest.notes]
    lines += [f"  {size(one.size_bytes):>9}  {name}" for name, one in manifest.entries.items()]
    for line in lines:
        click.echo(printable_line(line))
