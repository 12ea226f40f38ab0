"""Figures as SVG: texts stay texts, nothing in them acts, and they follow a page's colours."""

import json
import re
import subprocess
import sys
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import pytest
from hypothesis import given
from hypothesis import strategies as st
from measured_runs import Made, measured

from labctl.errors import HostError
from labctl.records.board import Execution
from labctl.report.figures.catalogue import figures_of
from labctl.report.figures.figure import Figure
from labctl.report.figures.svg import _lines
from labctl.report.figures.theme import PAGE_COLOURS, PAGE_STYLE, PALETTES, Theme

SVG = "{http://www.w3.org/2000/svg}"
MARKUP = '</text></svg><script>alert(1)</script><a href="javascript:x">'
HOSTILE = f"{MARKUP}&lol; url(https://x) \x1b[2J\u202e"
DRAWN = figures_of([measured(throttled=4, tokens=8)]).drawn
ELEMENTS = {
    *("svg", "g", "path", "line", "rect", "text", "tspan", "title", "desc"),
    *("defs", "clipPath"),
}


def parsed(figure: Figure, theme: Theme = "light", width: int = 760) -> Element:
    return ElementTree.fromstring(figure.svg(theme, width))


def texts(of: Element) -> list[str]:
    return [element.text or "" for element in of.iter(f"{SVG}text")]


@pytest.mark.parametrize("width", [358, 760])
def test_a_hostile_name_is_a_text_and_nothing_else(width: int) -> None:
    run = measured([Made(HOSTILE, parameters=((HOSTILE, 1),)), Made("b", 200.0)], tokens=4)
    for figure in figures_of([run]).drawn:
        found = parsed(figure, width=width)
        assert {element.tag.removeprefix(SVG) for element in found.iter()} <= ELEMENTS
        for element in found.iter():
            for name, value in element.attrib.items():
                assert not re.match(r"(?i)on|href|style|\{|class", name.removeprefix("xlink:"))
                assert re.fullmatch(
                    r"(?s)(?!.*url\((?!#c[0-9a-f]{8}\w+\)))(?!.*javascript:).*", value
                )
        written = figure.svg()
        assert "\u202e" not in written
        assert "\x1b" not in written
    first = parsed(figures_of([run]).drawn[0])
    assert any("</text></svg>" in (one.text or "") for one in first.iter())


def test_texts_are_texts_and_the_picture_has_a_name_and_a_description() -> None:
    for figure in DRAWN:
        found = parsed(figure)
        assert found.get("role") == "img"
        assert [one.text for one in found[:2]] == [figure.title, figure.alt]
        assert figure.title in texts(found)
    emulated = figures_of([measured(execution=Execution.EMULATED, tokens=4)]).drawn[0]
    assert emulated.warning in texts(parsed(emulated))
    assert emulated.warning in (parsed(emulated)[0].text or "")


def test_a_mark_tells_its_values_and_leaves_out_missing_ones() -> None:
    estimates = DRAWN[0]
    told = [one.text or "" for one in parsed(estimates).iter(f"{SVG}title")][1:]
    circles = [row for row in estimates.rows if row.get("kind") == "repeat"]
    for row in circles:
        assert any(f"repeat: {row['repeat']}\n" in one for one in told)
    assert any(one.startswith("variant: q2_k\ntime per token (ms): 19") for one in told)
    assert not [one for one in told if re.search("undefined|NaN|null|repeat: 0", one)]


def test_a_line_tells_nothing_that_only_one_of_its_points_has() -> None:
    (found,) = [one for one in DRAWN if one.name == "ecdf"]
    told = [one.text for one in parsed(found).iter(f"{SVG}title")][1:]
    assert told == ["variant: q8_0", "variant: q2_k"]


def test_pictures_in_one_page_share_no_names() -> None:
    names: list[str] = []
    for figure in DRAWN:
        for width in (358, 760):
            found = parsed(figure, width=width)
            own = [one.get("id", "") for one in found.iter() if one.get("id")]
            used = re.findall(r"url\(#(\w+)\)", ElementTree.tostring(found, encoding="unicode"))
            assert set(used) <= set(own)
            names += own
    assert names
    assert len(names) == len(set(names))


def test_in_a_page_every_colour_follows_the_page() -> None:
    for figure in DRAWN:
        made = figure.svg("page", heading=False)
        colours = set(re.findall(r'(?:fill|stroke)="([^"]*)"', made)) - {"none", "transparent"}
        assert colours <= set(PAGE_COLOURS.values())
        assert figure.title not in re.findall(r"<text[^>]*>([^<]*)", made)
    light, dark = PALETTES["light"], PALETTES["dark"]
    assert f"--{light.text[1:]}:light-dark({light.text},{dark.text})" in PAGE_STYLE
    assert set(light.on_ramp) == {light.text, light.background}
    assert set(dark.on_ramp) == {dark.text, dark.background}


def test_a_chart_that_cannot_be_drawn_is_a_clear_error() -> None:
    broken = Figure("x", "X", "", "", {"mark": {"type": "none"}}, [])
    with pytest.raises(HostError, match="cannot draw the figure"):
        broken.svg()


def test_only_drawing_loads_the_converter() -> None:
    code = (
        "import sys, labctl.report.page.files, labctl.cli.output\n"
        "sys.exit('vl_convert' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=12))
def test_shorter_lines_pass_the_same_places(corners: list[tuple[int, int]]) -> None:
    """Each corner is on the short path, also where a line goes back on itself."""
    steps = corners
    path = "M" + "L".join(f"{x},{y}" for x, y in steps)
    at, seen = (0, 0), set[tuple[int, int]]()
    for command, numbers in re.findall(r"([MLHV])([\d.,]+)", _lines(path)):
        last = at
        if command in "ML":
            at = tuple(map(int, numbers.split(",")))  # type: ignore[assignment]
        else:
            at = (int(numbers), at[1]) if command == "H" else (at[0], int(numbers))
        if command in "HV":
            (x1, y1), (x2, y2) = sorted((last, at))
            seen |= {(x, y) for x in range(x1, x2 + 1) for y in range(y1, y2 + 1)}
        seen.add(at)
    assert set(steps) <= seen, json.dumps([path, _lines(path)])
