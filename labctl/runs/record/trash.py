"""The trash: complete removed runs, beside the other runs and so on the same disk."""

import secrets
import shutil
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from labctl.errors import ConfigError, HostTimeout
from labctl.files import host_reads, host_writes, sync_directory
from labctl.runs.record.annotations import annotating
from labctl.runs.record.directory import RunDirectory, is_run_id
from labctl.runs.record.disk import directory_bytes

TRASH = "trash"
#: Name in the trash of a run that is being removed.
_REMOVING = ".removing-"
ExcInfo = tuple[type[BaseException], BaseException, TracebackType]


@dataclass(frozen=True)
class Trashed:
    """A run in the trash. The folder's name ends with ``.2`` if another run of its id is there."""

    path: Path
    size_bytes: int

    @property
    def run(self) -> str:
        """Its id."""
        name, _, number = self.path.name.rpartition(".")
        return name if number.isdigit() and is_run_id(name) else self.path.name

    def document(self) -> dict[str, object]:
        """Return id, folder and size as JSON."""
        return {"id": self.run, "folder": self.path.name, "size_bytes": self.size_bytes}


def move_to_trash(directory: RunDirectory) -> Path:
    """Move a run to the trash; return its new place.

    Raises ConfigError if a controller drives it, and for a missing run, a run in the trash or a
    link.
    """
    run = directory.path.resolve()
    trash = run.parent / TRASH
    if directory.path.is_symlink():
        raise ConfigError(f"{directory.path} is a link", hint=f"remove the link; the run is {run}")
    if run.parent.name == TRASH:
        hint = "`labctl runs trash empty` removes it for good"
        raise ConfigError(f"run {run.name} is in the trash already", hint=hint)
    try:
        with directory.held(), annotating(directory), host_writes(run):
            trash.mkdir(exist_ok=True)
            place = trash / run.name
            number = 1
            while place.exists():  # it was removed before, and a copy came back
                number += 1
                place = trash / f"{run.name}.{number}"
            _move(run, place)
    except HostTimeout as error:
        raise ConfigError(
            f"run {run.name} is in progress: {error.message}",
            hint="stop it first, or wait for its end",
        ) from error
    return place


def trashed_runs(runs: Path) -> list[Trashed]:
    """Return the runs in the trash of a folder of runs, newest first."""
    trash = runs / TRASH
    with host_reads(trash):
        paths = sorted(trash.iterdir(), reverse=True) if trash.is_dir() else []
    found = [Trashed(path, 0) for path in paths if path.is_dir()]
    return [Trashed(one.path, directory_bytes(one.path)) for one in found if is_run_id(one.run)]


def restore(runs: Path, name: str) -> RunDirectory:
    """Move a run back, named by its id, or the start or end of it. Raises ConfigError."""
    known = trashed_runs(runs)
    found = [one for one in known if one.path.name == name] or [
        one for one in known if name and (one.run.startswith(name) or one.run.endswith(name))
    ]
    if len(found) != 1:
        names = ", ".join(one.path.name for one in found)
        raise ConfigError(
            f"{name!r} is the name of {len(found)} runs in the trash: {names}"
            if found
            else f"no run {name!r} in {runs / TRASH}",
            hint="`labctl runs trash` lists them",
        )
    place = runs / found[0].run
    if place.exists():
        raise ConfigError(f"run {place.name} is there again", hint="move that one away first")
    with host_writes(place):
        try:
            _move(found[0].path, place)
        except FileNotFoundError as error:
            raise ConfigError(f"run {place.name} was removed from the trash meanwhile") from error
    return RunDirectory(place)


def empty_trash(runs: Path) -> list[Trashed]:
    """Remove all runs in the trash for good; return them.

    Each first gets a name that is not a run's, so it is either restored completely or gone. Such
    names left by a killed labctl are removed too.
    """
    removed = []
    for one in trashed_runs(runs):
        aside = one.path.with_name(f"{_REMOVING}{secrets.token_hex(8)}")
        with host_writes(one.path):
            try:
                one.path.rename(aside)
            except FileNotFoundError:  # another labctl restored or removed it
                continue
            removed.append(one)
            shutil.rmtree(aside, onerror=_pass_over_gone)
    for left in (runs / TRASH).glob(f"{_REMOVING}*"):
        with host_writes(left):
            shutil.rmtree(left, onerror=_pass_over_gone)
    return removed


def _pass_over_gone(_function: object, _path: str, error: ExcInfo) -> None:
    """Let another labctl remove the files of a killed labctl at the same time."""
    if not isinstance(error[1], FileNotFoundError):
        raise error[1]


def _move(source: Path, place: Path) -> None:
    source.rename(place)
    for changed in (source.parent, place.parent):
        sync_directory(changed)
