"""Rows of the index. Its columns are the fields of the rows and the declared figures.

Durations in ns, sizes in bytes, moments in ISO 8601 in UTC, so that text sorts like time. ``None``:
not measured or not reported.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias, TypeVar, get_type_hints

from labctl.errors import Blame
from labctl.figures import accuracy, figure, trials
from labctl.figures.accuracy import ACCURACY
from labctl.figures.figure import Figure
from labctl.figures.trials import FIGURES
from labctl.records.run import RunEnd

#: Figures of a run, each with the smallest and the largest value of its variants.
LISTED: tuple[Figure[Any], ...] = (*(one for one in FIGURES if one.listed), ACCURACY)
#: Largest text in an index: a row of PostgreSQL's index has 2704 bytes.
_LONGEST = 400

Json: TypeAlias = Mapping[str, object]
#: Declared figures by their columns; unknown figures are None or absent.
Figures: TypeAlias = Mapping[str, float | None]


@dataclass(frozen=True)
class RunRow:
    """A run; for a damaged run, its id and its problem."""

    id: str
    #: Changes whenever the run directory changes.
    stamp: str
    #: finished, failed, interrupted, unfinished or damaged
    state: str
    recipe: str
    started: str
    #: Place in the order in which its folder of runs recorded its runs; None if not recorded there.
    recorded: int | None = None
    #: ``timing``; ``evaluation``: trials are generations, columns of times are empty;
    #: ``load-test``: no trials, columns of times are empty.
    kind: str = "timing"
    finished: str | None = None
    board: str | None = None
    target: str | None = None
    execution: str | None = None
    #: passed, failed (a trial or a gate), infra or config; None if the run has not ended
    verdict: str | None = None
    failure: str | None = None
    gates_passed: int = 0
    gates_missed: int = 0
    trials_planned: int = 0
    trials_recorded: int = 0
    trials_ok: int = 0
    trials_failed: int = 0
    trials_skipped: int = 0
    #: The smallest and the largest estimate of the variants, as in a report, for each figure of
    #: :data:`LISTED`. Accuracies are by the first grader.
    figures: Figures = field(default_factory=dict, hash=False)
    engine: str | None = None
    task: str | None = None
    product: str | None = None
    version: str | None = None
    build_key: str | None = None
    build_commit: str | None = None
    compiler: str | None = None
    labctl_version: str | None = None
    lab_revision: str | None = None
    host: str | None = None
    note: str | None = None
    damage: str | None = None
    #: Disk space of its directory.
    size_bytes: int | None = None
    #: Source file of an imported run, and its hash.
    imported_from: str | None = None
    imported_sha256: str | None = None
    #: 1 if its recipe is untrusted, or its board takes untrusted recipes.
    untrusted: int = 0
    #: Id of the night in which it was measured, and the side: head, good or a commit.
    night: str | None = None
    night_side: str | None = None
    #: Folder of runs, if several folders share a database.
    folder: str = ""

    @property
    def is_history(self) -> bool:
        """True if it is a trusted run on the lab's own boards."""
        # A board with this name in another lab is a different board.
        return self.imported_from is None and not self.untrusted


@dataclass(frozen=True)
class ModelRow:
    """A model of a run."""

    run: str
    key: str
    file: str
    sha256: str | None
    name: str | None
    quantization: str | None


@dataclass(frozen=True)
class TagRow:
    """A tag of a run."""

    run: str
    tag: str


@dataclass(frozen=True)
class TrialRow:
    """A trial. Its tokens are only in the run directory."""

    run: str
    number: int
    slug: str
    variant: str
    #: 0 = a warm-up
    repeat: int
    state: str
    started: str
    finished: str
    #: None if missing in an imported file, like all following fields.
    board: str | None
    target: str | None
    execution: str
    attempt: int
    blame: str | None
    failure: str | None
    skip_reason: str | None
    #: Names of failed checks, separated by spaces.
    checks_failed: str
    #: Names of checks that could not be judged, in the same form.
    checks_open: str
    model: str
    model_file: str
    model_name: str | None
    model_sha256: str | None
    model_bytes: int | None
    quantization: str | None
    bits_per_weight: float | None
    #: Figures of :mod:`labctl.figures.trials`.
    figures: Figures
    bound: str | None
    parameters: Json
    conditions: Json
    comparability: Json


@dataclass(frozen=True)
class ParameterRow:
    """A parameter's value in a variant of a run, as text: :func:`parameter_text`."""

    run: str
    variant: str
    name: str
    value: str


@dataclass(frozen=True)
class ProbeRow:
    """A probe of a board; for an unreadable probe, the facts in its file name, and the reason."""

    #: ``BOARD/FILE`` below the lab's folder boards/.
    file: str
    board: str
    taken: str
    execution: str | None = None
    machine: str | None = None
    kernel: str | None = None
    os_version: str | None = None
    agent_version: str | None = None
    memory_bytes_per_second: int | None = None
    #: For storage, only reads that provably came from storage.
    mapping_bytes_per_second: int | None = None
    sequential_bytes_per_second: int | None = None
    random_bytes_per_second: int | None = None
    #: Rates that were lower than in earlier probes, separated by semicolons.
    slower: str = ""
    damage: str | None = None
    folder: str = ""

    def document(self) -> dict[str, object]:
        """Return the probe for JSON, without the index's internal folder."""
        return {name: value for name, value in asdict(self).items() if name != "folder"}


