"""Gains of a search: each setting over the default in the race, and the winners in their proof."""

from collections.abc import Iterator, Sequence

from labctl.compare.tuned import Tuned
from labctl.figures.trials import OBJECTIVES
from labctl.report.figures.figure import Figure, Missing, Row, Spec
from labctl.report.figures.marks import only, row_axis
from labctl.report.figures.measured import MeasuredRun
from labctl.report.page.language import Language
from labctl.stats.intervals import Interval

NAME = "gains"
_ROW = 40
#: Settings that are drawn: the best of the race.
_MOST_ROWS = 20


def gains(runs: Sequence[MeasuredRun], words: Language) -> list[Figure | Missing]:
    """Draw the gains of each search; an empty list without one."""
    return [
        _gains(run, run.tuned, number, words)
        for number, run in enumerate((run for run in runs if run.tuned), 1)
        if run.tuned is not None
    ]


def _gains(run: MeasuredRun, found: Tuned, number: int, words: Language) -> Figure | Missing:
    name = NAME if number == 1 else f"{NAME}-{run.short_id}"
    rows = list(_rows(found, words))
    title = words("Gains of the search")
    if not rows:
        return Missing(name, title, words("no setting has two rounds with the default"))
    shown = list(dict.fromkeys(str(row["series"]) for row in rows))
    caption = words(
        "Ratio of each setting to the default, as a gain, with its 95% interval in the race, which"
        " is no proof: the best of many looks too good. Filled: the proof, from fresh pairs alone."
    )
    sentences = [f"{row['series']}: {row['text']}" for row in rows]
    return Figure(
        name=name,
        title=title,
        caption=caption,
        alt=words("Gains over the default. {series}.", series=words.clauses(sentences)),
        spec=_spec(shown, words),
        rows=rows,
    )


def _rows(found: Tuned, words: Language) -> Iterator[Row]:
    """Yield the winners, and then the settings of the race, the best first."""
    for one in found.proofs:
        if one.row is not None and one.row.interval is not None:
            label = f"{one.setting}: {words.word(one.objective)}, {words('proof')}"
            yield _row("proof", label, one.row.interval)
    objective = found.record.objectives[0]
    sign = 1 if OBJECTIVES[objective].better == "higher" else -1
    raced = [(row.setting, row.gains[objective]) for row in found.rows if objective in row.gains]
    for setting, interval in sorted(raced, key=lambda one: -sign * one[1].mean)[:_MOST_ROWS]:
        yield _row("race", f"{setting}: {words.word(objective)}", interval)


def _row(kind: str, label: str, interval: Interval) -> Row:
    ends = (interval.mean, interval.mean, interval.mean) if interval.is_vague else (
        interval.mean, interval.low, interval.high)  # fmt: skip
    gain, low, high = (100 * (end - 1) for end in ends)
    text = f"{gain:+.1f}%" if interval.is_vague else f"{gain:+.1f}% ({low:.1f} – {high:.1f})"
    return {"kind": kind, "series": label, "gain": gain, "low": low, "high": high, "text": text}


def _spec(names: Sequence[str], words: Language) -> Spec:
    title = words("gain over the default, %")
    x: Spec = {
        "field": "gain",
        "type": "quantitative",
        "title": title,
        "axis": {"grid": True, "tickCount": 6},
    }
    y = row_axis("series", names, above=14)
    tooltip = [
        {"field": "series", "type": "nominal", "title": words("variant")},
        {"field": "text", "type": "nominal", "title": title},
    ]
    rule: Spec = {
        "mark": {"style": "line-0", "type": "rule", "strokeWidth": 3, "strokeCap": "round"},
        "encoding": {"x": {**x, "field": "low"}, "x2": {"field": "high"}, "y": y},
    }
    layers: list[Spec] = [rule]
    for kind, filled in (("race", False), ("proof", True)):
        mark: Spec = {"style": "line-0", "type": "point", "filled": filled, "size": 110}
        layers.append(
            {
                "transform": [only(kind)],
                "mark": {**mark, "opacity": 1},
                "encoding": {"x": x, "y": y, "tooltip": tooltip},
            }
        )
    label: Spec = {"type": "text", "baseline": "top", "dy": 8, "style": "label"}
    layers.append({"mark": label, "encoding": {"x": x, "y": y, "text": {"field": "text"}}})
    return {"height": _ROW * len(names), "layer": layers}
