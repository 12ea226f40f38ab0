"""A latency match for people and machines: sentences, tables, JSON, CSV."""

import io
import json
from collections.abc import Iterator, Sequence

from rich.console import Console

from labctl.compare.equal_latency.result import Axis, LatencyMatch, PointAtBudget
from labctl.compare.equal_latency.words import (
    accuracy_text,
    interval_text,
    ratio_text,
    seconds_text,
    share_text,
)
from labctl.report.console import plain, print_lines, print_table
from labctl.report.rows import rows_csv
from labctl.units import digits, plus_minus, with_unit

_AXES: dict[Axis, str] = {
    "budget": "Budget time (limit of tokens x mean time per token)",
    "deadline": "Deadline (right and complete in time: prefill of the prompt + own tokens)",
}
_CROSSINGS = ("faster", "slower", "result", ">crossing", ">95% interval", ">compared")
_POINTS = (
    "model/prompt", ">limit", ">budget time", ">mean answer", "accuracy (95%)", "Pareto", "",
)  # fmt: skip
_COLUMNS = (
    "heading", "axis", "model", "prompt", "states_budget", "budget", "seconds", "accuracy", "low",
    "high", "extrapolated",
)  # fmt: skip
_METHOD = (
    "Intervals (95%) are over questions, all samples of one together, and repeats of the timing.",
    "The model is loaded before. Nothing extrapolated is in a recommendation.",
)
_WIDTH = 200


def print_latency_match(console: Console, found: LatencyMatch) -> None:
    """Print the recommendations, then the tables of each axis with their notes."""
    print_lines(console, [f"[bold yellow]{plain(line)}[/]" for line in found.heading])
    print_lines(console, [f"[bold]{plain(one.sentence)}[/]" for one in found.choices])
    for axis, title in _AXES.items():
        if lines := _sentences(found, axis):
            print_lines(console, ["", f"[bold]{plain(title)}[/]", *map(plain, lines)])
            rows = list(_crossing_rows(found, axis))
            print_table(console, _CROSSINGS, rows)
    _print_points(console, found)
    _print_times(console, found)
    _print_quoted(console, found)
    print_lines(console, [f"[dim]{plain(line)}[/]" for line in (*_method(found), *found.notes)])


def latency_match_text(found: LatencyMatch) -> str:
    """Return the latency match as text for a file."""
    console = Console(file=io.StringIO(), width=_WIDTH, color_system=None, emoji=False)
    print_latency_match(console, found)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def latency_match_json(found: LatencyMatch) -> str:
    """Return the latency match as JSON: times in s, accuracies from 0 to 1, null for open ends."""
    return json.dumps(found.document(), indent=2, ensure_ascii=False) + "\n"


def latency_match_csv(found: LatencyMatch) -> str:
    """Return a CSV line for each point of each curve; the heading is in every line."""
    heading = "; ".join(found.heading)
    points = (
        (
            heading, curve.axis, curve.model, curve.prompt, curve.states_budget, one.budget,
            one.seconds, one.accuracy, one.low, one.high, one.extrapolated,
        )
        for curve in found.curves
        for one in curve.points
    )  # fmt: skip
    return rows_csv((dict(zip(_COLUMNS, point, strict=True)) for point in points), _COLUMNS)


def _sentences(found: LatencyMatch, axis: Axis) -> list[str]:
    crossings = [one.sentence for one in found.crossings if one.axis == axis]
    return crossings + [one.sentence for one in found.shifts if one.axis == axis]


def _crossing_rows(found: LatencyMatch, axis: Axis) -> Iterator[tuple[str, ...]]:
    for one in found.crossings:
        if one.axis == axis:
            is_open = one.kind in {"none", "unclear"}
            yield (
                one.faster,
                one.slower,
                {"none": "no crossing", "unclear": "no difference shown"}.get(one.kind, one.kind),
                "-" if one.seconds is None else seconds_text(one.seconds),
                "-" if is_open else interval_text(one.low, one.high),
                f"{seconds_text(one.start)} to {seconds_text(one.end)}",
            )


def _print_points(console: Console, found: LatencyMatch) -> None:
    if not found.points:
        return
    headings = list(_POINTS)
    has_energy = any(one.joules is not None for one in found.points)
    if has_energy:
        headings[-1:] = [">energy", ">right per kJ", ""]
    rows = [_point_row(one, has_energy=has_energy) for one in found.points]
    title = f"Accuracy of {found.questions} questions by grader {found.grader}"
    print_lines(console, ["", f"[bold]{plain(title)}[/]"])
    print_table(console, headings, rows)


def _point_row(one: PointAtBudget, *, has_energy: bool) -> list[str]:
    energy = []
    if has_energy:
        energy = [
            "-" if one.joules is None else f"{digits(one.joules)} J",
            "-" if one.right_per_joule is None else digits(1000 * one.right_per_joule),
        ]
    return [
        f"{one.model}/{one.prompt}",
        "no limit" if one.budget is None else str(one.budget),
        "-" if one.budget_seconds is None else seconds_text(one.budget_seconds),
        "-" if one.answer_seconds is None else seconds_text(one.answer_seconds),
        accuracy_text(one.accuracy),
        "yes" if one.on_front else "",
        *energy,
        "extrapolated" if one.extrapolated else "",
    ]


def _print_times(console: Console, found: LatencyMatch) -> None:
    if found.timings:
        rows = [
            [
                one.model,
                seconds_text(one.token_seconds),
                "-" if one.interval is None or one.interval.is_vague
                else plus_minus(one.token_seconds, one.interval.low, one.interval.high),
                str(one.repeats),
                "-" if one.prefill_tokens_per_second is None
                else f"{digits(one.prefill_tokens_per_second)} tokens/s",
                str(one.longest_position),
                f"{one.board} ({one.execution})",
                ", ".join(one.runs),
            ]
            for one in found.timings
        ]  # fmt: skip
        print_lines(console, ["", "[bold]Times[/]"])
        headings = ("model", ">per token", ">95%", ">repeats", ">prefill", ">measured to position",
                    "board", "runs")  # fmt: skip
        print_table(console, headings, rows)
    for grid in found.grids:
        print_lines(console, ["", f"[bold]Limits of the same time: {plain(ratio_text(grid))}[/]"])
        rows = [
            [str(row.faster_tokens), str(row.slower_tokens), seconds_text(row.seconds)]
            for row in grid.rows
        ]
        print_table(console, (f"{grid.faster}, tokens", f">{grid.slower}, tokens", ">time"), rows)


def _print_quoted(console: Console, found: LatencyMatch) -> None:
    if not found.quoted:
        return
    rows = [
        [
            " ".join(filter(None, (one.model, one.quantization))),
            one.name,
            f"{share_text(one.value / 100)}, no limit"
            if one.unit.startswith("%")
            else with_unit(one.value, one.unit),
        ]
        for one in found.quoted
    ]
    print_lines(console, ["", "[bold]QUOTED, part of no statistic[/]"])
    print_table(console, ("model", "quoted", ">value"), rows)
    sources: dict[str, list[str]] = {}
    for one in found.quoted:
        sources.setdefault(one.source, []).append(one.name)
    lines = (f"{', '.join(names)}: {source}" for source, names in sources.items())
    print_lines(console, map(plain, ("", *lines)))


def _method(found: LatencyMatch) -> Sequence[str]:
    return ("", *_METHOD) if found.curves else ()
