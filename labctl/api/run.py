"""Runs and trials: rows of the index; everything else is read on demand from the run directory."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, overload

from labctl.api.frames import data_frame
from labctl.api.telemetry import Telemetry
from labctl.errors import ConfigError
from labctl.figures.figure import Place
from labctl.figures.trials import FIGURES
from labctl.index.index import IndexedRun, IndexedTrial
from labctl.index.rows import RunRow, TrialRow
from labctl.records.run import RunEnd, RunRecord
from labctl.records.trial import TrialRecord
from labctl.report.table import plain_cells
from labctl.results.telemetry import read_telemetry
from labctl.runs.record.directory import RunDirectory
from labctl.runs.record.repository import RunRepository

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from pandas import DataFrame

    from labctl.report.figures.figure import Figure
    from labctl.report.page.content import Report


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
        (``parameters.threads``), after the columns that every table has. Raises ConfigError without
        pandas.
        """
        from labctl.report.trial_export import flat_document, trial_columns

        return data_frame([flat_document(trial.indexed) for trial in self], trial_columns())

    def _repr_html_(self) -> str:
        from labctl.report import notebook

        figures = [one for one in FIGURES if one.place in (Place.RESULTS, Place.INSIDE)]
        names = ("run", ">number", "variant", ">repeat", "state", "execution")
        rows = [
            (
                *(str(getattr(one.row, name.removeprefix(">"))) for name in names),
                *(figure.text(one.row.figures.get(figure.column)) for figure in figures),
                one.row.checks_failed,
            )
            for one in self
        ]
        headings = (*names, *(f">{figure.short}" for figure in figures), "failed checks")
        return notebook.table(headings, rows)


def _report(directories: Sequence[Path]) -> "Report":
    from labctl.report.page.files import make_report
    from labctl.report.page.language import Language

    return make_report([RunDirectory(path) for path in directories], Language("en"))


def plotted(directories: Sequence[Path], name: str | None) -> "Figure":
    """Return a figure of the report on runs, by default the first. Raises ConfigError."""
    from labctl.report.page.files import named_figure

    report = _report(directories)
    if name is None and report.figures:
        return report.figures[0]
    return named_figure(report, name or next(one.name for one in report.missing))


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
        """Return ``running``, ``finished``, ``failed``, ``interrupted`` or ``damaged``."""
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

    def to_pandas(self) -> "DataFrame":
        """Return its results as a table; times in ns, shares from 0 to 1.

        A row for each variant; of an evaluation, for each variant, limit of tokens and grader; of
        a load test, for each load. Raises ConfigError if it is damaged, and without pandas.
        """
        directory = RunDirectory(self.path)
        if directory.is_evaluation:
            from labctl.evaluation.directory import EvaluationDirectory
            from labctl.evaluation.results import ACCURACY_COLUMNS, accuracy_rows, table_of

            table = table_of(EvaluationDirectory(directory))
            return data_frame(accuracy_rows(table), ACCURACY_COLUMNS)
        if directory.is_load_test:
            from labctl.evaluation.serving.directory import LoadTestDirectory
            from labctl.evaluation.serving.results import results_of
            from labctl.report.serving import LOAD_COLUMNS, load_rows

            return data_frame(load_rows(results_of(LoadTestDirectory(self.path))), LOAD_COLUMNS)
        from labctl.report.formats import VARIANT_COLUMNS, variant_rows

        return data_frame(variant_rows(self.record, directory.trials()), VARIANT_COLUMNS)

    def answers_to_pandas(self) -> "DataFrame":
        """Return the graded answers of an evaluation: a row for each answer, limit and grader.

        Raises ConfigError if it is no evaluation, not graded yet or damaged, and without pandas.
        """
        from labctl.report.evaluation_export import ANSWER_COLUMNS, answer_rows, read_evaluation

        return data_frame(
            list(answer_rows(read_evaluation(RunDirectory(self.path)))), ANSWER_COLUMNS
        )

    def plot(self, name: str | None = None) -> "Figure":
        """Return a figure of its report, by default the first; a notebook draws it.

        Raises ConfigError for an unknown name (with the names that there are), and as
        :meth:`to_pandas`.
        """
        return plotted([self.path], name)

    def __repr__(self) -> str:
        return f"<run {self.id}>"

    def _repr_html_(self) -> str:
        from labctl.report import notebook

        try:
            report = _report([self.path])
        except ConfigError as error:
            return notebook.lines([f"{self.id}: {error.message}"])
        return "".join(
            (
                notebook.lines([report.title, *report.marks, *report.answers], strong=True),
                *(notebook.table(*plain_cells(one)) for one in report.tables[:1]),
                notebook.lines([f"{self.id} on {self.board}: {self.verdict or self.state}"]),
            )
        )


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

    def plot(self) -> "Figure":
        """Return the figure of its tokens and telemetry over time.

        Raises ConfigError for a trial that failed or has no telemetry.
        """
        from labctl.report.figures.catalogue import figures_of
        from labctl.report.figures.measured import measured_run
        from labctl.report.figures.timeline_chart import NAME

        alone = replace(measured_run(RunDirectory(self.path)), trials=(self.record,))
        for figure in figures_of([alone]).drawn:
            if figure.name == f"{NAME}-{alone.short_id}-{self.number}":
                return figure
        raise ConfigError(f"no figure of {self!r}: it failed, or has no telemetry")

    def __repr__(self) -> str:
        return f"<trial {self.path.name}/{self.number} {self.variant}>"
