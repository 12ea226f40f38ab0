"""Figures as separate files: SVG and PNG, made by vl-convert without a browser or network.

Chinese characters in a PNG need a font on this host; an SVG is shown with the reader's fonts.
"""

import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

from labctl.errors import ConfigError, HostError
from labctl.files import write_named
from labctl.process import run
from labctl.report.figures.figure import WIDTH, Figure, Spec
from labctl.report.figures.theme import PALETTES, Theme

#: File names of systems' Chinese fonts: Noto and Source Han, WenQuanYi, Droid, Apple, Microsoft.
_NAMES = (
    *("notosanscjk", "notosanssc", "notoserifcjk", "sourcehansans", "wqy-", "droidsansfallback"),
    *("pingfang", "hiragino sans gb", "stheiti", "msyh", "simsun", "simhei", "uming", "ukai"),
)
#: Timeout (s) for fontconfig's list, which it may have to create first.
_LIST_SECONDS = 30
_FONTS = (".ttf", ".ttc", ".otf", ".otc")
#: CJK punctuation, ideographs, full-width forms.
_CJK = ((0x3000, 0x9FFF), (0xF900, 0xFAFF), (0xFF00, 0xFFEF), (0x20000, 0x3FFFF))


def chinese_font(text: str) -> Path | None:
    """Return the folder of a font for Chinese characters; None if the text has none.

    Raises ConfigError if no such font is found.
    """
    if not any(low <= ord(character) <= high for character in text for low, high in _CJK):
        return None
    found = next(_fonts(), None)
    if found is None:
        raise ConfigError(
            "cannot draw Chinese text: no font with Chinese characters was found",
            hint="install one: on Debian and Ubuntu `apt-get install fonts-noto-cjk`",
        )
    return found.parent


def _fonts() -> Iterator[Path]:
    """Yield fonts with Chinese characters: fontconfig's list first, then by file name."""
    if shutil.which("fc-list"):
        listed = run(["fc-list", "--format", "%{file}\n", ":lang=zh-cn"], timeout=_LIST_SECONDS)
        yield from (Path(line) for line in listed.text.splitlines() if Path(line).is_file())
    for folder in _folders():
        for path in sorted(folder.rglob("*")) if folder.is_dir() else ():
            if path.suffix.lower() in _FONTS and path.name.lower().startswith(_NAMES):
                yield path


def _folders() -> list[Path]:
    """Return the folders of fonts on Linux, macOS and Windows."""
    home = Path.home()
    return [
        *(Path("/usr/share/fonts"), Path("/usr/local/share/fonts"), home / ".local/share/fonts"),
        *(home / ".fonts", Path("/System/Library/Fonts"), Path("/Library/Fonts")),
        Path(os.environ.get("WINDIR", "C:/Windows")) / "Fonts",
    ]


FORMATS = (".svg", ".png")
#: PNG pixels per CSS pixel: sharp on a high-density screen, and in print.
_SCALE = 2.0


def write_figure(figure: Figure, path: Path, theme: Theme = "light", *, width: int = WIDTH) -> None:
    """Write a figure to a file, as SVG or PNG by the file's suffix.

    Raises ConfigError for another suffix, or if a font for a PNG is missing; HostError if the file
    cannot be written.
    """
    suffix = path.suffix.lower()
    if suffix not in FORMATS:
        raise ConfigError(
            f"cannot write a figure as {path.name}", hint=f"use {' or '.join(FORMATS)}"
        )
    opaque = replace(figure, spec={**figure.spec, "background": PALETTES[theme].background})
    made = opaque.svg(theme, width) if suffix == ".svg" else _png(opaque.chart(theme, width))
    write_named(path, made)


def _png(chart: Spec) -> bytes:
    import vl_convert

    fonts = chinese_font(str(chart))
    if fonts is not None:
        _register(fonts)
    try:
        return vl_convert.vegalite_to_png(chart, scale=_SCALE, allowed_base_urls=[])
    except ValueError as error:
        raise HostError(f"vl-convert cannot draw the figure: {error}") from error


@cache
def _register(fonts: Path) -> None:
    """Register the fonts of a folder with the converter, once: it remembers them."""
    import vl_convert

    vl_convert.register_font_directory(str(fonts))
