"""Sentences of a latency match."""

from collections.abc import Sequence

from labctl.compare.equal_latency.crossings import Located
from labctl.compare.equal_latency.result import Axis, Candidate, RescaledGrid
from labctl.stats.intervals import Interval
from labctl.units import digits, duration

_IN = {"budget": "budgets", "deadline": "deadlines"}


def seconds_text(seconds: float) -> str:
    """Return ``40.2 s``, ``12 min``."""
    return duration(seconds * 1e9) if seconds else "0 s"


def share_text(share: float) -> str:
    """Return ``51.6 %``."""
    return f"{100 * share:.1f}%"


def accuracy_text(found: Interval) -> str:
    """Return ``51.6 % (49.0-54.2)``."""
    return f"{share_text(found.mean)} ({100 * found.low:.1f}-{100 * found.high:.1f})"


def interval_text(low: float | None, high: float | None) -> str:
    """Return ``35.1 s to 47 s``, ``after 40 s``, ``before 12 s``."""
    if low is not None and high is not None:
        return f"{seconds_text(low)} to {seconds_text(high)}"
    if low is not None:
        return f"after {seconds_text(low)}"
    return f"before {seconds_text(high)}" if high is not None else "open"


def crossing_sentence(
    axis: Axis, found: Located, faster: str, slower: str, ends: tuple[float, float]
) -> str:
    """Name the curve to use before and after the crossing, as far as it was shown."""
    span = f"from {seconds_text(ends[0])} to {seconds_text(ends[1])}"
    best = {-1: faster, 1: slower}
    match found.kind:
        case "unclear":
            return f"{faster} and {slower}: no difference is shown {span}."
        case "none":
            other = slower if found.before < 0 else faster
            return f"No crossing in range: {best[found.before]} is better than {other} {span}."
        case "after" if found.low is not None:
            return (
                f"Use {best[found.before]} for {_IN[axis]} up to {seconds_text(found.low)}; later"
                " no difference is shown: a crossing, if there is one, comes after that."
            )
        case "before" if found.high is not None:
            return (
                f"Use {best[found.after]} for {_IN[axis]} from {seconds_text(found.high)} on;"
                " before it no difference is shown: a crossing, if there is one, comes earlier."
            )
    at = f"about {seconds_text(found.seconds)}" if found.seconds is not None else "a time"
    return (
        f"Use {best[found.before]} for {_IN[axis]} below {at} and {best[found.after]} above"
        f" (95% interval {interval_text(found.low, found.high)})."
    )


class Sentence(str):
    """An English sentence that keeps its parts, so that a report can translate it."""

    template: str
    values: dict[str, object]


def sentence(template: str, /, **values: object) -> Sentence:
    """Put values into a template, as ``str.format``."""
    made = Sentence(template.format(**values))
    made.template, made.values = template, values
    return made


def apart_sentence(axis: Axis, one: str, other: str) -> Sentence:
    """Say why two curves are not compared."""
    if axis == "deadline":
        return sentence(
            "{one} and {other} have no common measured time on the axis of deadlines:"
            " measure more tokens",
            one=one,
            other=other,
        )
    return sentence(
        "{one} and {other} have no common measured time on the axis of budgets:"
        " measure more tokens",
        one=one,
        other=other,
    )


def early_end_sentence(name: str, seconds: float) -> Sentence:
    """Say at which time the limits of a curve end before the other's."""
    return sentence(
        "limits of {name} end at {time}, and budgets are compared only up to there: evaluate"
        " larger ones to see more",
        name=name,
        time=seconds_text(seconds),
    )


def choice_sentence(
    axis: Axis, seconds: float, candidates: Sequence[Candidate], best: str | None, *, shown: bool
) -> str:
    """Say which model to use at a deadline."""
    at = f"At a {'deadline' if axis == 'deadline' else 'budget time'} of {seconds_text(seconds)}"
    if not candidates:
        return f"{at} no accuracy is known: it is outside of what was evaluated."
    if best is None:
        return (
            f"{at} every time is extrapolated: nothing is recommended. The notes say what to"
            " measure."
        )
    sound = [one for one in candidates if not one.extrapolated]
    first, *rivals = sound
    if first.accuracy == 0:
        return f"{at} no model has a right and complete answer."
    text = f"{at} use {best}: {share_text(first.accuracy)}"
    if not rivals:
        text = f"{text}; nothing else can be compared there"
    elif shown:
        text = f"{text}, shown to be more than all others"
    else:
        text = (
            f"{text}, but it is not shown to be better than {rivals[0].model}/{rivals[0].prompt}"
            f" ({share_text(rivals[0].accuracy)})"
        )
    left = [f"{one.model}/{one.prompt}" for one in candidates if one.extrapolated]
    return f"{text}. Extrapolated there, and left out: {', '.join(left)}." if left else f"{text}."


def shift_sentence(
    prompt: str, other: str, slower: str, ends: tuple[float | None, float | None], seconds: float
) -> str:
    """Say how a crossing moves from one prompt to another."""
    low, high = ends
    word = "earlier" if seconds < 0 else "later"
    shown = (low is not None and low > 0) or (high is not None and high < 0)
    span = (
        f"{_signed(low) if low is not None else 'open'} to"
        f" {_signed(high) if high is not None else 'open'}"
    )
    text = (
        f"With {other} {slower} overtakes {seconds_text(abs(seconds))} {word} than with {prompt}"
        f" (95% interval {span})"
    )
    return f"{text}." if shown else f"{text}; not shown."


def _signed(seconds: float) -> str:
    return f"{'-' if seconds < 0 else '+'}{seconds_text(abs(seconds))}"


def ratio_text(grid: RescaledGrid) -> str:
    """Return ``q8_0 takes 2.735 times as long a token as q2_k (49.73 / 18.18 s)``."""
    times = (digits(one, 4) for one in (grid.slower_token_seconds, grid.faster_token_seconds))
    return (
        f"{grid.slower} takes {grid.ratio:.3f} times as long a token as {grid.faster}"
        f" ({' / '.join(times)} s)"
    )
