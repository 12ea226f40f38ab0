"""The table of mistakes that docs/accuracy.md shows: our graders and others."""

from pathlib import Path

import pytest
from labelled_answers import FLEXIBLE_EXTRACT, STRICT_MATCH, grader, row

pytestmark = pytest.mark.bench
DOCS = Path(__file__).parents[2] / "docs" / "accuracy.md"


def test_the_table_of_mistakes() -> None:
    rows = [
        *(row("boxed", f"`{name}`", grader(name)) for name in ("boxed", "qwen", "math-verify")),
        *(row("numeric", f"`{name}`", grader(name)) for name in ("numeric", "qwen", "math-verify")),
        row("numeric", "gsm8k flexible-extract", FLEXIBLE_EXTRACT),
        row("numeric", "gsm8k strict-match", STRICT_MATCH),
        row("choice", "`choice`", grader("choice")),
        row("choice", "`qwen`", grader("qwen")),
    ]
    print("", *rows, sep="\n")
    assert "\n".join(rows) in DOCS.read_text(encoding="utf-8")
