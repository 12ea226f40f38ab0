"""Text files are UTF-8 whatever the locale says: each call that opens one names the encoding."""

import ast
from collections.abc import Iterator
from pathlib import Path

import labctl

ROOT = Path(labctl.__file__).parent
#: Functions that open a file, and the position of their mode; None: always text.
_OPENING = {"read_text": None, "write_text": None, "open": 0, "fdopen": 1}


def without_encoding(text: str) -> Iterator[int]:
    """Yield the lines of calls that open a text file in the encoding of the locale."""
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Call) or any(k.arg == "encoding" for k in node.keywords):
            continue
        if isinstance(node.func, ast.Name):
            name, first = node.func.id, 1
        elif isinstance(node.func, ast.Attribute):
            name, first = node.func.attr, _OPENING.get(node.func.attr)
        else:
            continue
        if name not in _OPENING or any(k.arg == "fileobj" for k in node.keywords):
            continue
        if first is None:
            yield node.lineno
            continue
        modes = [*node.args[first:], *(k.value for k in node.keywords if k.arg == "mode")]
        mode = modes[0].value if modes and isinstance(modes[0], ast.Constant) else None
        if isinstance(mode, str) and mode and set(mode) <= set("rwaxt+"):
            yield node.lineno


def test_such_calls_are_found() -> None:
    text = 'p.read_text()\np.open("w")\nos.fdopen(1, "a")\nopen(p, "r")\np.open("rb")\nx.open()\n'
    assert list(without_encoding(text)) == [1, 2, 3, 4]


def test_no_text_file_is_opened_in_the_encoding_of_the_locale() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in ROOT.rglob("*.py")
        for line in without_encoding(path.read_text(encoding="utf-8"))
    ]
    assert found == []
