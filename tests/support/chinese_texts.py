"""A Chinese page with an English text fails its test."""

import pytest

from labctl.report.page.language import Language


@pytest.fixture(autouse=True)
def every_text_has_chinese(monkeypatch: pytest.MonkeyPatch) -> None:
    """Words of records may lack Chinese: a person may have made them up."""
    translated = Language.__call__

    def checked(self: Language, text: str, /, **values: object) -> str:
        assert self.code == "en" or self.word(text) != text or text in SAME, text
        return translated(self, text, **values)

    monkeypatch.setattr(Language, "__call__", checked)


#: The same in both languages.
SAME = {"TPOT", "p10", "p50", "p90", "DRAM {rate}"}
