"""Check what may become a baseline: runs with results that others can be compared with."""

from collections.abc import Sequence

from labctl.config.names import unknown
from labctl.errors import ConfigError
from labctl.results.summary import good_trials
from labctl.runs.record.directory import RunDirectory
from labctl.state import Baseline, LabState


def set_baseline(
    state: LabState,
    name: str,
    directories: Sequence[RunDirectory],
    *,
    variant: str | None = None,
    note: str | None = None,
) -> Baseline:
    """Let a name stand for runs. Raises ConfigError for runs that are no basis, HostError."""
    executions: dict[str, str] = {}
    for directory in directories:
        run = directory.path.resolve().name
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
        executions[run] = directory.run().facts.execution
    if len(set(executions.values())) > 1:
        raise ConfigError(
            "a baseline cannot mix figures of boards with others",
            hint=", ".join(f"{run}: {execution}" for run, execution in executions.items()),
        )
    return state.baselines.set(name, list(executions), variant=variant, note=note)


def refuse_needed(state: LabState, runs: Sequence[str]) -> None:
    """Raise ConfigError if a baseline stands for one of these runs."""
    for one in state.baselines.list():
        if needed := [run for run in runs if run in one.runs]:
            raise ConfigError(
                f"baseline {one.name} needs {', '.join(needed)}",
                hint=f"remove it first: `labctl baseline remove {one.name}`,"
                f" or let it stand for others: `labctl baseline set {one.name} RUN`",
            )
