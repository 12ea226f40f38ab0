"""Proven settings of earlier searches, for a plan."""

from collections.abc import Iterator
from pathlib import Path

from labctl.compare.tuned import Tuned, tuned
from labctl.errors import ConfigError
from labctl.records.board import Execution
from labctl.runs.inputs.prepare import Prepared
from labctl.runs.record.directory import TUNING, RunDirectory
from labctl.units import confidence


def proven(lab_root: Path, board: str, prepared: Prepared, execution: Execution) -> list[str]:
    """Return a sentence on the last proven setting of the same model, board and build.

    Of each model of the recipe; a search without a proof says nothing.
    """
    found = []
    for model in prepared.models.values():
        for directory, search in _searches(lab_root / "runs", board, prepared, execution):
            if search.record.model in {
                one.key for one in directory.run().models if one.sha256 == model.identity.sha256
            }:
                found += [f"{model.identity.key}: {text}" for text in _texts(directory, search)]
                break
    return found


def _texts(directory: RunDirectory, search: Tuned) -> Iterator[str]:
    for one in search.shown:
        interval = one.row.interval if one.row else None
        if one.gain is None:
            continue
        ends = "one peak of each"
        if interval is not None:
            ends = f"{100 * (interval.low - 1):.1f} to {100 * (interval.high - 1):.1f}"
            ends = f"{confidence(interval.level)} %: {ends}"
        yield (
            f"proven in run {directory.path.name}: {search.changes(one.setting)}: {one.objective}"
            f" {100 * (one.gain - 1):+.1f} % ({ends})"
        )


def _searches(
    runs: Path, board: str, prepared: Prepared, execution: Execution
) -> Iterator[tuple[RunDirectory, Tuned]]:
    """Yield the finished searches of a board with this build, newest first, that show a gain."""
    build = prepared.comparability["build_key"]
    program = prepared.program.sha256 if prepared.program else None
    directories = (RunDirectory(path.parent) for path in runs.glob(f"*/{TUNING}"))
    for directory in sorted(directories, key=lambda one: one.path.name, reverse=True):
        try:
            end, run, record = directory.end(), directory.run(), directory.tuning()
            if record is None or end is None or end.state != "finished" or directory.is_imported:
                continue
            own = run.program.key if run.program else None
            if (run.board, run.facts.execution, own) != (board, execution, build):
                continue
            if build is None and directory.plan().program_sha256 != program:
                continue
            search = tuned(run, directory.trials(), record)
        except ConfigError:
            continue  # a damaged run proves nothing
        if search.shown:
            yield directory, search
