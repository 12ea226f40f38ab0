"""A font with Chinese characters on this host: charts are drawn without a browser that has one."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from labctl.errors import ConfigError
from labctl.process import run

#: Names of fonts for Chinese as systems ship them: Noto and Source Han, WenQuanYi, Droid, Apple,
#: Microsoft.
_NAMES = (
    *("notosanscjk", "notosanssc", "notoserifcjk", "sourcehansans", "wqy-", "droidsansfallback"),
    *("pingfang", "hiragino sans gb", "stheiti", "msyh", "simsun", "simhei", "uming", "ukai"),
)
#: Seconds for a list that fontconfig may have to make first.
_LIST_SECONDS = 30
_FONTS = (".ttf", ".ttc", ".otf", ".otc")
#: CJK punctuation, ideographs, full-width forms.
_CJK = ((0x3000, 0x9FFF), (0xF900, 0xFAFF), (0xFF00, 0xFFEF), (0x20000, 0x3FFFF))


def chinese_font(text: str) -> Path | None:
    """Return the folder of a font for the Chinese characters of a text; None if it has none.

    Raises ConfigError where no such font is found.
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
    """Yield fonts with Chinese characters: those that fontconfig knows, then by their names."""
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
