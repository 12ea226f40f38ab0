"""Colours, fonts and marks of the figures, for light and dark backgrounds.

The colours of categories are M. Okabe and K. Ito's (2008), which colour-blind people can
distinguish, made darker or lighter for a contrast of at least 3:1 with the background (WCAG 2.2,
1.4.11). Charts use names of styles and ranges, never a colour.
"""

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

#: ``page``: light or dark as the page that the figure is in; see :data:`PAGE_STYLE`.
Theme: TypeAlias = Literal["light", "dark", "page"]

#: The fonts of a page, then fonts for a machine without these.
FONT = (
    "system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', 'Noto Sans CJK SC',"
    " 'PingFang SC', 'Microsoft YaHei', sans-serif"
)
#: Maximum number of series that can be distinguished in a figure.
MOST_SERIES = 8
SHAPES = (
    *("circle", "square", "triangle-up", "diamond"),
    *("cross", "triangle-down", "triangle-right", "triangle-left"),
)
DASHES = ([1, 0], [6, 3], [2, 2], [8, 3, 2, 3], [10, 4], [4, 2, 1, 2], [1, 3], [12, 3, 3, 3])

#: Number of colours of a heat map, and the first colour on which texts change colour.
RAMP_STEPS = 7
DARK_FROM = 4


@dataclass(frozen=True)
class _Palette:
    """Colours of one theme; contrasts are relative to ``background``."""

    background: str
    text: str
    muted: str
    grid: str
    alarm: str
    categories: tuple[str, ...]
    ramp: tuple[str, ...]
    on_ramp: tuple[str, str]

    def colours(self) -> tuple[str, ...]:
        """Return each colour once; both of ``on_ramp`` are also another part's."""
        parts = (self.background, self.text, self.muted, self.grid, self.alarm)
        return (*parts, *self.categories, *self.ramp)


_LIGHT, _DARK = (
    _Palette(
        background="#ffffff",
        text="#1f2328",
        muted="#59636e",
        grid="#e4e7eb",
        alarm="#b3261e",
        categories=(
            *("#0067b0", "#c2500a", "#00805c", "#a4498a"),
            *("#8f6a00", "#3a86c8", "#5d5d5d", "#7a4fc4"),
        ),
        # few -> much: cividis, without its darkest end, which swallows labels
        ramp=("#fff3c4", "#f2d883", "#d9bb62", "#b3a06a", "#646b76", "#3b4a6d", "#0b2a57"),
        on_ramp=("#1f2328", "#ffffff"),
    ),
    _Palette(
        background="#16181c",
        text="#e6e9ed",
        muted="#a3adb8",
        grid="#2c333b",
        alarm="#ff8a80",
        categories=(
            *("#4da6ee", "#f0884a", "#2fbf93", "#d98cc4"),
            *("#e0b53c", "#8fd0ff", "#b5b5b5", "#b197fc"),
        ),
        ramp=("#14284a", "#2a4370", "#46597a", "#5d6a78", "#a89763", "#dcbd5c", "#fff0b3"),
        on_ramp=("#e6e9ed", "#16181c"),
    ),
)
PALETTES: dict[Theme, _Palette] = {"light": _LIGHT, "dark": _DARK, "page": _LIGHT}
#: Colours of the theme ``page``: variables of its style. Without the style, figures are light.
PAGE_COLOURS = {light: f"var(--{light[1:]},{light})" for light in _LIGHT.colours()}
PAGE_STYLE = "".join(
    f":root{{--{light[1:]}:light-dark({light},{dark})}}"
    for light, dark in zip(_LIGHT.colours(), _DARK.colours(), strict=True)
)


def config(theme: Theme) -> dict[str, Any]:
    """Return the Vega-Lite config of a theme."""
    colours = PALETTES[theme]
    axis = {
        "labelColor": colours.muted,
        "titleColor": colours.text,
        "gridColor": colours.grid,
        "domainColor": colours.grid,
        "tickColor": colours.grid,
        "labelFontSize": 11,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
        "titlePadding": 8,
        "labelLimit": 190,
        "labelOverlap": "greedy",
    }
    text = {"color": colours.text, "fontSize": 11}
    return {
        "font": FONT,
        "view": {"stroke": None},
        "axis": axis,
        "axisX": {"grid": False},
        "axisY": {"domain": False, "ticks": False},
        "legend": {
            "labelColor": colours.text,
            "titleColor": colours.muted,
            "labelFontSize": 12,
            "labelLimit": 220,
            "symbolSize": 90,
            "symbolStrokeWidth": 2,
            "symbolOpacity": 1,
            "orient": "top",
            "direction": "horizontal",
            "title": None,
            "columns": 2,
            "columnPadding": 14,
        },
        "title": {
            "anchor": "start",
            "frame": "bounds",
            "color": colours.text,
            "subtitleColor": colours.alarm,
            "fontSize": 15,
            "subtitleFontSize": 12,
            "subtitleFontWeight": "bold",
            "offset": 12,
        },
        "range": {"category": list(colours.categories), "ramp": list(colours.ramp)},
        "style": {
            "warning": {"color": colours.alarm, "fontSize": 12, "fontWeight": "bold"},
            "label": text,
            "quiet-label": {**text, "color": colours.muted},
            "quoted": {"color": colours.muted, "strokeWidth": 2, "strokeDash": [3, 2]},
            "on-mark": {"color": colours.background, "opacity": 1},
            "mean": {"color": colours.background, "stroke": colours.text, "strokeWidth": 1.3},
            "alarm": {"color": colours.alarm, "opacity": 1},
            "alarm-label": {**text, "color": colours.alarm},
            "alarm-band": {"color": colours.alarm, "opacity": 0.15},
            "reference": {"color": colours.muted, "strokeDash": [4, 3], "strokeWidth": 1},
            "hollow": {"fill": colours.background, "strokeWidth": 1.6, "opacity": 1},
            "on-mark-label": {"color": colours.background, "fontSize": 11, "fontWeight": "bold"},
            "on-low": {**text, "color": colours.on_ramp[0]},
            "on-high": {**text, "color": colours.on_ramp[1]},
            "roof": {"color": colours.text, "strokeWidth": 2},
            "ceiling": {"size": 34, "thickness": 3, "opacity": 1},
            "token": {"color": colours.categories[2]},
            **{f"line-{n}": {"color": colours.categories[n]} for n in range(3)},
            "gap": {"stroke": colours.background, "strokeWidth": 1},
        },
    }
