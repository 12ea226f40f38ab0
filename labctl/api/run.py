"""Runs and trials: rows of the index; everything else is read on demand from the run directory."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, overload

from labctl.api.telemetry import Telemetry, data_frame
from labctl.index.index import IndexedRun, IndexedTrial
from labctl.index.rows import RunRow, TrialRow
from labctl.records.run import RunEnd, RunRecord
from labctl.records.trial import TrialRecord
from labctl.results.telemetry import read_telemetry
from labctl.runs.record.directory import RunDirectory
from labctl.runs.record.repository import RunRepository

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from pandas import DataFrame


class Trials(Sequence["Trial"]):
    """Trials, sorted by run (oldest first) and number; warm-ups have ``repeat`` 0."""

    def __init__(self, trials: Sequence["Trial"]):
        self._trials = tuple(trials)

    @overload
    def __getitem__(self, index: int) -> "Trial": ...
    @overload
    def __getitem__(self, index: slice) -> "Trials": ...
    def __getitem__(self, index: int | slice) -> "Trial | Trials":
        if isinstance(index, slice):
            return Trials(self._trials[index])
        return self._trials[index]

    def __len__(self) -> int:
        return len(self._trials)

    def __iter__(self) -> Iterator["Trial"]:
        return iter(self._trials)

    def __repr__(self) -> str:
        return f"<{len(self)} trials>"

    def to_pandas(self) -> "DataFrame":
        """Return a table with a row for each trial, with the columns of ``labctl export``.

        Parameters, conditions and comparability have a column for each key
        (``parameters.threads``). Raises ConfigError without pandas.
        """
        from labctl.report.trial_export import flat_document

        return data_frame(
            [flat_document(trial.indexed) for trial in self], moments=("started", "finished")
        )


@dataclass(frozen=True, repr=False)
class Run:
    """A run. ``row``: its facts from the index."""

    #: The run directory.
    path: Path
    indexed: IndexedRun

    @property
    def row(self) -> RunRow:
        """All facts of lists and filters; times in ns."""
        return self.indexed.run

    @property
    def id(self) -> str:
        """Id: the name of its directory."""
        return self.row.id

    @property
    def recipe(self) -> str:
        """Name of the recipe."""
        return self.row.recipe

    @property
    def board(self) -> str | None:
        """Name of its first board; None if the run is damaged."""
        return self.row.board

    @property
    def started(self) -> datetime:
        """Start time, in UTC."""
        return datetime.fromisoformat(self.row.started)

    @property
    def state(self) -> str:
        """Return ``finished``, ``failed``, ``interrupted``, ``unfinished`` or ``damaged``."""
        return self.row.state

    @property
    def verdict(self) -> str | None:
        """Return ``passed``, ``failed``, ``infra`` or ``config``; None until the run ends."""
        return self.row.verdict

    @property
    def tags(self) -> tuple[str, ...]:
        """Tags given by people."""
        return self.indexed.tags

    @cached_property
    def record(self) -> RunRecord:
        """Content of ``run.json``. Raises ConfigError if it is damaged."""
        return RunDirectory(self.path).run()

    @cached_property
    def end(self) -> RunEnd | None:
        """Content of ``end.json``; None if the run has not ended. Raises ConfigError."""
        return RunDirectory(self.path).end()

    @cached_property
    def trials(self) -> Trials:
        """Its finished trials. Raises HostError."""
        from labctl.index.filters import Filter

        found = RunRepository(self.path.parent).trials(Filter(ids=(self.id,)))
        return Trials([Trial(self.path, one) for one in found])

    def __repr__(self) -> str:
        return f"<run {self.id}>"


@dataclass(frozen=True, repr=False)
class Trial:
    """A finished trial. ``row``: its figures; tokens and telemetry are read on demand."""

    #: The run's directory.
    path: Path
    indexed: IndexedTrial

    @property
    def row(self) -> TrialRow:
        """All facts and figures of the index; times in ns, sizes in bytes."""
        return self.indexed.trial

    @property
    def run(self) -> RunRow:
        """The run that contains it."""
        return self.indexed.run

    @property
    def number(self) -> int:
        """Position in its run, from 1."""
        return self.row.number

    @property
    def variant(self) -> str:
        """Name of its combination in the recipe's matrix."""
        return self.row.variant

    @property
    def repeat(self) -> int:
        """From 1; 0 = a warm-up, never part of a result."""
        return self.row.repeat

    @property
    def state(self) -> str:
        """Return ``ok``, ``failed`` or ``skipped``."""
        return self.row.state

    @property
    def folder(self) -> Path:
        """Folder of its raw files and its record."""
        return RunDirectory(self.path).trial_path(self.number, self.row.slug)

    @cached_property
    def record(self) -> TrialRecord:
        """Its ``record.json``. Raises ConfigError if it is missing or damaged."""
        return RunDirectory(self.path).trial(self.number, self.row.slug)

    @property
    def tokens(self) -> "NDArray[np.int64]":
        """Times in ns between successive tokens, so without the first token (its time is TTFT).

        Empty if single tokens were not seen, for example in a benchmark. Raises ConfigError.
        """
        import numpy as np

        timing = self.record.timing
        return np.array(timing.token_ns if timing else (), dtype=np.int64)

    @cached_property
    def telemetry(self) -> Telemetry:
        """Samples of board and program while it ran; empty if there are none.

        Raises ConfigError.
        """
        job = self.record.job
        samples = read_telemetry(self.folder / "telemetry").samples
        return Telemetry(samples, job.start_mono_ns if job else None)

    def __repr__(self) -> str:
        return f"<trial {self.path.name}/{self.number} {self.variant}>"
