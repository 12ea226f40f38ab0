"""The terminal layer prints JSON; the types that it describes, or functions beside them, make it.

The rule, for each module of ``labctl/cli`` that prints JSON: none of its functions makes a dict
with a key that stands in the source. What is no JSON there is named below.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import labctl.cli

CLI = Path(labctl.cli.__file__).parent
#: Module and function -> what its dict is.
ALLOWED = {
    "boards_health.py _decide": "details of an entry of the audit log",
    "build.py _source": "the source, as a recipe has it",
    "error_output.py print_error": "an error of this layer, as click's are too",
    "error_output.py _print_json": "an error of this layer, as click's are too",
    "hdc/listing.py as_hdc": "words for the states of a board",
    "queue.py move": "details of an entry of the audit log",
    "virtual_board.py virtual_board": "a field of the faults that is set anew",
    "virtual_board.py _snippet": "a board in devices.yaml",
}


def shapes(source: str) -> Iterator[str]:
    """Yield the name of each function that makes a shape, in a module that prints JSON."""
    tree = ast.parse(source)
    if not any(map(prints_json, ast.walk(tree))):
        return
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    for function in functions:
        if any(map(makes_keys, ast.walk(function))):
            yield function.name


def prints_json(node: ast.AST) -> bool:
    """True for ``json.dumps`` and ``dumps``."""
    return "dumps" in (getattr(node, "attr", None), getattr(node, "id", None))


def makes_keys(node: ast.AST) -> bool:
    """True for ``{"key": ...}``, ``dict(key=...)``, ``found["key"] = ...`` and ``del`` of one."""
    match node:
        case ast.Dict(keys=keys):
            return any(is_text(key) for key in keys)
        case ast.Call(func=ast.Name(id="dict"), keywords=keywords):
            return any(one.arg for one in keywords)
        case ast.Subscript(slice=key, ctx=ast.Store() | ast.Del()):
            return is_text(key)
    return False


def is_text(node: ast.AST | None) -> bool:
    """True for a text in the source."""
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def test_no_command_makes_the_json_that_it_prints() -> None:
    found = {
        f"{path.relative_to(CLI).as_posix()} {name}"
        for path in CLI.rglob("*.py")
        for name in shapes(path.read_text())
    }
    assert found - ALLOWED.keys() == set(), "make it beside the type that it describes"
    assert ALLOWED.keys() - found == set(), "no exception is needed any more"


def test_no_type_of_the_terminal_layer_has_a_document() -> None:
    """A module that hands its JSON to another to print escapes the rule above."""
    found = [
        f"{path.relative_to(CLI).as_posix()} {node.name}"
        for path in CLI.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
        for method in node.body
        if isinstance(method, ast.FunctionDef) and method.name.endswith("document")
    ]
    assert found == []


PRINT = "import json\ndef show(one):\n    print(json.dumps({}))\n"


@pytest.mark.parametrize(
    "made",
    [
        '{"a": one}',
        '[{"a": one} for one in found]',
        '{**one.document(), "a": one}',
        "dict(a=one)",
        "_document(one)",
    ],
)
def test_the_rule_finds_every_way_to_make_a_shape(made: str) -> None:
    helper = 'def _document(one):\n    return {"a": one}\n' if "_document" in made[:9] else ""
    assert list(shapes(PRINT.format(made) + helper))
    assert not list(shapes(PRINT.format("one.document()")))


@pytest.mark.parametrize("line", ['found["a"] = 1', 'del found["a"]'])
def test_the_rule_finds_keys_that_are_changed(line: str) -> None:
    source = f"import json\ndef show(found):\n    {line}\n    print(json.dumps(found))\n"
    assert list(shapes(source)) == ["show"]
