"""Runs of :mod:`measured_runs` as directories on disk, with their telemetry."""

from pathlib import Path

from records_made import plan, planned_run

from labctl.records.run import RunEnd
from labctl.report.figures.measured import MeasuredRun
from labctl.runs.record.directory import RunDirectory


def stored(runs: Path, made: MeasuredRun, **end: object) -> RunDirectory:
    """Write a run below ``runs``; ``end`` changes how it ended."""
    directory = planned_run(runs, made.run, plan())
    for trial in made.trials:
        directory.add(trial)
        lines = [
            sample.model_dump_json(by_alias=True, exclude_none=True) + "\n"
            for sample in made.telemetry(trial)
        ]
        telemetry = directory.trial_path(trial.number, trial.slug) / "telemetry"
        telemetry.write_text("".join(lines))
    last = made.trials[-1].finished if made.trials else made.run.started
    directory.finish(RunEnd.model_validate({"state": "finished", "finished": last, **end}))
    return directory
