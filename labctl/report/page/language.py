"""The languages of reports: English texts are keys, and stand beside their Chinese ones."""

from collections.abc import Iterable, Mapping

from labctl.compare.equal_latency.words import Sentence
from labctl.report.figures.words import Language as LanguageCode
from labctl.report.page.chinese import CHINESE


class Language:
    """Texts of a report, or of other pages, in one language."""

    def __init__(self, code: LanguageCode, chinese: Mapping[str, str] = CHINESE):
        self.code: LanguageCode = code
        self._chinese = chinese

    def __call__(self, text: str, /, **values: object) -> str:
        """Return an English text in this language, with the values in it.

        Raises KeyError for a text that has no translation.
        """
        return (self._chinese[text] if self.code == "zh" else text).format(**values)

    def sentence(self, text: str) -> str:
        """Return a sentence of a latency match in this language; another text as it is."""
        return self(text.template, **text.values) if isinstance(text, Sentence) else text

    def word(self, text: str) -> str:
        """Return a word of a record in this language; one without a translation as it is."""
        return self._chinese.get(text, text) if self.code == "zh" else text

    def listed(self, names: Iterable[str]) -> str:
        """Return names one after the other."""
        return ("、" if self.code == "zh" else ", ").join(names)

    def joined(self, sentences: Iterable[str]) -> str:
        """Return sentences one after the other."""
        return ("" if self.code == "zh" else " ").join(sentences)
