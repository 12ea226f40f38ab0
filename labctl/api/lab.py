"""A lab, and its runs that meet conditions."""

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, Unpack, overload

from labctl.api.comparison import Comparison
from labctl.api.frames import data_frame
from labctl.api.run import Run, Trial, Trials, plotted
from labctl.config.lab import FILE_NAME, LabFile, find_lab, find_lab_root
from labctl.errors import ConfigError
from labctl.index.filters import STATES, VERDICTS, Filter, parse_moment
from labctl.index.index import run_columns
from labctl.index.rows import LISTED, parameter_text
from labctl.runs.record.baselines import find_only_run
from labctl.runs.record.repository import RunRepository
from labctl.suggestions import unknown
from labctl.transport.built_in import TRANSPORTS

if TYPE_CHECKING:
    from pandas import DataFrame

    from labctl.report.figures.figure import Figure

Words = str | Sequence[str]
Value = bool | int | float | str


class Conditions(TypedDict, total=False):
    """Conditions on runs, joined by "and": the options of ``labctl runs``.

    ``since`` and ``until``: a moment (without an offset: UTC) or a text as on the command line,
    ``2026-11-22`` or ``7d``. ``state``: any of these; ``tag``: all of these; ``parameters``: engine
    parameters, each with its value or a list of allowed values. One variant must match all of them.
    """

    recipe: str
    board: str
    model: str
    quantization: str
    build: str
    since: datetime | str
    until: datetime | str
    verdict: str
    state: Words
    tag: Words
    parameters: Mapping[str, Value | Sequence[Value]]


class Runs(Sequence[Run]):
    """Runs, newest first."""

    def __init__(self, runs: Sequence[Run]):
        self._runs = tuple(runs)

    @overload
    def __getitem__(self, index: int) -> Run: ...
    @overload
    def __getitem__(self, index: slice) -> "Runs": ...
    def __getitem__(self, index: int | slice) -> "Run | Runs":
        return Runs(self._runs[index]) if isinstance(index, slice) else self._runs[index]

    def __len__(self) -> int:
        return len(self._runs)

    def __iter__(self) -> Iterator[Run]:
        return iter(self._runs)

    def __repr__(self) -> str:
        return f"<{len(self)} runs>"

    def to_pandas(self) -> "DataFrame":
        """Return a table with a row for each run, as in ``labctl runs --json``.

        Raises ConfigError without pandas.
        """
        rows = [{"ahead_of_clock": False, **one.indexed.document()} for one in self]
        return data_frame(rows, run_columns())

    def plot(self, name: str | None = None) -> "Figure":
        """Return a figure of the report on these runs, by default the first; a notebook draws it.

        Raises ConfigError for an unknown name (with the names that there are), and as
        :meth:`Run.to_pandas`.
        """
        return plotted([one.path for one in self], name)

    def _repr_html_(self) -> str:
        from labctl.report import notebook

        figures = [one for one in LISTED if one.listed == "brief"]
        names = ("id", "recipe", "board", "execution", "state", "verdict")
        rows = [
            (
                *(str(getattr(one.row, name) or "-") for name in names),
                f"{one.row.trials_ok}/{one.row.trials_planned}",
                *(figure.spread(one.row.figures) for figure in figures),
                " ".join(one.tags),
            )
            for one in self
        ]
        headings = (*names, ">good trials", *(f">{one.short}" for one in figures), "tags")
        return notebook.table(headings, rows)


