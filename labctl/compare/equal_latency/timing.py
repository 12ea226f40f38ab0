"""Time of an answer of a model, from its timing runs.

An answer takes the prefill of its prompt and a step for each of its tokens. Prefill time is assumed
proportional to the prompt's tokens. The time of a step grows linearly with its position: each
position adds a row to the KV cache, which every later step reads. All repeats share one slope; each
repeat has its own level. Loading of the model is not counted.

Notes name the range that each model's timing covers, and the measurements that would extend it.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from labctl.compare.equal_latency.answers import Answers, AnswerSet
from labctl.compare.equal_latency.result import ModelTiming
from labctl.compare.equal_latency.words import sentence
from labctl.figures.trials import JOULES_PER_TOKEN
from labctl.records.timing import TimingRecord
from labctl.records.trial import TrialRecord
from labctl.results.summary import estimate_of, good_trials
from labctl.stats.describe import geometric_mean, mean

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


#: Fewest gaps of a repeat that can show growth with the position.
_GAPS_FOR_GROWTH = 32
#: Lower bound of draws, since repeats far below the mean would give negative times.
_LEAST_SHARE = 0.05


@dataclass(frozen=True)
class _Repeat:
    """``steps``: position and time of single tokens, or one mean in their middle."""

    prefill: float | None  # s for each token of the prompt
    steps: tuple[tuple[float, float], ...]
    seconds: float
    position: float
    prompt: int
    last: int


@dataclass(frozen=True)
class AnswerTimes:
    """Time of answers of one model. ``repeats`` has a row (prefill, level of a step) for each
    repeat, in s for each token; a step at position 0 takes the level, at ``p`` it is
    ``growth x p`` more.
    """

    timing: ModelTiming
    repeats: tuple[tuple[float, float], ...]
    growth: float

    @property
    def has_prefill(self) -> bool:
        """True if the time of a prompt is known."""
        return self.timing.prefill_tokens_per_second is not None

    def draws(self, count: int, seed: int) -> "NDArray[np.float64]":
        """Return draws of the mean of the repeats, a row (prefill, level) each."""
        import numpy as np

        from labctl.stats.bootstrap import draw_means

        drawn = draw_means(np.array(self.repeats, dtype=float), count, seed)
        found: NDArray[np.float64] = np.maximum(drawn, _LEAST_SHARE * self.mean())
        return found

    def mean(self) -> "NDArray[np.float64]":
        """Return the mean of the repeats as one row of :meth:`draws`."""
        import numpy as np

        found: NDArray[np.float64] = np.mean(self.repeats, axis=0, keepdims=True)
        return found

    def seconds(
        self,
        draws: "NDArray[np.float64]",
        prompt_tokens: "NDArray[np.float64]",
        tokens: "NDArray[np.float64]",
    ) -> "NDArray[np.float64]":
        """Return the time of each answer: a row for each draw, a column for each answer."""
        import numpy as np

        steps: NDArray[np.float64] = np.outer(draws[:, 0], prompt_tokens)
        steps += np.outer(draws[:, 1], tokens)
        # the k-th token, from 1, is at position prompt + k
        steps += self.growth * (tokens * prompt_tokens + tokens * (tokens + 1) / 2)
        return steps


def answer_times(model: str, trials: Iterable[TrialRecord], runs: Sequence[str]) -> AnswerTimes:
    """Return the times of one model. Raises ValueError if no good repeat has a time."""
    found = [
        (one, repeat)
        for one in good_trials(trials)
        if one.timing and (repeat := _repeat(one.timing))
    ]
    if not found:
        raise ValueError(f"no good repeat with a time per token of {model}")
    repeats = [repeat for _, repeat in found]
    growth = _growth(repeats)
    known = [one.prefill for one in repeats if one.prefill is not None]
    usual = mean(known) if known else 0.0
    rows = [
        (usual if one.prefill is None else one.prefill, one.seconds - growth * one.position)
        for one in repeats
    ]
    estimate = estimate_of([one.seconds for one in repeats])
    if estimate is None:
        raise ValueError(f"a time per token of {model} is below 0")
    timed = [trial for trial, _ in found]
    timing = ModelTiming(
        model=model,
        sha256=timed[0].model.sha256,
        runs=tuple(runs),
        repeats=len(repeats),
        board=", ".join(dict.fromkeys(one.board for one in timed)),
        execution=", ".join(dict.fromkeys(one.execution for one in timed)),
        token_seconds=estimate.value,
        interval=estimate.interval,
        growth_seconds=growth,
        prefill_tokens_per_second=1 / geometric_mean(known) if known else None,
        longest_prompt=max(one.prompt for one in repeats) or None,
        longest_position=max(one.last for one in repeats),
        joules_per_token=JOULES_PER_TOKEN.over_all(timed),
    )
    return AnswerTimes(timing, tuple(rows), growth)


def has_token_time(timing: TimingRecord) -> bool:
    """Return True if a trial has a time per token; False for a measurement of perplexity."""
    return _repeat(timing) is not None


def _repeat(timing: TimingRecord) -> _Repeat | None:
    if timing.tests:
        return _of_benchmark(timing)
    if timing.mean_ns is None:
        return None
    prompt = timing.prompt_tokens or 0
    generated = timing.generated_tokens or len(timing.token_ns) + 1
    prefill = None
    if timing.prompt_eval_ns and timing.prompt_tokens:
        prefill = timing.prompt_eval_ns / timing.prompt_tokens / 1e9
    seconds = timing.mean_ns / 1e9
    # The first token comes with the prompt; the first gap is before the second one.
    middle = prompt + (generated + 2) / 2
    steps: tuple[tuple[float, float], ...] = ((middle, seconds),)
    if len(timing.token_ns) == generated - 1 and not timing.merged_chunks:
        steps = tuple((prompt + 2 + k, gap / 1e9) for k, gap in enumerate(timing.token_ns))
    return _Repeat(prefill, steps, seconds, middle, prompt, prompt + generated)


def _of_benchmark(timing: TimingRecord) -> _Repeat | None:
    """Read the tests of a benchmark: prompts without a depth, generation at one or more depths."""
    prefills = [
        one
        for one in timing.tests
        if not one.generated_tokens and one.prompt_tokens and not one.depth
    ]
    generations = [one for one in timing.tests if one.generated_tokens and not one.prompt_tokens]
    if not generations:
        return None
    steps = tuple(
        (one.depth + (one.generated_tokens + 1) / 2, one.p50_ns / one.generated_tokens / 1e9)
        for one in generations
    )
    longest = max(prefills, key=lambda one: one.prompt_tokens, default=None)
    return _Repeat(
        prefill=longest.p50_ns / longest.prompt_tokens / 1e9 if longest else None,
        steps=steps,
        seconds=mean([seconds for _, seconds in steps]),
        position=mean([position for position, _ in steps]),
        prompt=longest.prompt_tokens if longest else 0,
        last=max(one.depth + one.generated_tokens for one in generations),
    )


def _growth(repeats: Sequence[_Repeat]) -> float:
    """Return the growth of a step's time per position: least squares within repeats.

    Never below 0: the cache only grows, so a negative slope means that the machine was slow at
    first.
    """
    products = squares = 0.0
    for one in repeats:
        if len(one.steps) < 2 or one.steps[-1][0] - one.steps[0][0] < _GAPS_FOR_GROWTH:
            continue
        middle = mean([position for position, _ in one.steps])
        products += sum((position - middle) * seconds for position, seconds in one.steps)
        squares += sum((position - middle) ** 2 for position, _ in one.steps)
    return max(0.0, products / squares) if squares else 0.0


def timing_notes(sets: Sequence[AnswerSet], times: Mapping[str, AnswerTimes]) -> list[str]:
    """Return notes on the timing of each model; ``times`` is by model."""
    notes: list[str] = []
    for name, one in times.items():
        timing = one.timing
        cells = [cell for answers in sets if answers.model == name for cell in answers.cells]
        prompt = _longest_prompt(cells)
        if timing.repeats == 1:
            notes.append(
                sentence("{name} was timed once: no interval includes its noise", name=name)
            )
        if not one.has_prefill:
            notes.append(
                sentence("{name}: prefill was not measured, so deadlines are unknown", name=name)
            )
        elif timing.longest_prompt and prompt > timing.longest_prompt:
            notes.append(
                sentence(
                    "{name}: prompts have up to {prompt} tokens, prefill was measured with"
                    " {longest}; its time is taken proportional",
                    name=name,
                    prompt=prompt,
                    longest=timing.longest_prompt,
                )
            )
        last = max((_last_position(cell) for cell in cells), default=0)
        if last > timing.longest_position:
            known = timing.longest_position
            if prompt:
                notes.append(
                    sentence(
                        "{name}: times are measured to position {known}, answers reach {last}:"
                        " measure with a prompt of {prompt} tokens and {tokens} tokens to avoid"
                        " extrapolation",
                        name=name,
                        known=known,
                        last=last,
                        prompt=prompt,
                        tokens=last - prompt,
                    )
                )
            else:
                notes.append(
                    sentence(
                        "{name}: times are measured to position {known}, answers reach {last}:"
                        " measure with {last} tokens to avoid extrapolation",
                        name=name,
                        known=known,
                        last=last,
                    )
                )
    return notes


def _longest_prompt(cells: Iterable[Answers]) -> int:
    known = [cell.prompt_tokens for cell in cells if cell.prompt_tokens is not None]
    return max((int(tokens.max(initial=0)) for tokens in known), default=0)


def _last_position(cell: Answers) -> int:
    """Return the last position of any answer, or of one with the whole limit if it is later."""
    prompts = cell.prompt_tokens
    if prompts is None or not len(prompts):
        return cell.budget or 0
    last = math.ceil(float(prompts.mean())) + (cell.budget or 0)
    if cell.tokens is not None:
        last = max(last, int((prompts + cell.tokens).max()))
    return last
