"""Sides of comparisons, made of figures in ms."""

from collections.abc import Sequence
from typing import Any

from records_made import run, timing, trial

from labctl.compare.sides import Side, run_sides


def sides_of(run_id: str, **values: Sequence[float]) -> list[Side]:
    """A run whose variants took turns, with the token times of each in ms."""
    names = list(values)
    trials = [
        trial(
            len(names) * round_ + place + 1,
            repeat=round_ + 1,
            variant=name,
            timing=timing([times[round_]], ttft_ns=None, prompt_eval_ns=None),
            comparability={"threads": 4},
        )
        for place, (name, times) in enumerate(values.items())
        for round_ in range(len(times))
    ]
    return run_sides(run(run_id, variants=tuple(names)), trials)


def side_of(run_id: str, values: Sequence[float], **changes: Any) -> Side:
    """A run of one variant, with the token times of its repeats in ms."""
    trials = [
        trial(
            number,
            repeat=number,
            timing=timing([value], ttft_ns=None, prompt_eval_ns=None),
            **{"comparability": {"threads": 4}, **changes},
        )
        for number, value in enumerate(values, 1)
    ]
    (side,) = run_sides(run(run_id, variants=(trials[0].variant,)), trials)
    return side
