"""Imports through package faces, which import-linter does not follow into their stubs.

A face is an ``__init__.py`` whose names are listed in ``__init__.pyi`` and imported when they are
first used. An import of such a name counts here as one of the module that defines it.
"""

import ast
import tomllib
from collections.abc import Callable, Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import labctl

ROOT = Path(labctl.__file__).parent
PYPROJECT = ROOT.parent / "pyproject.toml"


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): ast.parse(path.read_text()) for path in ROOT.rglob("*.py")}
#: ``labctl.stats.mean`` -> ``labctl.stats.intervals``, for each name of each stub.
HOMES = {
    f"{module_name(path)}.{alias.name}": f"{module_name(path)}.{node.module}"
    for path in ROOT.rglob("__init__.pyi")
    for node in ast.parse(path.read_text()).body
    if isinstance(node, ast.ImportFrom)
    for alias in node.names
}


def at_import(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes that run when a module is imported: not in functions, not for types alone."""
    for node in ast.iter_child_nodes(tree):
        for_types = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        if not for_types and not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node
            yield from at_import(node)


def imported(
    tree: ast.Module, nodes: Callable[[ast.AST], Iterator[ast.AST]] = ast.walk
) -> set[str]:
    """The modules of labctl that a module imports, with those behind the faces."""
    found = set()
    for node in nodes(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {
                HOMES.get(name, name if name in MODULES else str(node.module)) for name in names
            }
    return {name for name in found if name in MODULES}


def floors() -> dict[str, int]:
    """The floor of each package: imports go from a lower number to a higher one."""
    contracts = tomllib.loads(PYPROJECT.read_text())["tool"]["importlinter"]["contracts"]
    layers = contracts[0]["layers"]
    return {name: n for n, layer in enumerate(layers) for name in layer.split(" | ")}


def upward(module: str, tree: ast.Module) -> list[str]:
    """The imports of a module from a higher floor, or from another package of its own floor."""
    floor = floors()
    own = module.split(".")[1]
    return [
        f"{module} imports {name}"
        for name in imported(tree)
        if (other := name.partition(".")[2].partition(".")[0])
        and other != own
        and floor[other] <= floor[own]
    ]


def test_stubs_were_found() -> None:
    assert len(HOMES) > 300
    assert set(HOMES.values()) <= MODULES.keys()


def test_imports_through_faces_go_down() -> None:
    inside = [name for name in MODULES if name not in ("labctl", "labctl.__main__")]
    assert [line for name in inside for line in upward(name, MODULES[name])] == []


def test_there_is_no_circle_of_imports() -> None:
    graph = {name: imported(tree, at_import) - {name} for name, tree in MODULES.items()}
    TopologicalSorter(graph).prepare()


def test_an_import_upwards_and_a_circle_are_found() -> None:
    tree = ast.parse("from labctl.runs import Observer")
    assert upward("labctl.board.agent", tree) == ["labctl.board.agent imports labctl.runs.observer"]
    circle = {name: imported(tree, at_import) - {name} for name, tree in MODULES.items()}
    below = next(iter(circle["labctl.runs.run"]))
    circle[below].add("labctl.runs.run")
    with pytest.raises(CycleError):
        TopologicalSorter(circle).prepare()
