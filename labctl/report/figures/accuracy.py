"""The accuracy of an evaluation over the token limit, and the lengths of its answers."""

from collections.abc import Iterator, Sequence

from labctl.errors import printable_line
from labctl.evaluation.accuracy import Accuracy, AccuracyTable
from labctl.report.figures.figure import Figure, Missing, Row, Spec
from labctl.report.figures.marks import only, row_axis, series_colour, series_shape
from labctl.report.figures.theme import MOST_SERIES
from labctl.report.names import short_names
from labctl.report.page.language import Language
from labctl.stats.describe import percentile

NAME = "accuracy"
LENGTHS = "lengths"
#: "No limit" is drawn beyond the largest limit, by this share of it.
_BEYOND = 0.2
#: Possible ends of the axis of shares.
_TOPS = (0.1, 0.25, 0.5, 1.0)
#: Distance between series at the same limit, as a share of the axis.
_APART = 0.008
_ROW = 46
_MOST_ROWS = 16


def evaluation_figures(table: AccuracyTable, words: Language) -> list[Figure | Missing]:
    """Draw the accuracy over the token limit, for each grader, and the answers' lengths."""
    return [
        *(_accuracy(table, grader, words) for grader in table.distinct_graders),
        _lengths(table, words),
    ]


def share_axis(title: str, rows: Sequence[Row]) -> Spec:
    """Return the vertical axis of shares, from 0 % to above the upper ends of the intervals."""
    highest = max((float(row["high"] or 0) for row in rows if row.get("high")), default=1.0)
    return {
        "type": "quantitative",
        "title": title,
        "scale": {"domain": [0, next(top for top in _TOPS if top >= highest)], "nice": False},
        "axis": {"format": ".0%", "tickCount": 5},
    }


def _accuracy(table: AccuracyTable, grader: str, words: Language) -> Figure | Missing:
    name = NAME if grader == table.graders[0] else f"{NAME}-{grader}"
    title = words("Accuracy over the limit of tokens ({grader})", grader=printable_line(grader))
    cells = [one for one in table.cells if one.grader == grader and one.total]
    if len({one.budget for one in cells}) < 2:
        return Missing(name, title, words("one limit of tokens alone; the table has its accuracy"))
    limits = sorted({one.budget for one in cells if one.budget is not None})
    without = limits[-1] * (1 + _BEYOND) if any(one.budget is None for one in cells) else None
    short = short_names(one.variant for one in cells)
    variants = list(short)
    shown = variants[:MOST_SERIES]
    step = (without or limits[-1]) * _APART
    rows: list[Row] = [
        row
        for number, variant in enumerate(shown)
        for one in cells
        if one.variant == variant
        for row in _point(
            one, short[variant], without, (number - (len(shown) - 1) / 2) * step, words
        )
    ]
    caption = words(
        "A mark is the share of right answers, its line the 95% interval over the questions"
        " (Wilson; several samples of a question count as one). All variants were asked the"
        " same questions: their differences are surer than the intervals look."
    )
    if len(shown) < len(variants):
        caption += words(
            " Shown: {shown} of {count} variants; the table has all.",
            shown=len(shown),
            count=len(variants),
        )
    sentences = [f"{row['series']}, {row['budget']}: {row['text']}" for row in rows]
    return Figure(
        name=name,
        title=title,
        caption=caption,
        alt=words("Right answers: {points}.", points=words.clauses(sentences)),
        spec=_spec([printable_line(short[one]) for one in shown], limits, without, rows, words),
        rows=rows,
    )


def _point(
    one: Accuracy, name: str, without: float | None, aside: float, words: Language
) -> Iterator[Row]:
    """Yield an accuracy's mark, shifted by ``aside`` so that intervals do not overlap."""
    found = one.interval
    if one.share is None or found is None:
        return
    limit = without if one.budget is None else one.budget
    assert limit is not None
    yield {
        "kind": "limit" if one.budget is not None else "none",
        "series": printable_line(name),
        "at": float(f"{limit + aside:.6g}"),
        "budget": words("no limit") if one.budget is None else str(one.budget),
        "share": float(f"{one.share:.6g}"),
        "low": float(f"{found.low:.6g}"),
        "high": float(f"{found.high:.6g}"),
        "text": words(
            "{right} of {total}, {share}",
            right=one.right,
            total=one.total,
            share=f"{one.share:.1%}",
        ),
    }


