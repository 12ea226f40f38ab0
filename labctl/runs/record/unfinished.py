"""Runs that did not come to their end: the one to resume where none is named, and unlisted ones."""

from itertools import takewhile
from pathlib import Path

from labctl.errors import ConfigError
from labctl.runs.record.directory import (
    RunDirectory,
    all_directories,
    run_directories,
    unfinished_runs,
)


def find_unfinished(runs: Path) -> RunDirectory:
    """Return the only unfinished run. Raises ConfigError, with their list if there are several."""
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
    hint = f"{held[-1]} is in progress: `labctl watch` shows it" if held else "see `labctl report`"
    raise ConfigError(f"no unfinished run in {runs}", hint=hint)


def ended_before_trials(runs: Path) -> list[RunDirectory]:
    """Return the runs that ended before their first trial and after the last planned run began.

    Newest first; those that are being prepared are none of them.
    """
    newest = takewhile(lambda one: not one.is_planned, reversed(all_directories(runs)))
    return [directory for directory in newest if not directory.is_held()]
