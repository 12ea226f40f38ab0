"""The languages of reports and of the dashboard.

The English text is the key of the Chinese text in the catalogue, labctl/locale (GNU gettext), which
``scripts/catalogue`` maintains. ``str.format`` inserts values.
"""

from collections.abc import Iterable
from functools import cache
from gettext import GNUTranslations, NullTranslations
from importlib import resources
from typing import Literal, TypeAlias

from labctl.compare.equal_latency.words import Sentence

Code: TypeAlias = Literal["en", "zh"]

#: Maximum number of names in a sentence or a title.
MOST_NAMES = 3


@cache
def _texts(code: Code) -> NullTranslations:
    if code == "en":
        return NullTranslations()
    file = resources.files("labctl").joinpath("locale/zh_CN/LC_MESSAGES/labctl.mo")
    with file.open("rb") as compiled:
        return GNUTranslations(compiled)


class Language:
    """Texts of a page in one language; a text without a translation stays English."""

    def __init__(self, code: Code):
        self.code: Code = code
        self._texts = _texts(code)

    def __call__(self, text: str, /, **values: object) -> str:
        """Return an English text in this language, with values inserted."""
        return self.word(text).format(**values)

    def sentence(self, text: str) -> str:
        """Return a sentence of a latency match in this language; another text unchanged."""
        return self(text.template, **text.values) if isinstance(text, Sentence) else text

    def word(self, text: str) -> str:
        """Return a word of a record in this language; its braces are not fields."""
        return self._texts.gettext(text) if text else ""

    def listed(self, names: Iterable[str]) -> str:
        """Return names as a list in a sentence."""
        return ("、" if self.code == "zh" else ", ").join(names)

    def some(self, names: Iterable[str]) -> str:
        """Return at most :data:`MOST_NAMES` different names as a list, and the number of others."""
        found = list(dict.fromkeys(names))
        shown = self.listed(found[:MOST_NAMES])
        more = len(found) - MOST_NAMES
        return self("{names} and {count} more", names=shown, count=more) if more > 0 else shown

    def clauses(self, parts: Iterable[str]) -> str:
        """Return the facts of one sentence, joined."""
        return ("；" if self.code == "zh" else "; ").join(parts)

    def joined(self, sentences: Iterable[str]) -> str:
        """Return sentences, joined."""
        return ("" if self.code == "zh" else " ").join(sentences)
