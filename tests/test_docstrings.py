"""Docstrings and comments read once: an imperative first (ruff's D401), and no riddle."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import labctl

QUESTION = re.compile(r"(What|Whether|How|Why|Where|Which|Who|When)\b")
#: Nouns that stand nowhere, denials without "not", and words that need a second reading.
RIDDLE = re.compile(
    r"\btheirs\b|^(Those|That of)\b|\bnothing of (it|them|its)\b"
    r"|\b(is|are|was|were) none (with|of (it|them|its|the))\b"
    r"|\bnor (is|are) (one|any|those|that)\b"
    r"|\b(come|comes|came) to (its|their|an) end\b|\b(go|goes|went) on with\b|\bfor want of\b"
)


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


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
        for line, text in docstrings(tree_of(path))
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
        for line, text in descriptions(tree_of(path))
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


def comments(code: str) -> Iterator[tuple[int, str]]:
    """What stands behind the first ``#`` of each line: comments, and texts that have this mark."""
    for number, line in enumerate(code.splitlines(), 1):
        if "#" in line:
            yield number, line.partition("#")[2].lstrip(": ")


def test_no_text_of_the_code_is_a_riddle() -> None:
    root = Path(labctl.__file__).parent
    found = [
        f"{path.relative_to(root)}:{line}: {text}"
        for path in sorted(root.rglob("*.py"))
        for code in [path.read_text()]
        for line, text in [*docstrings(tree_of(path)), *comments(code)]
        if RIDDLE.search(text)
    ]
    assert found == []


@pytest.mark.parametrize(
    "text",
    [
        "Those that count: neither warm-ups nor failures.",
        "Return what is no name of theirs.",
        "a gap that holds several is none of them",
        "nor is one that a mistake in the lab's files cut",
        "Go on with a run that did not come to its end.".lower(),
    ],
)
def test_a_riddle_is_found(text: str) -> None:
    assert RIDDLE.search(text)


def test_no_help_of_a_command_is_indented_twice() -> None:
    """click wraps a paragraph as it is: further spaces would stand in the middle of its lines."""
    found = [
        f"{path.name}: {line}"
        for path in sorted((Path(labctl.__file__).parent / "cli").rglob("*.py"))
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.FunctionDef)
        if any(".command(" in ast.unparse(one) or ".group(" in ast.unparse(one)
               for one in node.decorator_list)
        for paragraph in (ast.get_docstring(node) or "").split("\n\n")
        if "\b" not in paragraph
        for line in paragraph.splitlines()
        if line.startswith(" ")
    ]  # fmt: skip
    assert found == []
