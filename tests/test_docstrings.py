"""Docstrings are in the imperative (ruff's D401), and never begin with a question."""

import ast
import re
from pathlib import Path

import labctl

QUESTION = re.compile(r"(What|Whether|How|Why)\b")


def test_no_docstring_opens_with_a_question() -> None:
    root = Path(labctl.__file__).parent
    found = [
        f"{path.relative_to(root)}:{node.body[0].lineno}: {text.splitlines()[0]}"
        for path in sorted(root.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and (text := ast.get_docstring(node)) is not None
        and QUESTION.match(text)
    ]
    assert found == []
