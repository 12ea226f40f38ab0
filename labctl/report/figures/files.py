"""Figures as files of their own: SVG and PNG, made by vl-convert without a browser or network."""

from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType

from labctl.errors import ConfigError, HostError
from labctl.files import write_named
from labctl.report.figures.figure import Figure, Spec
from labctl.report.figures.fonts import chinese_font
from labctl.report.figures.theme import PALETTES, Theme

FORMATS = (".svg", ".png")
#: As wide as a column of a page, in CSS pixels.
WIDTH = 760
#: Pixels of a PNG for each of these: sharp on a screen of high density, and in print.
_SCALE = 2.0


def write_figure(figure: Figure, path: Path, theme: Theme = "light", *, width: int = WIDTH) -> None:
    """Write a figure to a file, as SVG or PNG by the end of its name.

    Raises ConfigError for another end, and where a program or a font that it needs is not
    installed; HostError when the file cannot be written.
    """
    if path.suffix.lower() not in FORMATS:
        raise ConfigError(
            f"cannot write a figure as {path.name}", hint=f"use {' or '.join(FORMATS)}"
        )
    chart = {**figure.chart(theme, width=width), "background": PALETTES[theme].background}
    write_named(path, _rendered(chart, path.suffix.lower()))


def _rendered(chart: Spec, form: str) -> bytes:
    converter = _converter()
    fonts = chinese_font(str(chart))
    if fonts is not None:
        _register(fonts)
    try:
        if form == ".svg":
            svg: str = converter.vegalite_to_svg(chart, allowed_base_urls=[])
            return svg.encode()
        png: bytes = converter.vegalite_to_png(chart, scale=_SCALE, allowed_base_urls=[])
    except ValueError as error:
        raise HostError(f"vl-convert cannot draw the figure: {error}") from error
    return png


@cache
def _register(fonts: Path) -> None:
    """Make the fonts of a folder known to the converter, once: it keeps them."""
    _converter().register_font_directory(str(fonts))


def _converter() -> ModuleType:
    try:
        return import_module("vl_convert")
    except ImportError as error:
        raise ConfigError(
            "cannot draw figures: vl-convert-python is not installed",
            hint="pip install 'labctl[report]'",
        ) from error
