"""Look up a run by its name: a path, an id, the start or end of an id, or ``latest``.

Unfinished runs are found too: without a name, the newest is resumed.
"""

from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path

from labctl.errors import ConfigError
from labctl.files import host_reads
from labctl.runs.record.directory import (
    LOCK,
    RunDirectory,
    all_directories,
    run_directories,
    unfinished_runs,
)
from labctl.runs.record.repository import newest_elsewhere, run_elsewhere


def find_run(runs: Path, name: str) -> RunDirectory:
    """Return a planned run by path, id, the start or end of its id, or ``latest``.

    Raises ConfigError if no run or several runs match.
    """
    direct = _at(name)
    with host_reads(name):
        if direct.is_planned:
            return direct
    if found := _one_of(run_directories(runs), name):
        return found
    if ended := _one_of(all_directories(runs), name):
        run = ended.path.name
        raise ConfigError(
            f"run {run} has no trial: it is still being prepared, or ended before",
            hint=f"`labctl watch {run}` shows which; `labctl run` makes a new one",
        )
    raise _no_run(run_directories(runs), runs, name)


def find_directory(runs: Path, name: str) -> RunDirectory:
    """Return a run as :func:`find_run` does, planned or not."""
    direct = _at(name)
    with host_reads(name):
        if direct.is_planned or (direct.path / LOCK).is_file():
            return direct
    known = all_directories(runs)
    if found := _one_of(known, name):
        return found
    raise _no_run(known, runs, name)


def _at(path: str) -> RunDirectory:
    if not path:  # from an unset shell variable: do not take the current folder
        raise ConfigError("the name of a run is empty", hint="name one, or `latest`")
    return RunDirectory(Path(path))


def _one_of(known: Sequence[RunDirectory], name: str) -> RunDirectory | None:
    if name == "latest":
        return known[-1] if known else None
    ids = {directory.path.name: directory for directory in known}
    if name in ids:
        return ids[name]
    matches = [i for i in ids if i.startswith(name) or i.endswith(name)]
    if len(matches) > 1:
        raise ConfigError(f"{name!r} is the name of {len(matches)} runs: {', '.join(matches)}")
    return ids[matches[0]] if matches else None


def _no_run(known: Sequence[RunDirectory], runs: Path, name: str) -> ConfigError:
    if not known and name == "latest" and (newest := newest_elsewhere(runs)):
        return ConfigError(
            f"no run is on this host, and `latest` is the newest that is: {runs}",
            hint=f"name one of `labctl runs`: its newest is {newest.id}, of host {newest.host}",
        )
    if elsewhere := run_elsewhere(runs, name):
        return ConfigError(
            f"run {elsewhere.id} is not on this host",
            hint=f"host {elsewhere.host} measured it: use it there, or copy its directory to here",
        )
    if not known:
        return ConfigError(f"no runs in {runs}", hint="make one: `labctl run recipes/NAME.yaml`")
    return ConfigError(
        f"no run {name!r} in {runs}",
        hint=f"the newest is {known[-1].path.name}; `labctl runs` shows them",
    )


def find_unfinished(runs: Path) -> RunDirectory:
    """Return the only unfinished run. Raises ConfigError, with a list if there are several."""
    found = unfinished_runs(runs)
    if len(found) == 1:
        return found[0]
    if found:
        raise ConfigError(
            f"{len(found)} runs are unfinished; name the one to resume",
            hint=f"for example `labctl resume {found[-1].path.name}`",
            details="\n".join(directory.summary() for directory in reversed(found)),
        )
    held = [directory.path.name for directory in run_directories(runs) if directory.is_held()]
    hint = (
        f"{held[-1]} is in progress: `labctl watch` shows it"
        if held
        else "`labctl runs` lists all runs"
    )
    raise ConfigError(f"no unfinished run in {runs}", hint=hint)


def ended_before_trials(runs: Path) -> list[RunDirectory]:
    """Return the runs that ended before their first trial and after the last planned run began.

    Newest first, without runs in preparation.
    """
    newest = takewhile(lambda one: not one.is_planned, reversed(all_directories(runs)))
    return [directory for directory in newest if not directory.is_held()]
