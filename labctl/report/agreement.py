"""Agreement of two servers, for people and machines."""

import json
from collections.abc import Iterator, Sequence

from rich.console import Console

from labctl.evaluation.agreement import Agreement, Difference, Served
from labctl.report.console import plain, print_lines, print_table
from labctl.stats.intervals import Interval
from labctl.units import counted

_GAPS = ("grader", ">limit", ">first", ">second", ">second less first (95%)")
#: Maximum number of listed differences; JSON has all.
_LISTED = 10


def print_agreements(console: Console, found: Sequence[Agreement]) -> None:
    """Print for each pair the identical answers, the first differences, and the accuracies."""
    for number, one in enumerate(found):
        lines = [f"[bold]{plain(line)}[/]" for line in _heading(one)]
        print_lines(console, [*([""] if number else []), *lines, *map(plain, _sentences(one))])
        if one.tokens:
            rows = [(name, str(count)) for name, count in one.histogram.items() if count]
            print_table(console, ("first differing token", ">answers"), rows)
        if one.gaps:
            print_table(console, _GAPS, list(_gap_rows(one)))
        print_lines(console, [f"[dim]{plain(line)}[/]" for line in one.notes])


def agreements_json(found: Sequence[Agreement]) -> str:
    """Return all agreements for JSON; places count from 1, accuracies are from 0 to 1."""
    return json.dumps([_document(one) for one in found], indent=2) + "\n"


def _heading(one: Agreement) -> Iterator[str]:
    if one.is_emulated:
        yield "EMULATED: an emulator's arithmetic is not that of the board's CPU"
    yield f"{one.first.model.key}, prompt {one.prompt}: {one.first.where} and {one.second.where}"


def _sentences(one: Agreement) -> Iterator[str]:
    share = one.identical
    same = one.compared - len(one.differences)
    yield (
        f"{same} of {counted(one.compared, 'answer')} are identical: {share.mean:.1%}"
        f" (95%: {share.low:.1%} to {share.high:.1%})"
    )
    if one.unpaired:
        yield f"{counted(one.unpaired, 'answer')} that one side alone has: left out"
    if one.median_token is not None:
        yield f"where they differ, the median first difference is token {one.median_token:g}"
    elif one.median_character is not None:
        yield (
            "where they differ, the median first difference is character"
            f" {one.median_character:g}; the tokens are not known"
        )
    if one.differences:
        named = [f"{each.question} ({_place(each)})" for each in one.differences[:_LISTED]]
        more = len(one.differences) - len(named)
        yield f"different: {', '.join(named)}{f', and {more} more' if more else ''}"


def _place(one: Difference) -> str:
    return f"character {one.character}" if one.token is None else f"token {one.token}"


def _gap_rows(one: Agreement) -> Iterator[tuple[str, ...]]:
    for gap in one.gaps:
        yield (
            gap.grader,
            "unlimited" if gap.budget is None else str(gap.budget),
            f"{gap.first:.1%}",
            f"{gap.second:.1%}",
            _points(gap.interval),
        )


def _points(interval: Interval) -> str:
    low, high = (f"{100 * value:+.1f}" for value in (interval.low, interval.high))
    return f"{100 * interval.mean:+.1f} points ({low} to {high})"


def _document(one: Agreement) -> dict[str, object]:
    return {
        "prompt": one.prompt,
        "first": _side(one.first),
        "second": _side(one.second),
        "emulated": one.is_emulated,
        "compared": one.compared,
        "unpaired": one.unpaired,
        "identical": one.compared - len(one.differences),
        "identical_share": _interval(one.identical),
        "median_first_token": one.median_token,
        "median_first_character": one.median_character,
        "first_tokens": one.histogram,
        "differences": [vars(each) for each in one.differences],
        "accuracy": [
            {
                "grader": gap.grader,
                "budget": gap.budget,
                "first": gap.first,
                "second": gap.second,
                "difference": _interval(gap.interval),
            }
            for gap in one.gaps
        ],
        "notes": list(one.notes),
    }


def _side(side: Served) -> dict[str, object]:
    return {
        "run": side.run,
        "model": side.model.key,
        "sha256": side.model.sha256,
        "executions": list(side.executions),
        "where": side.where,
        "endpoints": [one.model_dump(mode="json", exclude_none=True) for one in side.endpoints],
    }


def _interval(found: Interval) -> dict[str, float]:
    return {"mean": found.mean, "low": found.low, "high": found.high}
