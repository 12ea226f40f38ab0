"""Imports through package faces, which import-linter does not follow into their stubs.

A face is an ``__init__.py`` whose names are listed in ``__init__.pyi`` and imported when they are
first used. An import of such a name counts here as one of the module that defines it.
"""

import ast
import tomllib
from collections.abc import Callable, Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

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


CONTRACTS = tomllib.loads(PYPROJECT.read_text())["tool"]["importlinter"]["contracts"]
LAYERS = [contract for contract in CONTRACTS if contract["type"] == "layers"]
FORBIDDEN = [contract for contract in CONTRACTS if contract["type"] == "forbidden"]
#: Module -> all modules that it imports, also inside functions.
IMPORTS = {name: imported(tree) for name, tree in MODULES.items()}


def inside(name: str, container: str) -> str | None:
    """The part of a container that a module belongs to: ``runs`` of labctl.runs.plan in labctl."""
    return name.removeprefix(f"{container}.").partition(".")[0] if name != container else None


def upward(module: str, names: set[str], contract: dict[str, Any]) -> list[str]:
    """The imports of a module from a higher layer, or from another part of its own layer."""
    [container] = contract["containers"]
    floor = {part: n for n, row in enumerate(contract["layers"]) for part in row.split(" | ")}
    own = inside(module, container)
    found = []
    for name in sorted(names):
        if not name.startswith(f"{container}.") or (other := inside(name, container)) == own:
            continue
        if own in floor and other in floor and floor[other] <= floor[own]:
            found.append(f"{module} imports {name}")
    return found


def reached(names: set[str]) -> set[str]:
    """Modules, and all that these import, and so on."""
    found, new = set(names), set(names)
    while new := {below for name in new for below in IMPORTS[name]} - found:
        found |= new
    return found


def below(package: str) -> set[str]:
    return {name for name in MODULES if f"{name}.".startswith(f"{package}.")}


def test_stubs_were_found() -> None:
    assert len(HOMES) > 300
    assert set(HOMES.values()) <= MODULES.keys()


@pytest.mark.parametrize("contract", LAYERS, ids=lambda contract: contract["name"])
def test_imports_through_faces_go_down(contract: dict[str, Any]) -> None:
    modules = below(contract["containers"][0]) - {"labctl"}
    assert [line for name in modules for line in upward(name, IMPORTS[name], contract)] == []


@pytest.mark.parametrize("contract", FORBIDDEN, ids=lambda contract: contract["name"])
def test_what_is_forbidden_is_not_reached_through_faces(contract: dict[str, Any]) -> None:
    sources = {name for package in contract["source_modules"] for name in below(package)}
    forbidden = {name for package in contract["forbidden_modules"] for name in below(package)}
    assert reached(sources) & forbidden == set()


def test_there_is_no_circle_of_imports() -> None:
    graph = {name: imported(tree, at_import) - {name} for name, tree in MODULES.items()}
    TopologicalSorter(graph).prepare()


def test_an_import_upwards_and_a_circle_are_found() -> None:
    names = imported(ast.parse("from labctl.runs import Observer"))
    found = upward("labctl.board.agent", names, LAYERS[0])
    assert found == ["labctl.board.agent imports labctl.runs.observer"]
    assert "labctl.board.agent" in reached({"labctl.runs.run"})
    circle = {name: imported(tree, at_import) - {name} for name, tree in MODULES.items()}
    lower = next(iter(circle["labctl.runs.run"]))
    circle[lower].add("labctl.runs.run")
    with pytest.raises(CycleError):
        TopologicalSorter(circle).prepare()