#: Class of a row -> the columns of its figures.
_FIGURES: Mapping[type[Any], Mapping[str, type]] = {
    RunRow: {name: int if one.is_whole else float for one in LISTED for name in one.ends},
    TrialRow: {one.column: int if one.is_whole else float for one in FIGURES},
}
RowT = TypeVar("RowT")
Row: TypeAlias = RunRow | ModelRow | TagRow | TrialRow | ParameterRow | ProbeRow
#: table -> class of its rows, and the columns that identify a row
TABLES: dict[str, tuple[type[Any], tuple[str, ...]]] = {
    "run": (RunRow, ("id",)),
    "model": (ModelRow, ("run", "key")),
    "tag": (TagRow, ("run", "tag")),
    "trial": (TrialRow, ("run", "number")),
    "parameter": (ParameterRow, ("run", "variant", "name", "value")),
    "probe": (ProbeRow, ("file",)),
}
#: Other columns used by filters, as (table, columns).
LOOKED_FOR = (
    ("run", ("folder", "recorded", "id")),
    ("model", ("quantization", "run")),
    ("tag", ("tag", "run")),
    ("trial", ("board", "run")),
    ("parameter", ("name", "value", "run", "variant")),
)


@dataclass(frozen=True)
class Entry:
    """All rows of one run."""

    run: RunRow
    models: tuple[ModelRow, ...] = ()
    tags: tuple[str, ...] = ()
    trials: tuple[TrialRow, ...] = ()

    @property
    def is_storable(self) -> bool:
        """True if all numbers fit in the 64 bits of databases."""
        return all(
            abs(value) < 1 << 63
            for row in (self.run, *self.trials)
            for value in in_columns(row).values()
            if isinstance(value, int)
        )

    @property
    def parameters(self) -> list[ParameterRow]:
        """Rows of the trials' parameters, each value of a variant once."""
        found = {
            ParameterRow(trial.run, trial.variant, name, held_text(parameter_text(value)))
            for trial in self.trials
            for name, value in trial.parameters.items()
        }
        return list(found)


def verdict_of(end: RunEnd | None, *, failed: bool = False) -> str | None:
    """Return the verdict on a run without trials; None if it has not ended.

    ``failed``: a part of the run has no good result, as in the run's exit status.
    """
    if end is None or end.state == "interrupted":
        return None
    if end.failure is not None:
        return "failed" if end.failure.blame is Blame.JOB else str(end.failure.blame)
    missed = any(gate.passed is False for gate in end.gates)
    return "failed" if missed or failed else "passed"


def moment(when: datetime) -> str:
    """Return a moment in the form of the index: text that sorts like time."""
    return when.astimezone(UTC).isoformat(timespec="microseconds")


def parameter_text(value: object) -> str:
    """Return a parameter's value as a person types it: ``4`` (also for 4.0), ``0.8``, ``true``."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


def held_text(text: str) -> str:
    """Return a value in the form of the index: a hash for long values, as PostgreSQL requires."""
    if len(text) <= _LONGEST:
        return text
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def columns(row: type[Any]) -> Mapping[str, tuple[type, bool]]:
    """Return name -> (``str``, ``int``, ``float`` or ``dict``; True if optional) of a row's class.

    ``dict`` is stored as JSON text.
    """
    return _COLUMNS[row]


def _columns(row: type[Any]) -> dict[str, tuple[type, bool]]:
    hints = get_type_hints(row)
    found: dict[str, tuple[type, bool]] = {}
    for one in fields(row):
        hint = hints[one.name]
        if hint == Figures:
            found |= {name: (kind, True) for name, kind in _FIGURES[row].items()}
            continue
        if hint == Json:
            found[one.name] = (dict, False)
            continue
        kinds = getattr(hint, "__args__", (hint,))
        found[one.name] = (kinds[0], type(None) in kinds)
    return found


_COLUMNS = {row: _columns(row) for row, _ in TABLES.values()}


def in_columns(row: object) -> dict[str, Any]:
    """Return the values of a row by the names of its columns."""
    values = dict(vars(row))
    if type(row) in _FIGURES:
        figures = values.pop("figures")
        values |= {name: figures.get(name) for name in _FIGURES[type(row)]}
    return {name: values[name] for name in columns(type(row))}


def from_columns(row: type[RowT], values: Iterable[Any]) -> RowT:
    """Return a row from the values of its columns, in their order."""
    found = dict(zip(columns(row), values, strict=True))
    if row in _FIGURES:
        found["figures"] = {name: found.pop(name) for name in _FIGURES[row]}
    return row(**found)


def _version() -> str:
    names = [(name, columns(row), key) for name, (row, key) in TABLES.items()]
    shown = [(one.column, one.unit, one.over and one.over.__name__) for one in FIGURES]
    digest = hashlib.sha256(repr((names, LOOKED_FOR, shown)).encode())
    sources = (__file__, str(Path(__file__).with_name("entry.py")), figure.__file__)
    for source in (*sources, trials.__file__, accuracy.__file__):
        digest.update(Path(source).read_bytes())
    return digest.hexdigest()[:16]


#: Version of the tables: a digest of their columns, the declarations of figures, and the files that
#: make rows from records. Tables of another version are rebuilt from the run directories.
VERSION = _version()
