"""``labctl bundle``: turn a run into one file from which a stranger can reproduce it.

The file is a zip within the bounds of its reader. The same entries give the same bytes.
"""

import hashlib
import stat
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

from labctl.bundle import form
from labctl.bundle.contents import Contents
from labctl.bundle.form import BundleManifest, Entry, LeftOut, name_problem
from labctl.bundle.identity import secrets_of, vocabulary_of
from labctl.bundle.redact import Redactor
from labctl.bundle.signature import sign
from labctl.config.lab import find_lab_root
from labctl.distribution import labctl_version
from labctl.errors import ConfigError
from labctl.files import appearing
from labctl.runs.record.directory import RunDirectory
from labctl.runs.record.journal import Journal
from labctl.units import size

#: The earliest time that a zip can store.
_TIME = (1980, 1, 1, 0, 0, 0)
#: Signs the manifest; None: no signature.
Sign = Callable[[bytes], bytes]


def write_zip(
    path: Path,
    entries: Iterable[tuple[str, bytes]],
    manifest: Callable[[dict[str, Entry]], BundleManifest],
    sign: Sign | None = None,
    *,
    most_bytes: int = form.MOST_BYTES,
) -> BundleManifest:
    """Write a bundle, and move it to ``path`` when it is complete.

    Args:
        path: the file; an existing one is replaced.
        entries: names with contents, in the order of writing.
        manifest: called with the written entries; its result is the last entry.
        sign: makes the signature of the manifest's bytes.
        most_bytes: total size of the contents that a reader accepts.

    Raises ConfigError if the bundle is too large for a reader, HostError.
    """
    written: dict[str, Entry] = {}
    total = 0
    with appearing(path) as file:
        with zipfile.ZipFile(file, "w", allowZip64=False) as bundle:
            for name, content in entries:
                _add(bundle, name, content)
                digest = hashlib.sha256(content).hexdigest()
                written[name] = Entry(sha256=digest, size_bytes=len(content))
                total += len(content)
                _check(len(written), len(content), total, most_bytes)
            made = manifest(dict(sorted(written.items())))
            raw = (made.model_dump_json(indent=2) + "\n").encode()
            _add(bundle, form.MANIFEST, raw)
            if sign is not None:
                _add(bundle, form.SIGNATURE, sign(raw))
        if file.tell() > form.MOST_FILE_BYTES or len(raw) > form.MOST_MANIFEST_BYTES:
            raise _too_large(file.tell())
    return made


def _add(bundle: zipfile.ZipFile, name: str, content: bytes) -> None:
    assert name_problem(name) is None, name
    entry = zipfile.ZipInfo(name, _TIME)
    entry.create_system = 3  # always Unix, on every system
    entry.external_attr = (stat.S_IFREG | 0o644) << 16
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    packed = len(packer.compress(content)) + len(packer.flush())
    fits = packed < len(content) <= form.MOST_RATIO * packed
    entry.compress_type = zipfile.ZIP_DEFLATED if fits else zipfile.ZIP_STORED
    bundle.writestr(entry, content, compresslevel=9)


def _check(count: int, length: int, total: int, most_bytes: int) -> None:
    if total > most_bytes or length > form.MOST_ENTRY_BYTES:
        raise _too_large(total)
    if count > form.MOST_ENTRIES - 2:
        raise ConfigError(
            f"the run has more than {form.MOST_ENTRIES - 2} files: too many for a bundle",
            hint="publish the run directory itself",
        )


def _too_large(number: int) -> ConfigError:
    return ConfigError(
        f"the bundle would have {size(number)} or more, larger than a reader accepts",
        hint="publish the run directory itself",
    )


def make_bundle(
    directory: RunDirectory,
    output: Path,
    *,
    with_identity: bool = False,
    key: Path | None = None,
) -> BundleManifest:
    """Write the bundle of a run; its manifest lists what was left out and what is missing.

    Args:
        directory: a run that is not in progress.
        output: the file; it appears when it is complete.
        with_identity: keep all identities.
        key: signs the manifest; see :func:`labctl.bundle.signature.sign`.

    The same run in the same lab gives the same bytes. Raises ConfigError (a run in progress, an
    imported or a damaged one, a devices.yaml that is not YAML, a key that cannot sign), HostError.
    """
    if directory.is_held():
        raise ConfigError(
            f"run {directory.path.name} is in progress", hint="wait for its end, then bundle it"
        )
    if (origin := directory.origin()) is not None:
        raise ConfigError(
            f"run {directory.path.name} was imported from {origin.file}", hint="publish that file"
        )
    run = directory.run()
    if not directory.records():
        raise ConfigError(f"run {run.id} has no finished trial: nothing to publish")
    path = directory.path.resolve()
    lab_root = find_lab_root(path) or path.parent.parent
    redactor = None
    if not with_identity:
        redactor = Redactor(secrets_of(run, path, lab_root), vocabulary_of(run))
    contents = Contents(RunDirectory(path), lab_root, redactor)

    def manifest(entries: dict[str, Entry]) -> BundleManifest:
        kept = sorted(redactor.kept) if redactor else []
        words = [f"the {one} is also a word of the experiment: it was not left out" for one in kept]
        if redactor and not any(entry.lab for entry in Journal(path, run.id).leases):
            words.append(
                "the run does not record its user and place: if the lab was moved or belonged to"
                " another user, check for these names"
            )
        return BundleManifest(
            run=run.id,
            recipe=run.recipe,
            target=run.target,
            labctl_version=labctl_version(),
            with_identity=with_identity,
            left_out=_left_out(redactor.counts) if redactor else (),
            notes=(*contents.missing, *words),
            entries=entries,
        )

    signs = None if key is None else lambda raw: sign(raw, key)
    return write_zip(output, contents.entries(), manifest, signs)


def _left_out(counts: Counter[tuple[str, str]]) -> tuple[LeftOut, ...]:
    kinds: dict[str, list[tuple[str, int]]] = {}
    for (entry, kind), times in sorted(counts.items()):
        kinds.setdefault(kind, []).append((entry, times))
    return tuple(
        LeftOut(kind=kind, times=sum(n for _, n in found), entries=tuple(e for e, _ in found))
        for kind, found in sorted(kinds.items())
    )
