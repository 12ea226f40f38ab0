"""Shares of the bounds: the share of a token's time that each resource alone would need."""

from collections.abc import Iterator, Sequence

from labctl.records.board import Execution
from labctl.records.trial import TrialRecord
from labctl.report.figures.figure import Figure, Missing, Row, Spec
from labctl.report.figures.marks import left_out, only, row_axis
from labctl.report.figures.measured import MeasuredRun, Series, all_series, distinguishable
from labctl.report.page.language import Language
from labctl.stats.describe import median

NAME = "bounds"
_KINDS = {"storage": "storage", "dram": "DRAM", "compute": "arithmetic"}
#: Pixels of a bar, and of the name above a group of bars.
_BAR, _NAME = 20, 26
_MOST_ROWS = 16
#: A bar above this share has room for its name.
_INSIDE = 0.5


def bound_shares(runs: Sequence[MeasuredRun], words: Language) -> Figure | Missing:
    """Draw the share of each bound in the time of a token."""
    found = [one for one in all_series(runs) if any(map(_has_shares, one.trials))]
    if not found:
        emulated = any(run.run.facts.execution is not Execution.BOARD for run in runs)
        reason = (
            "not measured on a board: its bounds do not apply"
            if emulated
            else "no rate of this board was known at the time of the run: `labctl boards probe`"
            " measures them"
        )
        return Missing(NAME, words("Shares of the bounds"), words(reason))
    shown = distinguishable(found, _MOST_ROWS)
    rows: list[Row] = [row for one in shown for row in _bars(one, words)]
    kinds = [kind for kind in _KINDS if any(row["bound"] == kind for row in rows)]
    caption = words(
        "The part of a token's time that each resource alone would need at its measured rate."
        " Near 100%: that resource holds the variant. None near: something else does."
    )
    caption += left_out(shown, found, words)
    sentences = [f"{row['series']}: {row['text']}" for row in rows]
    return Figure(
        name=NAME,
        title=words("Shares of the bounds"),
        caption=caption,
        alt=words("Bars of the share of each bound. {series}.", series=words.clauses(sentences)),
        spec=_spec([one.label for one in shown], kinds, rows, words),
        rows=rows,
    )


def _has_shares(trial: TrialRecord) -> bool:
    """Return True if all bounds are known; an older record has only the nearest bound."""
    return trial.bound is not None and bool(trial.bound.shares)


def _bars(one: Series, words: Language) -> Iterator[Row]:
    bounds = [trial.bound for trial in one.trials if trial.bound]
    for kind, name in _KINDS.items():
        shares = [bound.shares[kind] for bound in bounds if kind in bound.shares]
        if shares:
            share = median(shares)
            text = f"{words(name)} {share:.0%}"
            yield {
                "kind": "bar",
                "series": one.label,
                "bound": kind,
                "share": float(f"{share:.4g}"),
                "text": text,
            }


def _spec(names: Sequence[str], kinds: Sequence[str], rows: Sequence[Row], words: Language) -> Spec:
    top = max(1.0, *(float(row["share"] or 0) for row in rows))
    x: Spec = {
        "field": "share",
        "type": "quantitative",
        "title": words("share of the time per token"),
        "scale": {"domain": [0, top * 1.04], "nice": False},
        "axis": {"format": ".0%", "values": [0, 0.25, 0.5, 0.75, 1], "grid": True},
    }
    bars = len(kinds) * _BAR
    step = bars + _NAME
    y = row_axis("series", names, above=bars / 2 + _NAME / 3)
    y["scale"] |= {"paddingInner": _NAME / step, "paddingOuter": _NAME / step}
    lane: Spec = {
        "field": "bound",
        "type": "nominal",
        "scale": {"domain": list(kinds), "paddingInner": 0.12},
    }
    colour: Spec = {
        "field": "bound",
        "type": "nominal",
        "scale": {"domain": list(_KINDS), "range": "category"},
        "legend": None,
    }
    tooltip = [
        {"field": "series", "type": "nominal", "title": words("variant")},
        {"field": "text", "type": "nominal", "title": words("share of the time per token")},
    ]
    encoding: Spec = {"x": x, "y": y, "yOffset": lane}

    def label(which: Spec, **mark: object) -> Spec:
        return {
            "transform": [{"filter": {"field": "share", **which}}],
            "mark": {"type": "text", **mark},
            "encoding": {**encoding, "text": {"field": "text", "type": "nominal"}},
        }

    return {
        "height": len(names) * step + _NAME,
        "layer": [
            {
                "transform": [only("bar")],
                "mark": {"type": "bar", "cornerRadiusEnd": 2},
                "encoding": {**encoding, "color": colour, "tooltip": tooltip},
            },
            {
                "mark": {"type": "rule", "style": "reference"},
                "encoding": {"x": {"datum": 1, "type": "quantitative"}},
            },
            label({"lte": _INSIDE}, align="left", dx=6, style="label"),
            label({"gt": _INSIDE}, align="right", dx=-6, style="on-mark-label"),
        ],
    }
