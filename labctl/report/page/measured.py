"""Facts of a readable run."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from labctl.compare.sides import Side, run_sides
from labctl.records.board import Execution
from labctl.records.run import Annotations, GateRecord, Origin, RunEnd, RunRecord
from labctl.records.trial import TrialRecord
from labctl.report.figures.measured import MeasuredRun as FiguresRun
from labctl.report.figures.measured import measured_run
from labctl.report.result_tables import Results
from labctl.report.status import Status, run_status
from labctl.results.summary import VariantSummary
from labctl.runs.record.directory import RunDirectory


@dataclass(frozen=True)
class MeasuredRun:
    """A run with its records, also in the form for figures."""

    path: Path
    measured: FiguresRun
    end: RunEnd | None
    annotations: Annotations
    status: Status
    origin: Origin | None = None

    @classmethod
    def read(cls, directory: RunDirectory) -> "MeasuredRun":
        """Read a run from its directory. Raises ConfigError if a file is damaged."""
        measured = measured_run(directory)
        return cls(
            path=directory.path.resolve(),
            measured=measured,
            end=directory.end(),
            annotations=directory.annotations(),
            status=run_status(directory),
            origin=directory.origin(),
        )

    @property
    def run(self) -> RunRecord:
        """Record of the run."""
        return self.measured.run

    @property
    def trials(self) -> Sequence[TrialRecord]:
        """All trials that ended."""
        return self.measured.trials

    @property
    def short(self) -> str:
        """End of the id, which every command accepts."""
        return self.path.name.rpartition("-")[2]

    @cached_property
    def results(self) -> Results:
        """Trials in the form for tables."""
        return Results(self.run, self.trials, self.short, self.marks, self.status)

    @property
    def rows(self) -> list[VariantSummary]:
        """A summary for each variant that has trials."""
        return self.results.rows

    @property
    def good(self) -> dict[str, list[TrialRecord]]:
        """The good trials of each variant."""
        return self.results.good

    @property
    def gates(self) -> tuple[GateRecord, ...]:
        """The gates as judged at the end of the run."""
        return self.end.gates if self.end else ()

    def sides(self, name: str | None = None) -> list[Side]:
        """Return the variants as sides of a comparison; other labs' boards are different."""
        origin = self.origin.file if self.origin else None
        known_as = self.path.name
        return run_sides(self.run, self.trials, name, directory=known_as, imported_from=origin)

    @property
    def marks(self) -> str:
        """Mark that stays with the figures: EMULATED, IMPORTED; empty for a board of this lab."""
        found = [] if self.is_of_a_board else [self.run.facts.execution.upper().replace("-", " ")]
        return " ".join([*found, *(["IMPORTED"] if self.origin else [])])

    @property
    def is_of_a_board(self) -> bool:
        """True if the figures were measured on a board."""
        return self.run.facts.execution is Execution.BOARD
