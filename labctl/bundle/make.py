"""``labctl bundle``: turn a run into one file from which a stranger can reproduce it."""

from collections import Counter
from importlib.metadata import version
from pathlib import Path

from labctl.bundle.contents import Contents
from labctl.bundle.form import BundleManifest, Entry, LeftOut
from labctl.bundle.identity import secrets_of, vocabulary_of
from labctl.bundle.redact import Redactor
from labctl.bundle.signature import sign
from labctl.bundle.writer import write_zip
from labctl.config.lab import find_lab_root
from labctl.errors import ConfigError
from labctl.runs.record.directory import RunDirectory
from labctl.runs.record.journal import Journal


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
        with_identity: leave nothing out.
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
            labctl_version=version("labctl"),
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