class Lab:
    """Runs of a lab. Nothing is cached: each call sees the current state of the lab."""

    def __init__(self, root: Path):
        #: The folder with devices.yaml.
        self.root = root

    @property
    def _folder(self) -> Path:
        return self.root / "runs"

    @property
    def _file(self) -> LabFile:
        return find_lab(self.root, TRANSPORTS)

    def runs(self, *, limit: int | None = None, **conditions: Unpack[Conditions]) -> Runs:
        """Return the runs that meet conditions, newest first. Raises ConfigError or HostError."""
        found = RunRepository(self._folder).query(_filter(conditions), limit=limit)
        return Runs([Run(self._folder / one.run.id, one) for one in found])

    def trials(self, **conditions: Unpack[Conditions]) -> Trials:
        """Return the trials of runs that meet conditions, oldest first.

        Raises ConfigError or HostError.
        """
        found = RunRepository(self._folder).trials(_filter(conditions))
        return Trials([Trial(self._folder / one.run.id, one) for one in found])

    def run(self, name: str = "latest") -> Run:
        """Return a run by its id, the start or end of its id, its path, a baseline or ``latest``.

        Raises ConfigError unless exactly one run matches, and HostError.
        """
        directory = find_only_run(self._file, self._folder, name).path.resolve()
        found = RunRepository(directory.parent).get(directory.name)
        if found is None:
            raise ConfigError(f"{directory} is no run of a lab")
        return Run(directory, found)

    def compare(
        self, *sides: "str | Run", allow: Collection[str] = (), figures: Sequence[str] = ()
    ) -> Comparison:
        """Compare runs, variants (``RUN:VARIANT``) or baselines with the first of them.

        A single run: its other variants are compared with its first. ``allow`` names keys that may
        differ, ``figures`` the figures to compare, by their names in gates. ``rows`` of the result
        have the verdicts, with ratios and intervals; times are ns. ``labctl compare`` prints the
        same.

        Raises ConfigError for a missing run, and HostError.
        """
        from labctl.compare.figures import checked_names
        from labctl.compare.selecting import find_pairs
        from labctl.compare.session_noise import board_history
        from labctl.compare.verdicts import compare

        names = [side if isinstance(side, str) else side.id for side in sides] or ["latest"]
        pairs = find_pairs(tuple(names), self._file, self._folder)
        found = compare(
            pairs,
            figures=checked_names(tuple(figures)),
            allow=allow,
            history=board_history(RunRepository(self._folder)),
        )
        runs = dict.fromkeys(
            session.run for pair in pairs for side in pair for session in side.sessions
        )
        return Comparison(found, tuple(self._folder / run for run in runs))

    def __repr__(self) -> str:
        return f"<lab {self.root}>"


def open_lab(path: str | os.PathLike[str] | None = None) -> Lab:
    """Open the lab in a folder, or in the nearest folder above it that has a devices.yaml.

    ``path`` None: the folder in the environment variable LABCTL_LAB, else the current folder.
    Raises ConfigError if there is no lab.
    """
    start = Path(path if path is not None else os.environ.get("LABCTL_LAB") or Path.cwd())
    root = find_lab_root(start)
    if root is None:
        raise ConfigError(
            f"no {FILE_NAME} in {start.resolve()} or a folder above it",
            hint="give the lab's folder: open_lab('DIR'); or write a first lab: `labctl init`",
        )
    return Lab(root)


def _filter(conditions: Conditions) -> Filter:
    if unknown := conditions.keys() - Conditions.__annotations__.keys():
        raise TypeError(f"not a condition on runs: {', '.join(sorted(unknown))}")
    states, verdict = _words(conditions.get("state", ())), conditions.get("verdict")
    _check("state", states, STATES)
    _check("verdict", () if verdict is None else (verdict,), VERDICTS)
    return Filter(
        recipe=conditions.get("recipe"),
        board=conditions.get("board"),
        model=conditions.get("model"),
        quantization=conditions.get("quantization"),
        build=conditions.get("build"),
        since=_moment(conditions.get("since")),
        until=_moment(conditions.get("until")),
        states=states,
        verdict=verdict,
        tags=_words(conditions.get("tag", ())),
        parameters=tuple(
            (name, parameter_text(value))
            for name, values in conditions.get("parameters", {}).items()
            for value in (values if isinstance(values, list | tuple) else (values,))
        ),
    )


def _check(kind: str, words: Sequence[str], known: Sequence[str]) -> None:
    for word in words:
        if word not in known:
            raise ConfigError(unknown(kind, word, known))


def _moment(when: datetime | str | None) -> datetime | None:
    if when is None:
        return None
    try:
        return parse_moment(when.isoformat() if isinstance(when, date) else str(when))
    except ValueError as error:
        raise ConfigError(str(error)) from error


def _words(words: Words) -> tuple[str, ...]:
    return (words,) if isinstance(words, str) else tuple(words)
