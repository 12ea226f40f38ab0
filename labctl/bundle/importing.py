"""Import an open bundle as a run directory of its own kind, beside the lab's own runs."""

from datetime import UTC, datetime
from pathlib import Path

from labctl.bundle.reader import Bundle
from labctl.bundle.records import RUN, bundled_run
from labctl.bundle.signature import Signer
from labctl.errors import ConfigError
from labctl.files import host_writes, sync_directory
from labctl.records.run import Origin
from labctl.runs.record.directory import RECIPE, RunDirectory, importing


def import_bundle(bundle: Bundle, runs: Path, signer: Signer | None = None) -> RunDirectory:
    """Make the run directory of a bundle below ``runs`` (a lab's ``runs`` folder), and return it.

    ``origin.json`` marks it as imported: :meth:`RunDirectory.is_imported` is true, no controller
    resumes it, and it is not part of the history of the lab's own boards. Its name begins with the
    time and recipe of the run and ends with the bundle's hash, so one file is imported once. It is
    made completely or not at all, contains plain files that cannot be executed, and is read like
    every run directory. The caller opens the bundle (:func:`labctl.bundle.reader.open_bundle`) and
    adds the directory to the index (``note_in_index``); ``signer`` is the result of
    :func:`labctl.bundle.signature.verify`.

    Raises ConfigError if it was imported before, NotABundle if it is damaged or this labctl cannot
    read its run, HostError.
    """
    bundled_run(bundle)
    directory = RunDirectory(runs / imported_name(bundle))
    if directory.path.exists():
        raise ConfigError(
            f"{bundle.path} was imported before: run {directory.path.name}",
            hint=f"to import it again: labctl runs remove {directory.path.name}",
        )
    with importing(runs) as aside:
        if directory.path.exists():  # another process imported it meanwhile
            return directory
        made = aside / "run"
        with host_writes(made):
            made.mkdir(mode=0o700)
        bundle.extract([one for one in bundle.names if one.startswith(RUN)], made, below=RUN)
        if bundle.has(RECIPE):
            bundle.extract([RECIPE], made)
        RunDirectory(made).mark_imported(_origin(bundle, signer))
        with host_writes(directory.path):
            made.chmod(0o755)
            made.rename(directory.path)
            sync_directory(runs)
    return directory


def imported_name(bundle: Bundle) -> str:
    """Return the name of a bundle's run directory: the id of its run, and the bundle's hash."""
    return f"{bundle.manifest.run.rpartition('-')[0]}-{bundle.sha256[:6]}"


def _origin(bundle: Bundle, signer: Signer | None) -> Origin:
    return Origin(
        kind="bundle",
        file=bundle.path.name,
        sha256=bundle.sha256,
        run=bundle.manifest.run,
        signed_by=str(signer) if signer and signer.name else None,
        left_out=tuple(one.kind for one in bundle.manifest.left_out),
        imported=datetime.now(UTC),
    )
