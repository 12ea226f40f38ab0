"""The catalogue of Chinese texts, ``labctl/locale``."""

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from string import Formatter

import pytest
from babel.messages.pofile import read_po

from labctl.board.status import BOARD_USES
from labctl.compare.regressions import ChangeStatus
from labctl.index.filters import KINDS, STATES, VERDICTS
from labctl.report.page.language import Language
from labctl.state.health import Health

ROOT = Path(__file__).parents[2]
PLACE = ROOT / "labctl/locale/zh_CN/LC_MESSAGES"


def test_the_catalogue_is_that_of_the_sources(tmp_path: Path) -> None:
    """Both files agree, no text of a page lacks Chinese, and no translation is left over."""
    script = ROOT / "scripts/catalogue"
    made = subprocess.run(
        [sys.executable, script, tmp_path], capture_output=True, text=True, check=False
    )
    assert (made.returncode, made.stderr) == (0, "")
    for name in ("labctl.po", "labctl.mo"):
        assert (tmp_path / name).read_bytes() == (PLACE / name).read_bytes(), f"run {script}"


def test_a_translation_has_the_fields_of_its_text() -> None:
    with (PLACE / "labctl.po").open("rb") as file:
        entries = [entry for entry in read_po(file) if entry.id]
    assert len(entries) > 500
    for entry in entries:
        found = [sorted(fields(text)) for text in (str(entry.id), str(entry.string))]
        assert found[0] == found[1], entry.id


def fields(text: str) -> list[str]:
    return [name for _, name, _, _ in Formatter().parse(text) if name is not None]


@pytest.mark.parametrize(
    "words",
    [BOARD_USES, Health, ChangeStatus, KINDS, STATES, VERDICTS],
    ids=["states of boards", "health", "changes", "kinds", "states of runs", "verdicts"],
)
def test_a_word_that_a_page_takes_from_a_list_has_chinese(words: Iterable[str]) -> None:
    assert [word for word in words if Language("zh").word(word) == word] == []
