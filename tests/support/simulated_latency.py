"""Two models with a planted crossing: answers of uniform length, and noisy repeats of their time.

Within x s a model answers ``accuracy x min(1, x / (token x longest))`` of all questions rightly, on
both axes.
"""

from dataclasses import dataclass

import numpy as np

from labctl.compare.equal_latency.answers import Answers, AnswerSet
from labctl.compare.equal_latency.result import ModelTiming
from labctl.compare.equal_latency.timing import AnswerTimes

LONGEST = 1000
PROMPT = 20
BUDGETS = (50, *range(100, 1001, 100))


@dataclass(frozen=True)
class Model:
    name: str
    token_seconds: float
    accuracy: float
    longest: int = LONGEST


SMALL, LARGE = Model("q2_k", 0.1, 0.516), Model("q8_0", 0.273, 0.856)


def crossing(small: Model, large: Model) -> float:
    """Return the time at which the large model has what the small one ever has."""
    return small.accuracy / large.accuracy * large.token_seconds * large.longest


def timed(
    model: Model, chance: np.random.Generator, *, repeats: int, noise: float, longest: int = 4000
) -> AnswerTimes:
    levels = model.token_seconds * (1 + noise * chance.standard_normal(repeats))
    timing = ModelTiming(
        model.name, model.name, ("r1",), repeats, "rk1", "board", float(levels.mean()), None, 0.0,
        1000 / model.token_seconds, PROMPT, longest,
    )  # fmt: skip
    return AnswerTimes(timing, tuple((1e-3 * model.token_seconds, float(one)) for one in levels), 0)


def answered(
    model: Model,
    chance: np.random.Generator,
    hardness: "np.ndarray[tuple[int], np.dtype[np.float64]]",
    *,
    prompt: str = "plain",
    samples: int = 1,
    budgets: tuple[int | None, ...] = BUDGETS,
) -> AnswerSet:
    """Answer each question; ``hardness`` (0 to 1) is common to the models."""
    count = len(hardness)
    question = np.repeat(np.arange(count), samples)
    # half of what decides is the question, half is chance; both parts are uniform
    own = chance.random(count * samples)
    draw = np.where(chance.random(count * samples) < 0.5, hardness[question], own)
    right = draw < model.accuracy
    lengths = np.ceil(chance.random(count * samples) * model.longest)
    cells = []
    for budget in budgets:
        limit = budget or np.inf
        complete = lengths <= limit
        cells.append(
            Answers(
                budget,
                question,
                np.full(count * samples, 1 / samples),
                (right & complete).astype(float),
                complete.astype(float),
                np.minimum(lengths, limit),
                np.full(count * samples, float(PROMPT)),
            )
        )
    return AnswerSet(model.name, prompt, states_budget=False, cells=tuple(cells))
