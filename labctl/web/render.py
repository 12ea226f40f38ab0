"""Pages from templates in two languages; texts of boards, people and files are never markup."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from importlib import resources
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from labctl.distribution import labctl_version
from labctl.errors import printable
from labctl.report.page.language import Code, Language
from labctl.units import duration, size

PACKAGE = "labctl.web"
#: Files for browsers, and their types.
FILES = {
    "dashboard.css": "text/css",
    "dashboard.js": "text/javascript",
    "icon.svg": "image/svg+xml",
    "report.css": "text/css",  # the style of reports: both are one product
}
_CODES: tuple[Code, ...] = ("en", "zh")
_LANGUAGE = re.compile(r"\s*([a-zA-Z]{1,8})(?:-[a-zA-Z0-9-]{1,30})?\s*(?:;.*)?")


def language_of(asked: str | None, cookies: Mapping[str, str], headers: Mapping[str, str]) -> Code:
    """Return the language of a reader: requested, saved, or the browser's first language."""
    for code in _CODES:
        if asked == code:
            return code
    for code in _CODES:
        if cookies.get("labctl_language") == code:
            return code
    for one in headers.get("accept-language", "")[:200].split(","):
        found = _LANGUAGE.fullmatch(one)
        for code in _CODES:
            if found and found[1].lower() == code:
                return code
    return "en"


@lru_cache
def file_of(name: str) -> bytes:
    """Return a file for browsers; ``name`` is one of FILES."""
    if name == "report.css":
        return resources.files("labctl.report.page").joinpath(name).read_bytes()
    return resources.files(PACKAGE).joinpath("static", name).read_bytes()


class Renderer:
    """Makes pages."""

    def __init__(self) -> None:
        self._environment = Environment(
            loader=PackageLoader(PACKAGE, "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            finalize=_plain,
        )
        self._environment.filters |= {
            "moment": _moment,
            "seconds": _seconds,
            "ns": duration,
            "size": size,
            "segment": lambda text: quote(text, safe=""),
        }
        self._environment.globals |= {"version": labctl_version(), "with_query": with_query}
        self._languages = {code: Language(code) for code in _CODES}

    def page(self, template: str, code: Code, **values: Any) -> str:
        """Return a page in a language."""
        words = self._languages[code]
        found = self._environment.get_template(f"{template}.html.j2")
        return found.render(_=words, language=code, **values)


def with_query(query: str, **changes: object) -> str:
    """Return a query with some names changed; None removes one."""
    kept = [(name, value) for name, value in parse_qsl(query) if name not in changes]
    new = [(name, str(value)) for name, value in changes.items() if value is not None]
    return f"?{urlencode(kept + new)}"


def _seconds(value: float) -> str:
    """Return a remaining time: ``40 s``, ``8 min``, ``3.5 h``."""
    if value < 120:
        return f"{value:.0f} s"
    return f"{value / 60:.0f} min" if value < 7200 else f"{value / 3600:.1f} h"


def _plain(value: Any) -> Any:
    """Remove control sequences from every text of a page."""
    if isinstance(value, Markup) or not isinstance(value, str):
        return value
    return printable(value)


def _moment(seconds: float | None) -> Markup:
    """Return a time as an element, in UTC; its title has the seconds."""
    if seconds is None:
        return Markup("–")
    when = datetime.fromtimestamp(seconds, UTC)
    return Markup('<time datetime="{}">{}</time>').format(
        when.isoformat(timespec="seconds"), f"{when:%Y-%m-%d %H:%M}"
    )
