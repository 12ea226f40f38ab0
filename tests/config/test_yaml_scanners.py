"""libyaml and PyYAML's own scanner read the same of a text, or PyYAML's alone is used."""

import random
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from yaml.nodes import MappingNode, Node, ScalarNode

import labctl
from labctl import package_data
from labctl.config.yaml import loader
from labctl.config.yaml.loader import NotYaml

ODD = [
    "a: b:c",
    "{a:1}",
    "{a: b, c:}",
    "{a:\n}",
    "{a: # c\n\n}",
    "{\"a\":b, 'c': d}",
    "[[a, b], {c: d}, []]",
    "a: \tb",
    "a: [1, 2,\n 3]",
    "a: é漢字 # ü\nb: 😀 x\nc: d",
    "a: |\n  x\n   y\n",
    "a: |2+\n   x\n\n",
    "a: >-\n  x\n  y\n\n  z",
    "a: &x [1]\nb: *x",
    "'<<': 1\n<<: 2",
    "? a\n: b",
    "[aa:b ?c]",
    "a: !!int 3",
    "a:\r\n- b\r\n",
    "a: b\x85c: d",
    "\ufeffa: 1",
    "\n\ufeffa: 1",
    "# only a comment",
    "--- a\n...\n",
    'a: "\\x41\\/\\u00e9"',
    "a: 'x\n\n  y'",
]
PIECES = list(":-?[]{},#&*!|>'\"%@` \n\n  ab1.~<=")


def content(node: Node | None) -> Any:
    """What a reader has of a node. Where an empty value is, behind a comment, is another place."""
    if node is None:
        return None
    mark = node.start_mark
    if isinstance(node, ScalarNode):
        place = (mark.line, mark.column) if node.value else None
        return node.tag, node.value, bool(node.style), place
    if isinstance(node, MappingNode):
        return node.tag, [(content(key), content(value)) for key, value in node.value]
    return node.tag, [content(one) for one in node.value]


def same(text: str) -> None:
    read = loader._compose_fast(text)
    if read is None:
        return
    try:
        slowly = loader._compose_slowly(text)
    except NotYaml as error:
        raise AssertionError(f"only libyaml reads {text!r}") from error
    assert content(read) == content(slowly), repr(text)


def shipped_texts() -> list[str]:
    return [path.read_text() for path in sorted(package_data.RECIPES.glob("*.yaml"))]


@pytest.mark.skipif(not yaml.__with_libyaml__, reason="PyYAML is without libyaml here")
def test_libyaml_reads_what_pyyaml_reads() -> None:
    for text in (*shipped_texts(), *ODD):
        same(text)
    assert loader._compose_fast("a: [1, {b: c}]") is not None
    chance = random.Random(20261123)
    for _ in range(10_000):
        letters = list(chance.choice(ODD))
        for _ in range(chance.randrange(1, 6)):
            place = chance.randrange(len(letters) + 1)
            letters[place : place + chance.randrange(2)] = chance.choice(["", *PIECES])
        same("".join(letters))


def test_without_libyaml_the_same_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "a: [1, {b: c}]\nd: yes\n"
    before = loader.read_yaml(text)
    monkeypatch.setattr(yaml, "__with_libyaml__", False)
    loader._read.cache_clear()
    assert loader.read_yaml(text) == before


def test_what_users_write_is_read_in_one_place() -> None:
    root = Path(labctl.__file__).parent
    reads = re.compile(r"yaml\.(safe_load|load|full_load|compose|SafeLoader|CSafeLoader)\b")
    found = [path for path in root.rglob("*.py") if reads.search(path.read_text())]
    assert {path.parent for path in found} == {root / "config" / "yaml"}
