"""Results of a latency match: the source of its text, JSON, CSV and report page.

Times are in s; accuracies are shares from 0 to 1. An interval is open at an end that is None.
"""

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from labctl.stats.intervals import Interval

#: ``budget``: limit of tokens x mean time per token, as in the experiment. ``deadline``: the answer
#: is right and complete within the time, including prefill of its prompt and its own tokens.
Axis = Literal["budget", "deadline"]
#: ``crossing``: one curve is shown better before it, the other after it. ``after``, ``before``: a
#: curve is shown better on one side only, so a crossing, if any, comes after (before) a time.
#: ``none``: one curve is shown better up to the end of the range. ``unclear``: no difference is
#: shown.
CrossingKind = Literal["crossing", "after", "before", "none", "unclear"]


@dataclass(frozen=True)
class ModelTiming:
    """Times of one model, from its timing runs.

    ``interval`` of the time per token is over ``repeats``; None for one repeat. The time increases
    by ``growth_seconds`` with each position. ``longest_position`` is the last measured position of
    the context. ``joules_per_token`` is None without a meter.
    """

    model: str
    sha256: str
    runs: tuple[str, ...]
    repeats: int
    board: str
    execution: str
    token_seconds: float
    interval: Interval | None
    growth_seconds: float
    prefill_tokens_per_second: float | None
    longest_prompt: int | None
    longest_position: int
    joules_per_token: float | None = None


@dataclass(frozen=True)
class CurvePoint:
    """Accuracy at a time; ``extrapolated``: beyond the longest measured position."""

    seconds: float
    accuracy: float
    low: float
    high: float
    extrapolated: bool
    budget: int | None = None


@dataclass(frozen=True)
class Curve:
    """Accuracy of one model with one prompt over time.

    Points after ``measured_until`` are extrapolated (dashed). After ``known_until``, answers cut by
    a limit might have become right. None: no such time.
    """

    model: str
    prompt: str
    axis: Axis
    states_budget: bool
    points: tuple[CurvePoint, ...]
    measured_until: float | None = None
    known_until: float | None = None

    @property
    def name(self) -> str:
        """Return ``MODEL/PROMPT``, its name in the evaluation."""
        return f"{self.model}/{self.prompt}"


@dataclass(frozen=True)
class Crossing:
    """A comparison of two curves: the time at which ``slower`` overtakes ``faster``.

    ``better_before`` and ``better_after`` are names of curves; None: not shown. ``low`` to ``high``
    contains the crossing with 95 %. The comparison covers ``start`` to ``end``, without
    extrapolated parts.
    """

    axis: Axis
    kind: CrossingKind
    faster: str
    slower: str
    seconds: float | None
    low: float | None
    high: float | None
    better_before: str | None
    better_after: str | None
    start: float
    end: float
    sentence: str


@dataclass(frozen=True)
class Shift:
    """Difference of a crossing's time: with prompt ``other`` minus with prompt ``prompt``."""

    axis: Axis
    faster: str
    slower: str
    prompt: str
    other: str
    seconds: float | None
    low: float | None
    high: float | None
    sentence: str


@dataclass(frozen=True)
class PointAtBudget:
    """A model with a prompt at one budget: its cost and its accuracy.

    ``on_front``: no other point is as accurate in less time (Pareto); extrapolated points are left
    out. ``answer_seconds`` is the mean time of an answer, ``None`` if lengths are unknown.
    """

    model: str
    prompt: str
    budget: int | None
    budget_seconds: float | None
    answer_seconds: float | None
    accuracy: Interval
    extrapolated: bool
    on_front: bool = False
    joules: float | None = None
    right_per_joule: float | None = None


@dataclass(frozen=True)
class Candidate:
    """One curve at a deadline."""

    model: str
    prompt: str
    accuracy: float
    low: float
    high: float
    extrapolated: bool


@dataclass(frozen=True)
class Choice:
    """The best model and prompt at a deadline, and all candidates by accuracy, best first.

    ``best`` is None if all candidates are extrapolated at the deadline. ``shown``: it is shown to
    be better than all others that are not extrapolated.
    """

    axis: Axis
    seconds: float
    candidates: tuple[Candidate, ...]
    best: str | None
    shown: bool
    sentence: str


@dataclass(frozen=True)
class GridRow:
    """Limits of two models that take the same time."""

    faster_tokens: int
    slower_tokens: int
    seconds: float


@dataclass(frozen=True)
class RescaledGrid:
    """Limits of the slower model: limits of the faster model / ratio of their times."""

    faster: str
    slower: str
    faster_token_seconds: float
    slower_token_seconds: float
    rows: tuple[GridRow, ...]

    @property
    def ratio(self) -> float:
        """Time per token of the slower model over that of the faster one."""
        return self.slower_token_seconds / self.faster_token_seconds


@dataclass(frozen=True)
class Quoted:
    """A published figure: shown, never used in a curve."""

    name: str
    model: str
    quantization: str | None
    value: float
    unit: str
    source: str
    is_accuracy: bool


@dataclass(frozen=True)
class LatencyMatch:
    """Accuracy against time of any number of models and prompts."""

    heading: tuple[str, ...]
    evaluations: tuple[str, ...]
    grader: str | None
    questions: int
    timings: tuple[ModelTiming, ...] = ()
    grids: tuple[RescaledGrid, ...] = ()
    curves: tuple[Curve, ...] = ()
    crossings: tuple[Crossing, ...] = ()
    shifts: tuple[Shift, ...] = ()
    points: tuple[PointAtBudget, ...] = ()
    choices: tuple[Choice, ...] = ()
    quoted: tuple[Quoted, ...] = ()
    notes: tuple[str, ...] = field(default=())

    @property
    def emulated(self) -> bool:
        """True if any time was not measured on a board."""
        return any(one.execution != "board" for one in self.timings)

    def document(self) -> dict[str, Any]:
        """Return it as a JSON document."""
        found = asdict(self)
        for grid, row in zip(self.grids, found["grids"], strict=True):
            row["ratio"] = grid.ratio
        return {**found, "emulated": self.emulated}
