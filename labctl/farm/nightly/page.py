"""Pages of nights: one for each night, and the trend of a plan. No script, no network."""

import base64
import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from labctl.errors import LabctlError, printable, printable_line
from labctl.farm.nightly.nights import nights_of, past_result
from labctl.farm.nightly.results import (
    build_facts,
    change,
    headline,
    not_begun,
    notes_of,
    row_name,
    sentence,
    verdict_parts,
    worst_first,
)
from labctl.records.night import NightFinding, NightResult
from labctl.report.markdown import cell, table
from labctl.units import local_time

NIGHT_PAGE, NIGHT_TEXT = "report.html", "report.md"
_SHOWN = 60
_WIDTH, _HEIGHT = 480, 80
#: Largest change that a trend shows to scale, as a logarithm.
_LARGEST = math.log(1.15)
_STYLE = """\
:root { color-scheme: light dark; --line: #8888; --bad: #b3261e; --open: #8a6100; }
@media (prefers-color-scheme: dark) { :root { --bad: #ff8a80; --open: #ffca55; } }
body { font: 16px/1.5 system-ui, sans-serif; margin: 1rem auto; max-width: 72rem; padding: 0 1rem; }
table { border-collapse: collapse; display: block; overflow-x: auto; }
th, td { border-bottom: 1px solid var(--line); padding: .3rem .6rem; text-align: left; }
td { min-width: 7rem; overflow-wrap: anywhere; vertical-align: top; }
h1, p, pre { overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; line-height: 1.3; }
h2 { font-size: 1.25rem; line-height: 1.3; overflow-wrap: anywhere; }
pre { white-space: pre-wrap; }
.quiet { opacity: .75; }
.slower, .fails, .does-not-build { color: var(--bad); font-weight: 600; }
.suspected, .not-monitored, .not-measured, .not-judged { color: var(--open); }
@media (max-width: 45rem) {
  table, tbody, tr, td { display: block; }
  thead { display: none; }
  tr { border-bottom: 1px solid var(--line); padding: .4rem 0; }
  td { border: 0; padding: 0; }
}
svg { max-width: 100%; }
svg line { stroke: var(--line); }
svg circle { fill: currentColor; }
"""


@dataclass(frozen=True)
class Point:
    """A night of a trend: its position in the picture, and its finding."""

    x: float
    y: float
    night: str
    verdict: str
    change: str


@dataclass(frozen=True)
class Trend:
    """A variant of a row over the nights of a plan."""

    name: str
    points: tuple[Point, ...]


@dataclass(frozen=True)
class _Row:
    """A finding in the table."""

    verdict: str
    name: str
    change: str
    found: str
    details: str


def night_page(result: NightResult) -> str:
    """Return the page of one night."""
    return _page(result.plan, result, [])


def trend_page(plan: str, root: Path, problem: LabctlError | None = None) -> str:
    """Return the page of a plan: its last night, and the change of each row, night by night.

    ``problem``: why the night after the last one could not begin.
    """
    past = (past_result(folder) for folder in nights_of(root, plan))
    results = list(islice((one for one in past if one is not None), _SHOWN))[::-1]
    return _page(plan, results[-1] if results else None, trends(results), problem)


def trends(results: Sequence[NightResult]) -> list[Trend]:
    """Return the trend of each variant of each row, with the nights in order."""
    names = dict.fromkeys((f.row, f.variant) for one in results for f in one.findings)
    step = _WIDTH / max(1, len(results))
    found = []
    for row, variant in names:
        points = [
            _point((number + 0.5) * step, one, finding)
            for number, one in enumerate(results)
            for finding in one.findings
            if (finding.row, finding.variant) == (row, variant) and finding.ratio is not None
        ]
        found.append(Trend(f"{row} {variant}", tuple(points)))
    return found


def night_markdown(result: NightResult) -> str:
    """Return one night as Markdown."""
    found = _rows(result)
    lines = [f"# {cell(headline(result))}", ""]
    lines += [f"- {cell(f'{name}: {known}')}" for name, known in build_facts(result)]
    lines += [f"- {cell(line)}" for line in notes_of(result)]
    rows = [[one.verdict, one.name, one.change, one.found] for one in found]
    lines += ["", *table(["verdict", "row", ">change", "found"], rows)]
    for one in found:
        if one.details:
            text = (f"    {printable_line(line)}" for line in one.details.splitlines())
            lines += [f"{cell(one.name)}:", "", *text, ""]
    return "\n".join([*lines, cell(_when(result)), ""])


def _rows(result: NightResult | None) -> list[_Row]:
    return [
        _Row(str(one.verdict), row_name(one), change(one), sentence(one), one.details or "")
        for one in (worst_first(result.findings) if result else ())
    ]


def _when(result: NightResult) -> str:
    started, finished = (local_time(one.timestamp()) for one in (result.started, result.finished))
    return f"night {result.id}, from {started} to {finished}"


def _point(x: float, night: NightResult, finding: NightFinding) -> Point:
    assert finding.ratio is not None
    height = max(-_LARGEST, min(_LARGEST, math.log(finding.ratio)))
    y = _HEIGHT / 2 * (1 - height / _LARGEST)
    return Point(round(x, 1), round(y, 1), night.id, str(finding.verdict), change(finding))


def _page(
    plan: str,
    result: NightResult | None,
    found: Sequence[Trend],
    problem: LabctlError | None = None,
) -> str:
    environment = Environment(
        loader=PackageLoader("labctl.farm.nightly", "."), autoescape=True, undefined=StrictUndefined
    )
    environment.filters["plain"] = printable
    digest = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
    return environment.get_template("night.html.j2").render(
        plan=plan,
        style=_STYLE,
        policy=f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'",
        problem="" if problem is None else not_begun(problem),
        hint="" if problem is None else problem.hint or "",
        verdict=verdict_parts(result) if result else ["no night yet"],
        builds=[f"{name}: {known}" for name, known in (build_facts(result) if result else ())],
        rows=_rows(result),
        notes=list(notes_of(result)) if result else [],
        when=_when(result) if result else "",
        trends=found,
        width=_WIDTH,
        height=_HEIGHT,
    )
