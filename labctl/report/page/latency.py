"""A report on a latency match: the model to use for each time.

In English, the recommendations are the sentences of the match; a Chinese report makes the same
sentences from the facts.
"""

from collections.abc import Iterator, Sequence

from labctl.compare.equal_latency.result import (
    Axis,
    Choice,
    Crossing,
    LatencyMatch,
    ModelTiming,
    PointAtBudget,
    Shift,
)
from labctl.compare.equal_latency.words import seconds_text, share_text
from labctl.report.accuracy_table import limit_text
from labctl.report.figures.figure import Figure, Missing
from labctl.report.figures.latency import AXES, latency_figures
from labctl.report.page.content import Report
from labctl.report.page.language import Language
from labctl.report.table import ABSENT, Cell, Column, Table, quantity
from labctl.units import duration, with_unit

_OPEN = "…"


def _crossing_text(one: Crossing, words: Language) -> str:
    """Return a sentence: which of two curves to use below and above a crossing."""
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


def _shift_text(one: Shift, words: Language) -> str:
    """Return a sentence: how a crossing moves from one prompt to another."""
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


def _choice_text(one: Choice, words: Language) -> str:
    """Return a sentence: which model to use at a time."""
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
        said.append(words("Extrapolated there, and left out: {names}.", names=words.some(left)))
    return words.joined(said)


def _time(seconds: float | None) -> str:
    return _OPEN if seconds is None else seconds_text(seconds)


_AXIS = {"budget": "Time of the limit", "deadline": "Deadline"}


def latency_report(found: LatencyMatch, words: Language) -> Report:
    """Return the report on a latency match."""
    drawn = latency_figures(found, words)
    return Report(
        title=words("Accuracy at equal latency"),
        about=_about(found, words),
        marks=[words.sentence(one) for one in found.heading],
        answers=[
            *(_choice_text(one, words) for one in found.choices),
            *(_crossing_text(one, words) for one in found.crossings),
        ]
        or [words("No curves can be compared: see the notes below.")],
        tables=list(_tables(found, words)),
        figures=[one for one in drawn if isinstance(one, Figure)],
        missing=[one for one in drawn if isinstance(one, Missing)],
        runs=(),
        damaged=(),
        method=[*map(words.sentence, found.notes), *_method(words)],
    )


def _about(found: LatencyMatch, words: Language) -> dict[str, str]:
    about = {
        words("Models"): words.some(one.model for one in found.timings),
        words("Evaluations"): words.some(found.evaluations) or "–",
        words("Timing runs"): words.some(run for one in found.timings for run in one.runs) or "–",
        words("Board"): words.some(one.board for one in found.timings) or "–",
    }
    if found.grader:
        about[words("Grader")] = found.grader
    if found.questions:
        about[words("Common questions")] = str(found.questions)
    return about


def _tables(found: LatencyMatch, words: Language) -> Iterator[Table]:
    if found.timings:
        yield _timings(found.timings, words)
    for grid in found.grids:
        columns = (
            Column(words("Tokens of {model}", model=grid.faster), numeric=True),
            Column(words("Tokens of {model}", model=grid.slower), numeric=True),
            Column(words("Time"), numeric=True),
        )
        rows = [
            [
                quantity(row.faster_tokens, "count"),
                quantity(row.slower_tokens, "count"),
                quantity(row.seconds * 1e9, "ns"),
            ]
            for row in grid.rows
        ]
        caption = words("Limits of equal time: ratio {ratio}", ratio=f"{grid.ratio:.3f}")
        yield Table(caption, columns, rows)
    for axis in AXES:
        if crossings := [one for one in found.crossings if one.axis == axis]:
            yield _crossings(crossings, axis, words)
    if found.shifts:
        rows = [[Cell(_shift_text(one, words), recorded=True)] for one in found.shifts]
        yield Table(words("From prompt to prompt"), (Column(words("Shift"), wide=True),), rows)
    if found.points:
        yield _points(found.points, words)
    if found.quoted:
        yield _quoted(found, words)