def _spec(
    names: Sequence[str],
    limits: Sequence[int],
    without: float | None,
    rows: Sequence[Row],
    words: Language,
) -> Spec:
    marks = [*limits, *([without] if without else [])]
    axis: Spec = {"values": marks, "grid": False, "labelOverlap": "greedy"}
    if without:
        axis["labelExpr"] = f"datum.value > {limits[-1]} ? '{words('no limit')}' : datum.label"
    x: Spec = {
        "field": "at",
        "type": "quantitative",
        "title": words("limit of generated tokens"),
        "scale": {"zero": False, "nice": False, "padding": 28},
        "axis": axis,
    }
    y: Spec = {"field": "share", **share_axis(words("right answers"), rows)}
    colour = series_colour(names, legend="shape")
    tooltip = [
        {"field": "series", "type": "nominal", "title": words("variant")},
        {"field": "budget", "type": "nominal", "title": words("limit of generated tokens")},
        {"field": "text", "type": "nominal", "title": words("right answers")},
    ]
    return {
        "height": 300,
        "layer": [
            {
                "mark": {"type": "rule", "strokeWidth": 1.5, "opacity": 0.55},
                "encoding": {
                    "x": x,
                    "y": {**y, "field": "low"},
                    "y2": {"field": "high"},
                    "color": colour,
                },
            },
            {
                "transform": [only("limit")],
                "mark": {"type": "line", "strokeWidth": 1.6},
                "encoding": {"x": x, "y": y, "color": colour},
            },
            {
                "mark": {"type": "point", "filled": True, "size": 64, "opacity": 1},
                "encoding": {
                    "x": x,
                    "y": y,
                    "color": colour,
                    "shape": series_shape(names),
                    "tooltip": tooltip,
                },
            },
        ],
    }


def _lengths(table: AccuracyTable, words: Language) -> Figure | Missing:
    """Draw the lengths of the answers of each variant at each limit."""
    grader = table.graders[0] if table.graders else ""
    cells = [one for one in table.cells if one.grader == grader and one.tokens]
    if not cells:
        return Missing(
            LENGTHS, words("Lengths of the answers"), words("no answer has a count of its tokens")
        )
    if len(cells) > _MOST_ROWS:  # only the largest limit shows the full length of answers
        cells = [one for one in cells if one.budget == table.budgets[-1]][:_MOST_ROWS] or cells[:1]
    short = short_names(one.variant for one in cells)
    rows: list[Row] = [row for one in cells for row in _length(one, short[one.variant], words)]
    names = [str(row["series"]) for row in rows]
    sentences = [f"{row['series']}: {row['text']}" for row in rows]
    return Figure(
        name=LENGTHS,
        title=words("Lengths of the answers"),
        caption=words(
            "Thin line: shortest to longest answer; thick line: 10th to 90th percentile; mark:"
            " median. A red stroke is the limit: answers that reach it were cut."
        ),
        alt=words("Tokens of an answer: {lengths}.", lengths=words.clauses(sentences)),
        spec=_length_spec(names, words),
        rows=rows,
    )


def _length(one: Accuracy, name: str, words: Language) -> Iterator[Row]:
    low, middle, high = (percentile(one.tokens, at) for at in (10, 50, 90))
    budget = words("no limit") if one.budget is None else str(one.budget)
    yield {
        "series": f"{printable_line(name)}, {budget}",
        "least": min(one.tokens),
        "low": round(low),
        "tokens": round(middle),
        "high": round(high),
        "most": max(one.tokens),
        "limit": one.budget,
        "text": words(
            "10% below {low}, median {middle}, 90% below {high}; {cut} cut",
            low=round(low),
            middle=round(middle),
            high=round(high),
            cut=one.cut,
        ),
    }


def _length_spec(names: Sequence[str], words: Language) -> Spec:
    x: Spec = {
        "field": "tokens",
        "type": "quantitative",
        "title": words("tokens of an answer"),
        "scale": {"zero": True},
        "axis": {"tickCount": 6, "grid": True},
    }
    y = row_axis("series", names, above=14)
    tooltip = [
        {"field": "series", "type": "nominal", "title": words("variant")},
        {"field": "text", "type": "nominal", "title": words("tokens of an answer")},
    ]
    mark: Spec = {"style": "line-0"}
    return {
        "height": _ROW * len(names),
        "layer": [
            {
                "mark": {**mark, "type": "rule", "strokeWidth": 1.2},
                "encoding": {"x": {**x, "field": "least"}, "x2": {"field": "most"}, "y": y},
            },
            {
                "mark": {**mark, "type": "rule", "strokeWidth": 6, "strokeCap": "round"},
                "encoding": {"x": {**x, "field": "low"}, "x2": {"field": "high"}, "y": y},
            },
            {
                "mark": {"type": "point", "filled": True, "size": 90, "style": "mean"},
                "encoding": {"x": x, "y": y, "tooltip": tooltip},
            },
            {
                "transform": [{"filter": {"field": "limit", "valid": True}}],
                "mark": {"type": "tick", "style": "alarm", "thickness": 2, "size": 20},
                "encoding": {"x": {**x, "field": "limit"}, "y": y},
            },
        ],
    }
