"""Charts as SVG, made by vl-convert without a browser, network or JavaScript.

vl-convert's file is written anew from a list of harmless elements and attributes, a third of its
size. Texts stay texts; a mark's values are in its ``<title>``, which browsers show as a tooltip.
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from labctl.errors import HostError, printable
from labctl.report.figures.theme import FONT, PAGE_COLOURS

_SVG = "http://www.w3.org/2000/svg"
_ELEMENTS = ("svg", "g", "path", "line", "rect", "text", "tspan", "defs", "clipPath")
#: Attributes that children inherit if they have none of their own.
_INHERITED = (
    *("fill", "fill-opacity", "stroke", "stroke-width", "stroke-dasharray", "stroke-linecap"),
    *("stroke-linejoin", "stroke-miterlimit", "stroke-opacity", "text-anchor", "font-size"),
    *("font-weight", "font-style"),
)
#: Attributes with numbers of pixels: a tenth is enough.
_PIXELS = {
    *("d", "transform", "x", "y", "x1", "x2", "y1", "y2", "dx", "dy", "rx", "ry"),
    *("width", "height"),
}
_ATTRIBUTES = (*_INHERITED, *sorted(_PIXELS), "id", "clip-path", "opacity", "viewBox")
_LINES = re.compile(r"M[-\d.,MLZ]+")
_POINT = re.compile(r"([MLZ])(?:([-\d.]+),([-\d.]+))?")
#: Attributes that say what is so without them.
_IDLE = {("opacity", "1"), ("transform", "translate(0,0)"), ("font-weight", "normal")}
#: Pictures that a process keeps: a page that is made again draws only what has changed.
_KEPT = 100
_NUMBER = re.compile(r"-?\d+\.\d{2,}(?:e-?\d+)?")


def svg_of(chart: Mapping[str, Any], *, title: str, description: str, in_page: bool) -> str:
    """Return a Vega-Lite chart as SVG. Raises HostError if it cannot be drawn.

    ``in_page``: for HTML; its light colours become the variables of the page's style.
    """
    text = _drawn(json.dumps(with_tips(chart)))
    # vl-convert's file has no entities; names in it are escaped.
    made = _harmless(ElementTree.fromstring(printable(text)))  # noqa: S314
    assert made is not None
    # Several pictures in one document must not share names.
    prefix = "c" + hashlib.sha256(text.encode()).hexdigest()[:8]
    for element in made.iter():
        for name in ("fill", "stroke") if in_page else ():
            if (colour := element.get(name)) in PAGE_COLOURS:
                element.set(name, PAGE_COLOURS[colour])
        if "id" in element.attrib:
            element.set("id", prefix + element.get("id", ""))
        if "clip-path" in element.attrib:
            element.set("clip-path", element.get("clip-path", "").replace("#", f"#{prefix}"))
    _hoist(made)
    made.attrib = {"role": "img", "font-family": FONT, **made.attrib}
    if not in_page:
        made.set("xmlns", _SVG)
    for place, (tag, words) in enumerate((("title", title), ("desc", description))):
        told = Element(tag)
        told.text = printable(words)
        made.insert(place, told)
    return ElementTree.tostring(made, encoding="unicode")


@lru_cache(_KEPT)
def _drawn(chart: str) -> str:
    import vl_convert

    try:
        return vl_convert.vegalite_to_svg(chart, config={"aria": False}, allowed_base_urls=[])
    except ValueError as error:
        raise HostError(f"vl-convert cannot draw the figure: {error}") from error


def with_tips(part: Mapping[str, Any]) -> dict[str, Any]:
    """Return a chart whose marks with a ``tooltip`` have its texts as their description.

    A line is one mark of many rows, so that its description has none of its x and y.
    """
    made = dict(part)
    for name in ("layer", "vconcat"):
        if name in made:
            made[name] = [with_tips(inner) for inner in made[name]]
    encoding = dict(made.get("encoding", {}))
    told: Sequence[dict[str, Any]] = encoding.pop("tooltip", ())
    if told:
        mark = made["mark"] if isinstance(made["mark"], dict) else {"type": made["mark"]}
        if mark["type"] in ("line", "area"):
            along = {encoding[axis].get("field") for axis in ("x", "y")}
            told = [one for one in told if one["field"] not in along]
        made["mark"] = {**mark, "description": {"expr": " + ".join(map(_line, told)) or "''"}}
        made["encoding"] = encoding
    return made


def _line(told: Mapping[str, Any]) -> str:
    """Return the Vega expression of a line ``title: value``; no line without a value."""
    value = f"datum[{json.dumps(told['field'])}]"
    shown = value
    if told["type"] == "quantitative":
        shown = f"format({value}, {json.dumps(told.get('format', ''))})"
    title = json.dumps(f"\n{told.get('title', told['field'])}: ")
    return f"(isValid({value}) ? {title} + {shown} : '')"


def _harmless(source: Element) -> Element | None:
    """Return a copy with only known elements and attributes; None if it shows nothing."""
    tag = source.tag.removeprefix(f"{{{_SVG}}}")
    shapeless = tag == "path" and not source.get("d")
    if tag not in _ELEMENTS or source.get("display") == "none" or shapeless:
        return None
    if source.get("class") == "background" and not {"fill", "stroke"} & {*source.attrib}:
        return None
    found = {name: source.attrib[name] for name in _ATTRIBUTES if name in source.attrib}
    for name in _PIXELS & {*found}:
        found[name] = _NUMBER.sub(_tenths, found[name])
    if _LINES.fullmatch(found.get("d", "")):
        found["d"] = _lines(found["d"])
    made = Element(tag, {name: text for name, text in found.items() if (name, text) not in _IDLE})
    if tag in ("text", "tspan"):
        made.text = source.text
    told = source.get("aria-label", "").strip()
    if told and tag != "g":
        tip = Element("title")
        tip.text = told
        made.append(tip)
    made.extend([inner for inner in map(_harmless, source) if inner is not None])
    if tag == "g":
        return _shortest(made)
    return made


def _tenths(number: re.Match[str]) -> str:
    return f"{float(number[0]):.1f}".removesuffix(".0")


def _lines(path: str) -> str:
    """Return a path of lines without the points inside its horizontal and vertical ones."""
    points: list[tuple[str, str, str]] = []
    for command, x, y in _POINT.findall(path):
        if command == "L" and len(points) > 1 and points[-1][0] == "L" and points[-2][1]:
            (_, *before), (_, *last) = points[-2:]
            if all(_is_between(*place) for place in zip(before, last, (x, y), strict=True)) and (
                before[0] == last[0] == x or before[1] == last[1] == y or last == [x, y]
            ):
                points.pop()
        points.append((command, x, y))
    made, at = "", ("", "")
    for command, x, y in points:
        if command == "L" and y == at[1]:
            made += f"H{x}"
        elif command == "L" and x == at[0]:
            made += f"V{y}"
        else:
            made += f"{command}{x},{y}" if x else command
        at = x, y
    return made


def _is_between(before: str, middle: str, after: str) -> bool:
    low, high = sorted((float(before), float(after)))
    return low <= float(middle) <= high


def _shortest(group: Element) -> Element | None:
    """Return a group; None if it is empty, its only child if it says nothing itself."""
    if len(group) == 0:
        return None
    return group[0] if len(group) == 1 and not group.attrib else group


def _hoist(group: Element) -> None:
    """Move what all children of a group have in common to the group."""
    for inner in group:
        _hoist(inner)
    shown = [inner for inner in group if inner.tag not in ("title", "desc", "defs")]
    if group.tag != "g" or len(shown) < 2:
        return
    for name in _INHERITED:
        values = {inner.get(name) for inner in shown}
        if len(values) == 1 and None not in values:
            group.set(name, values.pop() or "")
            for inner in shown:
                del inner.attrib[name]
