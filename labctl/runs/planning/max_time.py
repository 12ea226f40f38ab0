"""Cut a measurement to its recipe's ``max_time``, before anything runs.

When a prediction says that the trials do not fit, they are cut down in this order, and every cut is
reported: warm-ups go first, then repeats down to one, then tokens down to ``min_tokens`` (not at
all without it). If they still do not fit, the run is refused. While it runs,
:class:`labctl.runs.planning.time_limits.RunClock` holds it to ``max_time``.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from labctl.config.recipe_parts import Variant
from labctl.errors import ConfigError

#: Minimum seconds of one trial of a variant with this number of tokens (None: it generates none),
#: with a warm-up pass or without; None = no data for a prediction.
PredictTrial = Callable[[Variant, int | None, bool], float | None]
#: Share of max_time reserved for moving files and for optimistic predictions.
RESERVE = 0.1


@dataclass(frozen=True)
class Amount:
    """Size of a measurement: repeats, warm-ups and tokens."""

    repeats: int
    warm_up_trials: int
    tokens: Mapping[str, int]  # by variant; what generates no tokens is not in it
    most_repeats: int = 0  # more, above ``repeats``, are optional
    warm_up_pass: bool = True  # the program's own: one pass over all weights before the prompt


def cut_to_max_time(
    variants: Sequence[Variant],
    wanted: Amount,
    max_seconds: float,
    min_tokens: int | None,
    predict: PredictTrial,
) -> tuple[Amount, float | None, list[str]]:
    """Return the amount that fits, its predicted time in s if known, and a note for each cut.

    Raises ConfigError if even the smallest amount does not fit.
    """
    limit = max_seconds * (1 - RESERVE)

    def seconds(amount: Amount) -> float | None:
        times = [predict(v, amount.tokens.get(v.slug), amount.warm_up_pass) for v in variants]
        rounds = amount.repeats + amount.warm_up_trials
        return None if None in times else sum(t for t in times if t is not None) * rounds

    total = seconds(wanted)
    if total is None or total <= limit:
        return wanted, total, []
    limits = f"predicted to take {_span(total)}, max_time is {_span(max_seconds)}"
    notes = [f"as written the trials are {limits}"]
    amount = replace(wanted, warm_up_trials=0, warm_up_pass=False)
    if seconds(amount) != total:
        notes[0] += ": no warm-up"
    total = seconds(amount)
    if total is not None and total > limit and amount.repeats > 1:
        fitting = int(limit // (total / amount.repeats))
        amount = replace(amount, repeats=max(1, fitting), most_repeats=0)
        notes.append(f"{amount.repeats} of {wanted.repeats} repeats")
        total = seconds(amount)
    most = max(wanted.tokens.values(), default=0)
    if total is not None and total > limit:
        for tokens in range(most - 1, (min_tokens or most) - 1, -1):
            amount = replace(
                amount, tokens={slug: min(tokens, n) for slug, n in wanted.tokens.items()}
            )
            total = seconds(amount)
            if total is not None and total <= limit:
                notes.append(f"{tokens} of {most} tokens")
                break
    if total is not None and total > limit:
        needed = math.ceil(total / (1 - RESERVE) / 60)
        least = f", of {min(min_tokens or most, most)} tokens," if most else ""
        raise ConfigError(
            f"one trial a variant{least} is predicted to take {_span(total)};"
            f" max_time is {_span(max_seconds)}",
            hint=f"raise max_time to {needed}m or more, or measure fewer variants",
        )
    return amount, total, notes


def _span(seconds: float) -> str:
    """``45 s``, ``12 min``, ``3.5 h``."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 2 * 3600 else f"{seconds / 3600:.1f} h"
