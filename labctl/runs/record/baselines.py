"""Find runs by a baseline's name, check new baselines, and protect runs of baselines."""

from collections.abc import Sequence
from pathlib import Path

from labctl.config.lab import FILE_NAME, Lab, LabFile, find_lab
from labctl.errors import ConfigError
from labctl.results.summary import good_trials
from labctl.runs.record.directory import RunDirectory, is_run_id
from labctl.runs.record.lookup import find_run
from labctl.state.baselines import Baseline
from labctl.state.state import lab_state
from labctl.suggestions import unknown
from labctl.transport.built_in import TRANSPORTS


def set_baseline(
    lab: LabFile,
    name: str,
    directories: Sequence[RunDirectory],
    *,
    variant: str | None = None,
    note: str | None = None,
) -> Baseline:
    """Give runs of a lab a baseline's name.

    Raises ConfigError for unsuitable runs, HostError.
    """
    executions: dict[str, str] = {}
    for directory in directories:
        path = directory.path.resolve()
        run = path.name
        if path.parent != (lab.root / "runs").resolve():
            raise ConfigError(
                f"run {run} does not belong to the lab in {lab.root}",
                hint="`labctl bundle` it there, and `labctl import` it here",
            )
        if directory.is_held():
            raise ConfigError(f"run {run} is in progress", hint="wait for its end")
        good = {trial.variant for trial in good_trials(directory.trials())}
        if not good:
            raise ConfigError(
                f"run {run} has no good trial: nothing can be compared with it",
                hint=f"`labctl report {run}` says why",
            )
        if variant is not None and variant not in good:
            raise ConfigError(
                unknown("variant", variant, good, where=f" with a good trial in {run}")
            )
        record = directory.run()
        if record.untrusted_board:
            raise ConfigError(
                f"run {run} is from board {record.board}, which takes untrusted recipes",
                hint="measure on a board that only trusted recipes ever had",
            )
        executions[run] = record.facts.execution
    if len(set(executions.values())) > 1:
        raise ConfigError(
            "a baseline cannot mix figures of boards with others",
            hint=", ".join(f"{run}: {execution}" for run, execution in executions.items()),
        )
    return lab_state(lab).baselines.set(name, list(executions), variant=variant, note=note)


def find_named(lab: LabFile, runs: Path, name: str) -> tuple[Baseline | None, list[RunDirectory]]:
    """Return the baseline of a name with its runs, or else the run of this name.

    A path, a whole id and ``latest`` never mean a baseline. Raises ConfigError if there is neither,
    and what the lab's state raises.
    """
    whole = name == "latest" or is_run_id(name) or "/" in name
    if not whole and (baseline := lab_state(lab).baselines.get(name)):
        return baseline, [find_run(runs, run) for run in baseline.runs]
    try:
        return None, [find_run(runs, name)]
    except ConfigError as error:
        known = ", ".join(one.name for one in lab_state(lab).baselines.list())
        hints = (error.hint, known and f"baselines: {known}")
        raise ConfigError(error.message, hint="; ".join(filter(None, hints)) or None) from None


def find_only_run(lab: LabFile, runs: Path, name: str) -> RunDirectory:
    """Return the run of a name, or of a baseline with one run. Raises as find_named."""
    _, found = find_named(lab, runs, name)
    if len(found) > 1:
        ids = ", ".join(directory.path.name for directory in found)
        raise ConfigError(f"baseline {name} has {len(found)} runs", hint=f"name one: {ids}")
    return found[0]


def refuse_needed(directories: Sequence[Path]) -> None:
    """Raise ConfigError if one of these runs belongs to a baseline of its lab."""
    for folder in {path.parent for path in directories}:
        runs = [path.name for path in directories if path.parent == folder]
        for one in lab_state(_lab_of(folder.parent)).baselines.list():
            if needed := [run for run in runs if run in one.runs]:
                raise ConfigError(
                    f"baseline {one.name} needs {', '.join(needed)}",
                    hint=f"remove it first: `labctl baseline remove {one.name}`,"
                    f" or give it other runs: `labctl baseline set {one.name} RUN`",
                )


def _lab_of(root: Path) -> LabFile:
    if (root / FILE_NAME).is_file():
        return find_lab(root, TRANSPORTS)
    return LabFile(root, Lab(boards={}))
