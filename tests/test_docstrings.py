"""Docstrings are in the imperative (ruff's D401), and never begin with a question."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import labctl

QUESTION = re.compile(r"(What|Whether|How|Why|Where|Which|Who|When)\b")

DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Docstrings of modules, classes, functions and (as pydantic reads them) attributes."""
    for node in ast.walk(tree):
        if isinstance(node, DOCUMENTED) and (text := ast.get_docstring(node)) is not None:
            yield node.body[0].lineno, text
        if isinstance(node, ast.Module | ast.ClassDef):
            for before, after in zip(node.body, node.body[1:], strict=False):
                match before, after:
                    case ast.Assign() | ast.AnnAssign(), ast.Expr(value=ast.Constant(value=str(s))):
                        yield after.lineno, s


def test_no_docstring_opens_with_a_question() -> None:
    root = Path(labctl.__file__).parent
    texts = [
        (path.relative_to(root), line, text)
        for path in sorted(root.rglob("*.py"))
        for line, text in docstrings(ast.parse(path.read_text()))
    ]
    assert len(texts) > 2000
    found = [f"{path}:{line}: {text}" for path, line, text in texts if QUESTION.match(text)]
    assert found == []


def descriptions(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Literal ``description`` texts of pydantic's ``Field(...)``."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id="Field"), keywords=keywords):
                for keyword in keywords:
                    match keyword:
                        case ast.keyword(arg="description", value=ast.Constant(value=str(text))):
                            yield node.lineno, text


def test_no_description_of_a_field_opens_with_a_question() -> None:
    root = Path(labctl.__file__).parent
    texts = [
        (path.relative_to(root), line, text)
        for path in sorted(root.rglob("*.py"))
        for line, text in descriptions(ast.parse(path.read_text()))
    ]
    assert len(texts) > 100
    found = [f"{path}:{line}: {text}" for path, line, text in texts if QUESTION.match(text)]
    assert found == []


def test_descriptions_are_looked_at() -> None:
    tree = ast.parse('class A:\n    x: int = Field(1, description="Whether x")\n')
    assert list(descriptions(tree)) == [(2, "Whether x")]


def test_attributes_are_looked_at() -> None:
    tree = ast.parse('class A:\n    x: int = 1\n    """Whether x."""\n')
    assert list(docstrings(tree)) == [(3, "Whether x.")]