def _timings(timings: Sequence[ModelTiming], words: Language) -> Table:
    columns = (
        Column(words("Model")),
        Column(words("Board")),
        Column(words("Time per token"), numeric=True),
        Column(words("{level} interval", level="95%"), numeric=True),
        Column(words("Prefill"), numeric=True),
        Column(words("Measured to token"), numeric=True),
        Column(words("Trials"), numeric=True),
    )
    rows = []
    for one in timings:
        ends = ABSENT
        if one.interval is not None and not one.interval.is_vague:
            low, high = (duration(end * 1e9) for end in (one.interval.low, one.interval.high))
            ends = Cell(f"{low} – {high}", one.interval.low)
        prefill = one.prefill_tokens_per_second
        rows.append(
            [
                Cell(one.model, recorded=True),
                Cell(
                    one.board,
                    recorded=True,
                    mark="" if one.execution == "board" else one.execution.upper(),
                ),
                quantity(one.token_seconds * 1e9, "ns"),
                ends,
                ABSENT if prefill is None else Cell(f"{prefill:.3g} tokens/s", prefill),
                quantity(one.longest_position, "count"),
                quantity(one.repeats, "count"),
            ]
        )
    return Table(words("Time of the models"), columns, rows)


def _crossings(crossings: Sequence[Crossing], axis: Axis, words: Language) -> Table:
    columns = (
        Column(words("Faster")),
        Column(words("Slower")),
        Column(words("Crossing"), numeric=True),
        Column(words("{level} interval", level="95%"), numeric=True),
        Column(words("Meaning"), wide=True),
    )
    rows = []
    for one in crossings:
        ends = [None if end is None else duration(end * 1e9) for end in (one.low, one.high)]
        shown = " – ".join(end or "…" for end in ends) if any(ends) else "–"
        rows.append(
            [
                Cell(one.faster, recorded=True),
                Cell(one.slower, recorded=True),
                quantity(None if one.seconds is None else one.seconds * 1e9, "ns"),
                Cell(shown, one.low),
                Cell(_crossing_text(one, words), recorded=True),
            ]
        )
    return Table(words("Crossings: {axis}", axis=words(_AXIS[axis])), columns, rows)


def _points(points: Sequence[PointAtBudget], words: Language) -> Table:
    columns = (
        Column(words("Model")),
        Column(words("Prompt")),
        Column(words("Limit")),
        Column(words("Accuracy"), numeric=True),
        Column(words("Time of the limit"), numeric=True),
        Column(words("Time of an answer"), numeric=True, tip=words("Mean of all answers.")),
        Column(words("Right per kJ"), numeric=True),
        Column(words("Pareto front"), tip=words("No other point is as right in less time.")),
    )
    rows = []
    for one in points:
        share = one.accuracy
        ns = (None if s is None else s * 1e9 for s in (one.budget_seconds, one.answer_seconds))
        per_joule = one.right_per_joule
        rows.append(
            [
                Cell(one.model, recorded=True),
                Cell(one.prompt, recorded=True),
                Cell(limit_text(one.budget, words), one.budget),
                Cell(
                    f"{share.mean * 100:.1f}% ({share.low * 100:.1f} – {share.high * 100:.1f})",
                    share.mean,
                ),
                *(quantity(time, "ns") for time in ns),
                ABSENT if per_joule is None else Cell(f"{1000 * per_joule:.3g} /kJ", per_joule),
                Cell(words("extrapolated") if one.extrapolated else "●" if one.on_front else ""),
            ]
        )
    return Table(words("Accuracy and time"), columns, rows)


def _quoted(found: LatencyMatch, words: Language) -> Table:
    columns = (
        Column(words("Quoted")),
        Column(words("Model")),
        Column(words("Value"), numeric=True),
        Column(words("Source"), wide=True),
    )
    rows = [
        [
            Cell(one.name, recorded=True),
            Cell(" ".join(filter(None, (one.model, one.quantization))), recorded=True),
            Cell(with_unit(one.value, one.unit), one.value),
            Cell(one.source, recorded=True),
        ]
        for one in found.quoted
    ]
    note = words("Published figures; nothing is computed from them, and no point is made up.")
    return Table(words("Published figures"), columns, rows, note)


def _method(words: Language) -> list[str]:
    return [
        words(
            "Crossing: a paired bootstrap over the questions, which all models and prompts share,"
            " and over the repeats of the timing runs. Its interval may be open; no recommendation"
            " rests on extrapolated times."
        )
    ]
