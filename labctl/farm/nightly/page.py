"""Pages of nights: one for each night, and the trend of a plan. No script, no network."""

import base64
import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from labctl.compare.words import percent
from labctl.errors import printable
from labctl.farm.nightly.nights import nights_of, past_result
from labctl.farm.nightly.results import lines_of, sentence
from labctl.records.night import NightFinding, NightResult
from labctl.report.markdown import table

NIGHT_PAGE, NIGHT_TEXT = "report.html", "report.md"
_SHOWN = 60
_WIDTH, _HEIGHT = 480, 80
#: Largest change that a trend shows to scale; of logarithms.
_LARGEST = math.log(1.15)
_STYLE = """\
:root { color-scheme: light dark; --line: #8888; --bad: #b3261e; --open: #8a6100; }
@media (prefers-color-scheme: dark) { :root { --bad: #ff8a80; --open: #ffca55; } }
body { font: 16px/1.5 system-ui, sans-serif; margin: 1rem auto; max-width: 72rem; padding: 0 1rem; }
table { border-collapse: collapse; display: block; overflow-x: auto; }
th, td { border-bottom: 1px solid var(--line); padding: .3rem .6rem; text-align: left; }
td { overflow-wrap: anywhere; }
.slower, .fails, .does-not-build { color: var(--bad); font-weight: 600; }
.suspected, .not-monitored, .not-measured { color: var(--open); }
svg { max-width: 100%; }
svg line { stroke: var(--line); }
svg circle { fill: currentColor; }
"""


@dataclass(frozen=True)
class Point:
    """A night of a trend: its place in the picture, and what it found."""

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


def night_page(result: NightResult) -> str:
    """Return the page of one night."""
    return _page(f"Night {result.id}", result, [])


def trend_page(plan: str, root: Path) -> str:
    """Return the page of a plan: its last night, and the change of each row, night by night."""
    past = (past_result(folder) for folder in nights_of(root, plan))
    results = list(islice((one for one in past if one is not None), _SHOWN))[::-1]
    return _page(f"Nights of {plan}", results[-1] if results else None, trends(results))


def trends(results: Sequence[NightResult]) -> list[Trend]:
    """Return the trend of each variant of each row, nights in their order."""
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
    rows = [
        [str(one.verdict), f"{one.row} {one.variant}", _change(one), sentence(one)]
        for one in result.findings
    ]
    head = [f"# Night {result.id}", ""]
    for search in result.searches:
        head += [f"{search.build}: {search.reason}", ""]
    return "\n".join([*head, *table(["verdict", "row", ">change", "found"], rows)])


def _point(x: float, night: NightResult, finding: NightFinding) -> Point:
    assert finding.ratio is not None
    height = max(-_LARGEST, min(_LARGEST, math.log(finding.ratio)))
    y = _HEIGHT / 2 * (1 - height / _LARGEST)
    return Point(round(x, 1), round(y, 1), night.id, str(finding.verdict), _change(finding))


def _change(one: NightFinding) -> str:
    if one.ratio is None:
        return "-"
    word = "slower" if one.ratio >= 1 else "faster"
    return f"{percent(max(one.ratio, 1 / one.ratio) - 1)} {word}"


def _page(title: str, result: NightResult | None, found: Sequence[Trend]) -> str:
    environment = Environment(
        loader=PackageLoader("labctl.farm.nightly", "."), autoescape=True, undefined=StrictUndefined
    )
    environment.filters["plain"] = printable
    digest = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
    return environment.get_template("night.html.j2").render(
        title=title,
        style=_STYLE,
        policy=f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'",
        builds=list(_builds(result)),
        rows=[
            (str(one.verdict), f"{one.row} {one.variant}", _change(one), sentence(one))
            for one in (result.findings if result else ())
        ],
        searches=[f"{one.build}: {one.reason}" for one in (result.searches if result else ())],
        trends=found,
        width=_WIDTH,
        height=_HEIGHT,
    )


def _builds(result: NightResult | None) -> Iterator[str]:
    if result is not None:
        count = len(result.builds)
        yield from list(lines_of(result))[:count]
