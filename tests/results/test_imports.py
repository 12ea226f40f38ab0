"""What summaries, gates and checks need: records, and nothing that reaches a board."""

import json
import sys
from pathlib import Path

import labctl
from labctl.process import run

LISTING = """
import importlib, json, pkgutil, sys, labctl.results
for module in pkgutil.iter_modules(labctl.results.__path__):
    importlib.import_module(f"labctl.results.{module.name}")
print(json.dumps(sorted(sys.modules)))
"""
NOT_NEEDED = ("hdc", "build", "board", "transport", "gguf")


def test_results_import_little() -> None:
    loaded = json.loads(run([sys.executable, "-c", LISTING], timeout=60).stdout)
    own = [name for name in loaded if name.split(".")[0] == "labctl"]
    assert len(own) <= 55
    assert [name for name in own if name.split(".")[1:2] and name.split(".")[1] in NOT_NEEDED] == []
    assert {"numpy", "scipy", "httpx", "requests", "gguf"}.isdisjoint(loaded)


def test_each_file_of_the_map_is_there() -> None:
    root = Path(labctl.__file__).parent.parent
    text = (root / "docs" / "architecture.md").read_text()
    rows = text.partition("## Where is it?")[2].partition("\n## ")[0]
    named = [word for word in rows.split("`") if word.startswith("labctl/")]
    assert len(named) >= 40
    assert [name for name in named if not (root / name).is_file()] == []
