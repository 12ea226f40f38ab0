"""Curves of accuracy over time, with draws of them.

All curves share their draws: all models and prompts use the same questions, and all prompts of a
model use the same repeats of its timing. So the draws of two curves can be subtracted.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from labctl.compare.equal_latency.answers import Answers, AnswerSet
from labctl.compare.equal_latency.result import Axis, Curve, CurvePoint
from labctl.compare.equal_latency.timing import AnswerTimes
from labctl.stats.bootstrap import draw_questions
from labctl.stats.intervals import Interval
from labctl.stats.proportions import interval_of_variance

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: Number of times at which curves are computed, evenly from the first to the last.
STEPS = 400
#: Number of draws whose answers are timed at once, to limit memory.
_CHUNK = 100


@dataclass(frozen=True)
class Draws:
    """Draws of the questions; ``seed`` determines the draws of the models' repeats."""

    questions: "NDArray[np.float64]"
    seed: int

    @classmethod
    def of(cls, questions: int, resamples: int, seed: int) -> "Draws":
        """Draw ``resamples`` times as many questions as there are."""
        return cls(draw_questions(questions, resamples, seed), seed)

    @property
    def count(self) -> int:
        """Number of draws."""
        return int(self.questions.shape[0])

    @property
    def size(self) -> int:
        """Number of questions."""
        return int(self.questions.shape[1])

    def repeats(self, times: AnswerTimes, model: int) -> "NDArray[np.float64]":
        """Draw the repeats of a model; ``model`` is its number."""
        return times.draws(self.count, self.seed + 1 + model)


@dataclass(frozen=True)
class DrawnCurve:
    """A curve at the common times of its axis: NaN where it is unknown.

    ``compared`` marks the times at which crossings are searched; None: all. It excludes requested
    deadlines, so that they change no crossing.
    """

    answers: AnswerSet
    axis: Axis
    times: "NDArray[np.float64]"
    values: "NDArray[np.float64]"
    draws: "NDArray[np.float64]"
    measured_until: float
    known_until: float
    budgets: tuple[tuple[int, float], ...] = ()
    compared: "NDArray[np.bool_] | None" = None

    def interval(self, k: int) -> Interval:
        """Return the 95 % interval at one of the times.

        Never narrower than the number of answers allows: timing noise moves draws along a curve
        that ends, and must not make them look alike.
        """
        import numpy as np

        asked, value = self.answers.cells[0].question, float(self.values[k])
        variance = max(float(self.draws[:, k].var()), value * (1 - value) / len(asked))
        return interval_of_variance(value, variance, len(np.unique(asked)))

    def curve(self) -> Curve:
        """Return the curve for the result: measured points of budgets, else all times."""
        import numpy as np

        places: list[tuple[int, int | None]]
        if self.axis == "budget":
            found = {
                int(np.searchsorted(self.times, time)): tokens for tokens, time in self.budgets
            }
            places = list(found.items())
        else:
            places = [(int(k), None) for k in np.flatnonzero(~np.isnan(self.values))]
        points = []
        for k, tokens in places:
            one = self.interval(k)
            time = float(self.times[k])
            beyond = time > self.measured_until
            points.append(CurvePoint(time, one.mean, one.low, one.high, beyond, tokens))
        return Curve(
            self.answers.model,
            self.answers.prompt,
            self.axis,
            self.answers.states_budget,
            tuple(points),
            _finite(self.measured_until),
            _finite(self.known_until),
        )


def _finite(value: float) -> float | None:
    return value if value < float("inf") else None


