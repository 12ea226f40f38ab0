"""The table of uses: docs = data = behaviour."""

import re
from pathlib import Path

from labctl.state.uses import USE_KINDS, USES, Use

DOCS = Path(__file__).parents[2] / "docs" / "queue.md"
WORDS = {
    "queues": {"waits": True, "fails": False},
    "counts": {"counts": True, "no": False},
    "health": {"fit": "fit", "fit, or inspection due": "uninspected", "any": "any"},
    "limits": {"counts": True, "no": False},
    "left_program": {"refused": "refused", "continues its own": "continues", "ends it": "ends"},
}


def documented() -> dict[str, Use]:
    section = DOCS.read_text().partition("## What uses a board")[2].partition("\n## ")[0]
    rows = [re.split(r"\s*\|\s*", line)[1:-1] for line in section.splitlines() if "| `" in line]
    return {
        row[0].strip("`"): Use(
            **{name: words[cell] for (name, words), cell in zip(WORDS.items(), row[2:], strict=True)}
        )
        for row in rows
    }


def test_the_docs_have_the_table() -> None:
    assert documented() == USES
    assert tuple(USES) == USE_KINDS
