"""What summaries, gates and checks need: records, and nothing that reaches a board."""

import json
import sys
from collections.abc import Iterator
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


ROOT = Path(labctl.__file__).parent.parent


def table_rows(heading: str) -> Iterator[tuple[str, str]]:
    """Both cells of each row of the tables below a heading of docs/architecture.md."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    for line in text.partition(f"## {heading}\n")[2].partition("\n## ")[0].splitlines():
        if line.startswith("| ") and not line.startswith(("| package |", "| room |")):
            _, left, right, _ = line.split("|")
            yield left, right


def named_files(cell: str) -> Iterator[str]:
    """The paths of a cell; a name alone is beside the path before it."""
    folder = ""
    for word in cell.split("`")[1::2]:
        path = word if "/" in word else f"{folder}/{word}"
        folder = path.rpartition("/")[0]
        yield path


def test_each_file_of_the_map_is_there() -> None:
    named = [name for _, cell in table_rows("Where is it?") for name in named_files(cell)]
    assert len(named) >= 150
    folders = {name.partition("/")[0] for name in named}
    assert folders == {"docs", "labctl", "scripts", "tests", "toolchains"}
    assert [name for name in named if not (ROOT / name).is_file()] == []


def test_each_package_of_the_floors_is_there() -> None:
    rows = table_rows("Floors, lowest first")
    named = [name for cell, _ in rows for name in cell.split("`")[1::2]]
    assert {"runs", "runs.context"} < set(named)
    paths = [ROOT / "labctl" / name.replace(".", "/") for name in named]
    missing = [
        path for path in paths if not path.is_dir() and not path.with_suffix(".py").is_file()
    ]
    assert missing == []


def test_a_name_alone_is_beside_the_path_before_it() -> None:
    cell = " `labctl/web/pages.py`, `api.py`; `toolchains/agent/lease.c`, by `main.c` "
    found = ["labctl/web/pages.py", "labctl/web/api.py", "toolchains/agent/lease.c"]
    assert list(named_files(cell)) == [*found, "toolchains/agent/main.c"]