def budget_curves(
    sets: Sequence[AnswerSet],
    times: Sequence[AnswerTimes],
    draws: Draws,
    deadlines: Sequence[float] = (),
) -> list[DrawnCurve]:
    """Return curves over limit x mean time per token; each has two limits or more.

    Between limits the accuracy is interpolated linearly. After the last limit it is known if no
    answer was cut. ``times`` has the timing of each set's model. ``deadlines`` are added to the
    times if limits lie on both sides.
    """
    import numpy as np

    pairs = [(s, t) for s, t in zip(sets, times, strict=True) if len(s.limited) > 1]
    if not pairs:
        return []
    ends = [(budget_seconds(s, t)[0], budget_seconds(s, t)[-1]) for s, t in pairs]
    marks = [time for s, t in pairs for time in budget_seconds(s, t)]
    first, last = min(a for a, _ in ends), max(b for _, b in ends)
    even = np.union1d(np.linspace(first, last, STEPS + 1), marks)
    asked = [seconds for seconds in deadlines if first <= seconds <= last]
    common = np.union1d(even, np.array(asked, dtype=float))
    compared = np.isin(common, even)
    numbers = _numbers(pairs)
    found = []
    for (one, timing), (start, end) in zip(pairs, ends, strict=True):
        limits = np.array([cell.budget for cell in one.limited], dtype=float)
        shares = np.array([cell.shares(cell.correct, draws.size) for cell in one.limited])
        token = timing.timing.token_seconds
        repeats = draws.repeats(timing, numbers[timing.timing.model])[:, 1]
        tokens = token + repeats - float(timing.mean()[0, 1])
        means = draws.questions @ shares.T / draws.size
        # A larger limit changes nothing if the largest one cuts no answer and no prompt states it.
        is_whole = bool(one.limited[-1].complete.all()) and not one.states_budget
        known = np.inf if is_whole else end
        outside = (common < start) | (common > known)
        values = np.interp(common / token, limits, shares.mean(axis=1))
        drawn = np.array(
            [np.interp(common / tokens[k], limits, means[k]) for k in range(draws.count)]
        )
        values[outside] = np.nan
        drawn[:, outside] = np.nan
        room = timing.timing.longest_position - _mean_prompt(one)
        budgets = [(int(n), float(n * token)) for n in limits]
        until = np.inf if limits[-1] <= room else max(0.0, room) * token
        found.append(
            DrawnCurve(one, "budget", common, values, drawn, until, known, tuple(budgets), compared)
        )
    return found


def budget_seconds(answers: AnswerSet, times: AnswerTimes) -> list[float]:
    """Return the time of each limit: tokens x mean time per token."""
    return [(cell.budget or 0) * times.timing.token_seconds for cell in answers.limited]


def _mean_prompt(answers: AnswerSet) -> float:
    tokens = answers.cells[0].prompt_tokens
    return float(tokens.mean()) if tokens is not None and len(tokens) else 0.0


def _numbers(pairs: Sequence[tuple[AnswerSet, AnswerTimes]]) -> dict[str, int]:
    return {name: k for k, name in enumerate(sorted({t.timing.model for _, t in pairs}))}


def can_meet_deadlines(answers: AnswerSet, times: AnswerTimes) -> bool:
    """Return True if everything needed for the time of an answer is known."""
    return times.has_prefill and all(
        cell.tokens is not None and cell.prompt_tokens is not None for cell in answers.cells
    )


def deadline_curves(
    sets: Sequence[AnswerSet],
    times: Sequence[AnswerTimes],
    draws: Draws,
    deadlines: Sequence[float] = (),
) -> list[DrawnCurve]:
    """Return curves of the share of right answers that are complete within a time.

    A prompt that states no budget has one curve, from its answers under the largest limit. If the
    prompt states the budget, the budget depends on the deadline: its last token comes just in time.
    Between the evaluated budgets the accuracy is interpolated linearly; outside them the nearest
    budget's accuracy is used. The times include ``deadlines``.
    """
    import numpy as np

    pairs = [(s, t) for s, t in zip(sets, times, strict=True) if can_meet_deadlines(s, t)]
    if not pairs:
        return []
    numbers = _numbers(pairs)
    parts = [[_Timed.of(cell, t) for cell in _asked(s)] for s, t in pairs]
    fulls = [cell.full for timed in parts for cell in timed]
    end = max([cell.last for timed in parts for cell in timed] + fulls)
    even = np.union1d(np.linspace(0.0, end, STEPS + 1), fulls)
    common = np.union1d(even, np.array(deadlines, dtype=float))
    compared = np.isin(common, even)
    found = []
    for (one, timing), timed in zip(pairs, parts, strict=True):
        repeats = draws.repeats(timing, numbers[timing.timing.model])
        plain = np.ones((1, draws.size))
        values = _over_limits(common, timed, plain, timing.mean(), timing)[0]
        drawn = _over_limits(common, timed, draws.questions, repeats, timing)
        # A cut answer might have become right later; a stated limit is part of the question.
        known = timed[-1].cut_from
        if one.states_budget and known < np.inf:
            known = timed[-1].last
        values[common > known] = np.nan
        drawn[:, common > known] = np.nan
        measured = min(cell.beyond_from for cell in timed)
        found.append(
            DrawnCurve(one, "deadline", common, values, drawn, measured, known, compared=compared)
        )
    return found


