"""Compute curves, crossings, shifts and recommendations from joined answers and times."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING

from labctl.compare.equal_latency.answers import AnswerSet
from labctl.compare.equal_latency.crossings import Located, locate, zero
from labctl.compare.equal_latency.curves import (
    DrawnCurve,
    Draws,
    budget_curves,
    can_meet_deadlines,
    deadline_curves,
)
from labctl.compare.equal_latency.result import (
    Axis,
    Candidate,
    Choice,
    Crossing,
    GridRow,
    PointAtBudget,
    RescaledGrid,
    Shift,
)
from labctl.compare.equal_latency.timing import AnswerTimes
from labctl.compare.equal_latency.words import (
    apart_sentence,
    choice_sentence,
    crossing_sentence,
    early_end_sentence,
    shift_sentence,
)
from labctl.stats.proportions import clustered_interval

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

RESAMPLES = 2000


@dataclass(frozen=True)
class Matched:
    """Findings of a match: curves, crossings and choices.

    ``gaps``: sentences about times that are not compared.
    """

    curves: tuple[DrawnCurve, ...]
    crossings: tuple[Crossing, ...]
    shifts: tuple[Shift, ...]
    choices: tuple[Choice, ...]
    gaps: tuple[str, ...]


def match(
    sets: Sequence[AnswerSet],
    times: Mapping[str, AnswerTimes],
    questions: int,
    *,
    deadlines: Sequence[float] = (),
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Matched:
    """Compare all models with each prompt, on both axes. ``times``: by model."""
    draws = Draws.of(questions, resamples, seed)
    of_sets = [times[one.model] for one in sets]
    axes = (
        budget_curves(sets, of_sets, draws, deadlines),
        deadline_curves(sets, of_sets, draws, deadlines),
    )
    crossings: list[Crossing] = []
    shifts: list[Shift] = []
    gaps: list[str] = []
    for curves in axes:
        alike = [
            two for two in combinations(curves, 2) if two[0].answers.prompt == two[1].answers.prompt
        ]
        pairs = [_Pair.of(one, other, times) for one, other in alike]
        gaps += [
            apart_sentence(one.axis, one.answers.name, other.answers.name)
            for (one, other), pair in zip(alike, pairs, strict=True)
            if pair is None
        ]
        compared = [pair for pair in pairs if pair is not None]
        gaps += [text for pair in compared if (text := pair.early_end())]
        found = [(pair, pair.crossings(questions)) for pair in compared]
        crossings += [one for _, several in found for one in several]
        shifts += _shifts(found)
    usual = axes[1] or axes[0]
    choices = tuple(choose(usual, seconds, questions) for seconds in deadlines if usual)
    every = tuple(one for curves in axes for one in curves)
    return Matched(every, tuple(crossings), tuple(shifts), choices, tuple(dict.fromkeys(gaps)))


@dataclass(frozen=True)
class _Pair:
    """Two models with the same prompt: first the one with less time per token."""

    faster: DrawnCurve
    slower: DrawnCurve
    inside: "NDArray[np.bool_]"

    @classmethod
    def of(
        cls, one: DrawnCurve, other: DrawnCurve, times: Mapping[str, AnswerTimes]
    ) -> "_Pair | None":
        """Return the pair; None if its models have no measured time in common."""
        import numpy as np

        faster, slower = sorted(
            (one, other), key=lambda curve: times[curve.answers.model].timing.token_seconds
        )
        measured = min(one.measured_until, other.measured_until)
        inside = ~np.isnan(one.values) & ~np.isnan(other.values) & (one.times <= measured)
        if one.compared is not None:
            inside &= one.compared
        return cls(faster, slower, inside) if inside.sum() > 1 else None

    @property
    def axis(self) -> Axis:
        return self.faster.axis

    def difference(self, inside: "NDArray[np.bool_]") -> "NDArray[np.float64]":
        """Return draws of the slower model's accuracy minus the faster model's accuracy."""
        found: NDArray[np.float64] = self.slower.draws[:, inside] - self.faster.draws[:, inside]
        return found

    def early_end(self) -> str | None:
        """Name the curve whose limits end first while the other continues; none for deadlines."""
        first, other = sorted((self.faster, self.slower), key=lambda one: one.known_until)
        until = min(other.known_until, other.measured_until, float(other.times[-1]))
        if self.axis == "deadline" or first.known_until >= min(until, first.measured_until):
            return None
        return early_end_sentence(first.answers.name, first.known_until)

    def crossings(self, questions: int) -> list[Crossing]:
        times = self.faster.times[self.inside]
        gain = (self.slower.values - self.faster.values)[self.inside]
        ends = float(times[0]), float(times[-1])
        found = locate(times, gain, self.difference(self.inside), questions)
        return [self._crossing(one, ends) for one in found]

    def _crossing(self, found: Located, ends: tuple[float, float]) -> Crossing:
        faster, slower = self.faster.answers.name, self.slower.answers.name
        names = {-1: faster, 1: slower, 0: None}
        return Crossing(
            axis=self.axis,
            kind=found.kind,
            faster=faster,
            slower=slower,
            seconds=found.seconds,
            low=found.low,
            high=found.high,
            better_before=names[found.before],
            better_after=names[found.after],
            start=ends[0],
            end=ends[1],
            sentence=crossing_sentence(self.axis, found, faster, slower, ends),
        )


def _shifts(found: Sequence[tuple[_Pair, Sequence[Crossing]]]) -> list[Shift]:
    """Return the shifts of a crossing between prompts, if both prompts have one."""
    shifts = []
    single = [(pair, several[0]) for pair, several in found if len(several) == 1]
    overtaking = [
        (pair, one)
        for pair, one in single
        if one.kind == "crossing" and one.better_after == one.slower
    ]
    for (pair, one), (later, other) in combinations(overtaking, 2):
        models = [(p.faster.answers.model, p.slower.answers.model) for p in (pair, later)]
        if models[0] == models[1] and one.seconds is not None and other.seconds is not None:
            low, high = _shift_interval(pair, later)
            prompts = pair.faster.answers.prompt, later.faster.answers.prompt
            shift = other.seconds - one.seconds
            sentence = shift_sentence(*prompts, models[0][1], (low, high), shift)
            shifts.append(Shift(pair.axis, *models[0], *prompts, shift, low, high, sentence))
    return shifts


def _shift_interval(pair: _Pair, later: _Pair) -> tuple[float | None, float | None]:
    """Return the percentiles of the difference of both crossings; None for an open end."""
    import numpy as np

    zeros = [
        zero(one.faster.times[one.inside], one.difference(one.inside)) for one in (pair, later)
    ]
    with np.errstate(invalid="ignore"):
        gaps = zeros[1] - zeros[0]
    # If both crossings are out of range on the same side, the shift is open on both.
    lows, highs = (np.where(np.isnan(gaps), end, gaps) for end in (-np.inf, np.inf))
    low = float(np.quantile(lows, 0.025, method="lower"))
    high = float(np.quantile(highs, 0.975, method="higher"))
    return (low if np.isfinite(low) else None), (high if np.isfinite(high) else None)


def choose(curves: Sequence[DrawnCurve], seconds: float, questions: int) -> Choice:
    """Return the best curve at a time. ``shown``: it is shown to be better than every other curve.

    Any curve may come first by chance, so the error of 5 % is divided among them (C. E.
    Bonferroni).
    """
    import numpy as np
    from scipy.special import ndtri

    axis = curves[0].axis
    here = []
    for one in curves:
        k = int(np.searchsorted(one.times, seconds))
        # Skip a curve without this time, for example because all its limits take longer.
        if k < len(one.times) and one.times[k] == seconds and not np.isnan(one.values[k]):
            here.append((one, k))
    here.sort(key=lambda pair: -pair[0].values[pair[1]])
    candidates = []
    for one, k in here:
        value = one.interval(k)
        beyond = seconds > one.measured_until
        candidates.append(
            Candidate(
                one.answers.model, one.answers.prompt, value.mean, value.low, value.high, beyond
            )
        )
    sound = [pair for pair in here if seconds <= pair[0].measured_until]
    best = sound[0][0].answers.name if sound else None
    shown = len(sound) > 1
    if shown:
        (first, k), *others = sound
        needed = float(ndtri(1 - 0.05 / len(sound)))
        for other, j in others:
            gain = first.values[k] - other.values[j]
            spread = np.sqrt((first.draws[:, k] - other.draws[:, j]).var() + 1 / questions**2)
            shown = shown and bool(gain > needed * spread)
    sentence = choice_sentence(axis, seconds, candidates, best, shown=shown)
    return Choice(axis, seconds, tuple(candidates), best, shown, sentence)


def budget_points(
    sets: Sequence[AnswerSet], times: Mapping[str, AnswerTimes], questions: int
) -> tuple[PointAtBudget, ...]:
    """Return each model with each prompt at each limit, and mark the Pareto front.

    The front compares accuracy and mean time of an answer (if any is missing: the limit's time).
    """
    found = [
        _point(one, number, times[one.model], questions)
        for one in sets
        for number in range(len(one.cells))
    ]
    by_answer = all(point.answer_seconds is not None for point in found)

    def cost(point: PointAtBudget) -> float | None:
        return point.answer_seconds if by_answer else point.budget_seconds

    front = set(_front([(cost(point), point) for point in found if not point.extrapolated]))
    return tuple(replace(point, on_front=id(point) in front) for point in found)


def _front(points: Iterable[tuple[float | None, PointAtBudget]]) -> list[int]:
    """Return the ids of points that no other point beats in accuracy without more time."""
    known = [(time, point) for time, point in points if time is not None]
    best, found = -1.0, []
    for _, point in sorted(known, key=lambda one: (one[0], -one[1].accuracy.mean)):
        if point.accuracy.mean > best:
            best = point.accuracy.mean
            found.append(id(point))
    return found


def _point(answers: AnswerSet, number: int, times: AnswerTimes, questions: int) -> PointAtBudget:
    cell, timing = answers.cells[number], times.timing
    shares = cell.shares(cell.correct, questions)
    samples = round(len(cell.question) / questions)
    accuracy = clustered_interval(shares.tolist(), samples)
    limit_seconds = cell.budget * timing.token_seconds if cell.budget is not None else None
    seconds = joules = per_joule = None
    last = float(cell.budget or 0)
    if cell.tokens is not None and cell.prompt_tokens is not None:
        ends = cell.prompt_tokens + cell.tokens
        last = float(ends.max())
        if times.has_prefill:
            each = times.seconds(times.mean(), cell.prompt_tokens, cell.tokens)[0]
            seconds = float(cell.shares(each, questions).mean())
    if cell.tokens is not None and timing.joules_per_token is not None:
        joules = float(cell.shares(cell.tokens, questions).mean()) * timing.joules_per_token
        per_joule = accuracy.mean / joules if joules else None
    return PointAtBudget(
        model=answers.model,
        prompt=answers.prompt,
        budget=cell.budget,
        budget_seconds=limit_seconds,
        answer_seconds=seconds,
        accuracy=accuracy,
        extrapolated=last > timing.longest_position,
        joules=joules,
        right_per_joule=per_joule,
    )


def rescaled_grid(
    faster: tuple[str, float], slower: tuple[str, float], budgets: Iterable[int]
) -> RescaledGrid:
    """Return the limits of the slower model that take the same time, to the nearest token.

    ``faster`` and ``slower``: name of a model, and its seconds per token.
    """
    ratio = slower[1] / faster[1]
    rows = tuple(GridRow(one, round(one / ratio), one * faster[1]) for one in budgets)
    return RescaledGrid(faster[0], slower[0], faster[1], slower[1], rows)


def without_deadlines(sets: Sequence[AnswerSet], times: Mapping[str, AnswerTimes]) -> list[str]:
    """Return the names of models without known deadlines."""
    return [one.name for one in sets if not can_meet_deadlines(one, times[one.model])]
