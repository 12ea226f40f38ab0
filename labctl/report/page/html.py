"""A report as one HTML file, without network access; its policy allows only its own script."""

import base64
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib import resources

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from labctl.distribution import labctl_version
from labctl.errors import printable
from labctl.report.figures.figure import Figure
from labctl.report.figures.theme import PAGE_STYLE
from labctl.report.page.content import Report
from labctl.report.page.language import Language

_PACKAGE = "labctl.report.page"
#: Width of a figure on a phone, in CSS pixels.
_NARROW = 358
#: The space between a number and its unit, or before a dash, where lines must not break.
_UNIT = re.compile(r"(?<=[\d±]) (?=(?:\d|(?:ns|µs|ms|s|min|B|kB|MB|GB)\b))| (?=– )")

_NAME = re.compile(r"\w-\w")
#: A longer name may break after its hyphens: a phone's line has about this many characters.
_LONGEST_NAME = 28


def html(report: Report, words: Language, *, inline: bool = False) -> str:
    """Return a report as a page.

    ``inline``: only its content, for a page that has the style, the script and a ``#tip``.
    """
    style = f"{_asset('report.css')}{PAGE_STYLE}{_foot(report)}"
    script = _asset("report.js")
    return _template().render(
        _=words,
        inline=inline,
        language=words.code,
        version=labctl_version(),
        policy=_policy(style, script),
        report=report,
        figures=[_figure(one) for one in report.figures],
        buttons=embedded({"light": words("Light colours"), "dark": words("Dark colours")}),
        style=Markup(style),  # noqa: S704 - labctl's own files
        script=Markup(script),  # noqa: S704
    )


def _whole(text: str) -> Markup:
    """Return a sentence whose numbers keep their units, and names their parts, on one line."""
    words = _UNIT.sub("\u00a0", printable(text)).split(" ")
    name = Markup('<span class="name">{}</span>')
    return Markup(" ").join(
        name.format(word) if _NAME.search(word) and len(word) <= _LONGEST_NAME else word
        for word in words
    )


def embedded(document: object) -> Markup:
    """Return JSON for a script element: it cannot end the element or begin a comment."""
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)  # noqa: S704 - escaped above


def columns(rows: Sequence[Mapping[str, object]]) -> dict[str, dict[str, list[object]]]:
    """Return rows as columns, a fifth of the size; each text is stored once, and used by number."""
    found: dict[str, dict[str, list[object]]] = {}
    for name in dict.fromkeys(key for row in rows for key in row):
        values = [row.get(name) for row in rows]
        if all(value is None or isinstance(value, str) for value in values):
            texts = dict.fromkeys(value for value in values if value is not None)
            numbers = {text: number for number, text in enumerate(texts)}
            found[name] = {
                "names": list(numbers),
                "values": [-1 if value is None else numbers[value] for value in values],
            }
        else:
            found[name] = {"values": values}
    return found


def _figure(one: Figure) -> dict[str, object]:
    """Return a figure for the page, which shows its title and its warning itself."""
    wide, narrow = one.svg("page", heading=False), one.svg("page", _NARROW, heading=False)
    return {
        "name": one.name,
        "title": one.title,
        "warning": one.warning,
        "caption": one.caption,
        "wide": Markup(wide),  # noqa: S704 - made of harmless elements only
        "narrow": Markup(narrow),  # noqa: S704
        "columns": embedded(columns(one.rows)),
    }


def _foot(report: Report) -> str:
    """Return the style that names the run, or the report, at the foot of each printed page."""
    text = report.runs[0].id if len(report.runs) == 1 else report.title
    escaped = "".join(f"\\{ord(character):x} " for character in printable(text))
    return f'@page{{@bottom-left{{content:"{escaped}"}}}}'


def _policy(style: str, script: str) -> str:
    """Return the page's Content Security Policy (W3C, CSP Level 3): by hash, without eval."""
    return (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)};"
        " base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"


@lru_cache
def _asset(name: str) -> str:
    return resources.files(_PACKAGE).joinpath(name).read_text(encoding="utf-8")


def _template() -> Template:
    environment = Environment(
        loader=PackageLoader(_PACKAGE, "."), autoescape=True, undefined=StrictUndefined
    )
    environment.filters["plain"] = printable
    environment.filters["whole"] = _whole
    return environment.get_template("report.html.j2")