def _over_limits(
    common: "NDArray[np.float64]",
    timed: Sequence["_Timed"],
    questions: "NDArray[np.float64]",
    repeats: "NDArray[np.float64]",
    times: AnswerTimes,
) -> "NDArray[np.float64]":
    """Join the curves of several limits: each at its own time, linear between them."""
    import numpy as np

    found = timed[0].within(common, questions, repeats, times)
    for one, following in pairwise(timed):
        first, last = np.searchsorted(common, [one.full, following.full])
        part = slice(first, last + 1)
        share = (common[part] - one.full) / (following.full - one.full)
        after = following.within(common, questions, repeats, times)
        found[:, part] = found[:, [first]] * (1 - share) + after[:, [last]] * share
        found[:, last + 1 :] = after[:, last + 1 :]
    return found


def _asked(answers: AnswerSet) -> tuple[Answers, ...]:
    if answers.states_budget and answers.limited:
        return answers.limited
    return answers.cells[-1:]


@dataclass(frozen=True)
class _Timed:
    """Answers with their times.

    ``last``: the latest end. ``full``: time of the whole limit at the mean prompt. ``cut_from``:
    first end of a cut answer. ``beyond_from``: first time at which an answer leaves the measured
    positions.
    """

    answers: Answers
    prompts: "NDArray[np.float64]"
    tokens: "NDArray[np.float64]"
    last: float
    full: float
    cut_from: float
    beyond_from: float

    @classmethod
    def of(cls, answers: Answers, times: AnswerTimes) -> "_Timed":
        import numpy as np

        assert answers.prompt_tokens is not None
        assert answers.tokens is not None
        prompts, tokens = answers.prompt_tokens, answers.tokens
        mean, longest = times.mean(), times.timing.longest_position
        ends = times.seconds(mean, prompts, tokens)[0]
        cut = ends[answers.complete == 0]
        room = np.maximum(longest - prompts, 0)
        reached = times.seconds(mean, prompts, room)[0]
        beyond = reached[tokens > room]
        limit = np.array([answers.budget or tokens.max(initial=0)], dtype=float)
        full = times.seconds(mean, prompts.mean(keepdims=True), limit)[0, 0]
        return cls(
            answers,
            prompts,
            tokens,
            float(ends.max(initial=0)),
            float(full),
            float(cut.min(initial=np.inf)),
            float(beyond.min(initial=np.inf)),
        )

    def within(
        self,
        common: "NDArray[np.float64]",
        questions: "NDArray[np.float64]",
        repeats: "NDArray[np.float64]",
        times: AnswerTimes,
    ) -> "NDArray[np.float64]":
        """Return for each draw the share of right and complete answers within each time."""
        import numpy as np

        good = np.flatnonzero(self.answers.correct * self.answers.complete)
        prompts, tokens = self.prompts[good], self.tokens[good]
        of, weight = self.answers.question[good], self.answers.weight[good]
        width = len(common) + 1
        found = np.empty((len(questions), len(common)))
        for first in range(0, len(questions), _CHUNK):
            part = slice(first, first + _CHUNK)
            ends = times.seconds(repeats[part], prompts, tokens)
            place = np.searchsorted(common, ends, side="left")
            place += np.arange(len(ends))[:, None] * width
            counts = np.bincount(
                place.ravel(),
                (questions[part][:, of] * weight).ravel(),
                minlength=len(ends) * width,
            ).reshape(len(ends), width)
            found[part] = counts[:, :-1].cumsum(axis=1) / questions.shape[1]
        return found
