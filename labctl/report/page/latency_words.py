"""Recommendations of a latency match in the language of a report.

In English they are the sentences that the match gives; a Chinese report says the same of its facts.
"""

from labctl.compare.equal_latency.result import Choice, Crossing, Shift
from labctl.compare.equal_latency.words import seconds_text, share_text
from labctl.report.page.language import Language

_OPEN = "…"


def crossing_text(one: Crossing, words: Language) -> str:
    """Say which of two curves to use below and above."""
    if words.code == "en":
        return one.sentence
    start, end = seconds_text(one.start), seconds_text(one.end)
    match one.kind:
        case "unclear":
            return words(
                "{one} and {other}: no difference is shown from {start} to {end}.",
                one=one.faster, other=one.slower, start=start, end=end,
            )  # fmt: skip
        case "none":
            return words(
                "No crossing in range: {best} is better than {other} from {start} to {end}.",
                best=one.better_before, start=start, end=end,
                other=one.slower if one.better_before == one.faster else one.faster,
            )  # fmt: skip
        case "after":
            return words(
                "Use {best} up to {time}; later no difference is shown.",
                best=one.better_before, time=_time(one.low),
            )  # fmt: skip
        case "before":
            return words(
                "Use {best} from {time} on; before it no difference is shown.",
                best=one.better_after, time=_time(one.high),
            )  # fmt: skip
    return words(
        "Use {before} below about {time} and {after} above ({level} interval {low} to {high}).",
        before=one.better_before, after=one.better_after, time=_time(one.seconds), level="95%",
        low=_time(one.low), high=_time(one.high),
    )  # fmt: skip


def shift_text(one: Shift, words: Language) -> str:
    """Say how a crossing moves from one prompt to another."""
    if words.code == "en":
        return one.sentence
    low, high = (
        _OPEN if end is None else f"{'-' if end < 0 else '+'}{seconds_text(abs(end))}"
        for end in (one.low, one.high)
    )
    return words(
        "The crossing of {faster} and {slower} with {other} minus that with {prompt}: {time}"
        " ({level} interval {low} to {high}).",
        faster=one.faster, slower=one.slower, other=one.other, prompt=one.prompt,
        time=_OPEN if one.seconds is None
        else f"{'-' if one.seconds < 0 else '+'}{seconds_text(abs(one.seconds))}",
        level="95%", low=low, high=high,
    )  # fmt: skip


def choice_text(one: Choice, words: Language) -> str:
    """Say which model to use at a time."""
    if words.code == "en":
        return one.sentence
    time = seconds_text(one.seconds)
    measured = [c for c in one.candidates if not c.extrapolated]
    if not one.candidates:
        return words("Within {time}: no accuracy is known, as nothing was evaluated.", time=time)
    if not measured:
        return words(
            "Within {time}: every time is extrapolated, and nothing is recommended.", time=time
        )
    first, *rivals = measured
    if first.accuracy == 0:
        return words("Within {time}: no model has a right and complete answer.", time=time)
    said = [
        words("Within {time} use {best}: {share}.", time=time, best=one.best,
              share=share_text(first.accuracy))
    ]  # fmt: skip
    if one.shown:
        said.append(words("It is shown to be more than all others."))
    elif rivals:
        rival = f"{rivals[0].model}/{rivals[0].prompt}"
        said.append(
            words("It is not shown to be better than {rival} ({share}).", rival=rival,
                  share=share_text(rivals[0].accuracy))
        )  # fmt: skip
    if left := [f"{c.model}/{c.prompt}" for c in one.candidates if c.extrapolated]:
        said.append(words("Extrapolated there, and left out: {names}.", names=words.listed(left)))
    return words.joined(said)


def _time(seconds: float | None) -> str:
    return _OPEN if seconds is None else seconds_text(seconds)
