"""Facts of a run that can be read."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from labctl.records import Annotations, Execution, GateRecord, RunEnd, RunRecord, TrialRecord
from labctl.report import figures
from labctl.results.summary import VariantSummary, good_trials, summarise, wanted_precision
from labctl.runs.record.directory import RunDirectory


@dataclass(frozen=True)
class MeasuredRun:
    """A run with its records, as figures take it too."""

    path: Path
    measured: figures.MeasuredRun
    end: RunEnd | None
    annotations: Annotations

    @classmethod
    def read(cls, directory: RunDirectory) -> "MeasuredRun":
        """Read a run from its directory. Raises ConfigError where a file of it is damaged."""
        measured = figures.measured_run(directory)
        return cls(directory.path.resolve(), measured, directory.end(), directory.annotations())

    @property
    def run(self) -> RunRecord:
        """Its own record."""
        return self.measured.run

    @property
    def trials(self) -> Sequence[TrialRecord]:
        """All that ended."""
        return self.measured.trials

    @property
    def short(self) -> str:
        """The end of its id, which every command takes."""
        return self.measured.short_id

    @cached_property
    def rows(self) -> list[VariantSummary]:
        """A summary for each variant that has trials."""
        return summarise(self.trials, self.run.variants, wanted_precision(self.run))

    @cached_property
    def good(self) -> dict[str, list[TrialRecord]]:
        """The good trials of each variant."""
        groups: dict[str, list[TrialRecord]] = {row.variant: [] for row in self.rows}
        for trial in good_trials(self.trials):
            groups[trial.variant].append(trial)
        return groups

    @property
    def gates(self) -> tuple[GateRecord, ...]:
        """The gates, as they were judged at its end."""
        return self.end.gates if self.end else ()

    @property
    def is_of_a_board(self) -> bool:
        """True if its figures are those of a board."""
        return self.run.facts.execution is Execution.BOARD
