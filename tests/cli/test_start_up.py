"""What commands import: each library that is not needed is time that a person waits."""

import ast
import importlib
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from pkgutil import iter_modules

import pytest
from hdc_server import USB_KEY, Board, stand_in_server

import labctl
from labctl.virtual.board import Served, VirtualBoard, serving

#: Models of devices.yaml and recipes, and the reader of both.
CONFIGURATION = {"pydantic", "pydantic_core", "yaml", "labctl.config.lab", "labctl.config.yaml"}
#: What a command on a board in good order has no use for either.
HEAVY = CONFIGURATION | {
    "cryptography",
    "lz4",
    "numpy",
    "httpx",
    "rich",
    "tenacity",
    "logging",
    "subprocess",
    "hashlib",
    "labctl.process",
    "labctl.hdc.daemon",
    "labctl.hdc.server_client",
    "labctl.hdc.host.files",
    "labctl.hdc.host.forwarding",
    "labctl.transport.copy",
    "labctl.transport.local",
}
#: What no command that only reads files of this host has a use for.
LIBRARIES = {"cryptography", "fabric", "gguf", "httpx", "lz4", "numpy", "paramiko"} | {
    "requests",
    "scipy",
    "labctl.virtual",
}
RUN = (
    "import sys; from labctl.cli.root import run_cli\n"
    "status = run_cli(sys.argv[1:]); sys.stdout.flush()\n"
    "print('\\nimported:', *sys.modules, file=sys.stderr); sys.exit(status)"
)


@contextmanager
def reached(way: str, board: Served) -> Iterator[list[str]]:
    """The words that name a board without a lab."""
    if way == "HOST:PORT":
        yield ["-t", board.address]
        return
    with stand_in_server({USB_KEY: Board(board.address)}) as server:
        yield ["--server", f"127.0.0.1:{server.port}", "-t", USB_KEY]


@pytest.fixture
def board(tmp_path: Path) -> Iterator[Served]:
    with serving(VirtualBoard("b", tmp_path / "board")) as (board,):
        yield board


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A lab that cannot be read: who names a board otherwise does not need it."""
    folder = tmp_path / "lab"
    folder.mkdir()
    (folder / "devices.yaml").write_text("boards: [")
    (folder / "file").write_text("content")
    return folder


def imported(words: list[str], folder: Path, *, status: int = 0) -> set[str]:
    """The modules that ``labctl WORDS`` has imported at its end."""
    done = subprocess.run(
        [sys.executable, "-c", RUN, *words], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == status, done.stderr
    return set(done.stderr.rpartition("imported:")[2].split())


@pytest.mark.parametrize("way", ["HOST:PORT", "key"])
def test_a_board_that_needs_no_lab_needs_no_configuration(
    way: str, board: Served, folder: Path
) -> None:
    remote = f"{board.workdir}/file"
    with reached(way, board) as target:
        for words, status in (
            (["shell", "exit 3"], 3),
            (["list"], 0),
            (["send", "file", remote], 0),
            (["recv", remote, "back"], 0),
        ):
            found = imported(["hdc", *target, *words], folder, status=status)
            assert not found & CONFIGURATION, words
    assert (folder / "back").read_text() == "content"


def test_a_command_on_a_board_imports_nothing_heavy(board: Served, folder: Path) -> None:
    assert not imported(["hdc", "-t", board.address, "shell", "true"], folder) & HEAVY


def test_no_command_of_hdc_brings_configuration_along() -> None:
    code = (
        "import importlib, sys; from labctl.cli.hdc.group import COMMANDS\n"
        "for name, one in COMMANDS.items():\n"
        "    importlib.import_module(one.module_and_function(name)[0])\n"
        "print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not set(done.stdout.split()) & CONFIGURATION


@pytest.mark.parametrize(
    ("words", "not_needed"),
    [
        ("runs", LIBRARIES | {"rich", "labctl.engines", "labctl.report"}),
        ("models list", LIBRARIES | {"rich", "labctl.runs", "labctl.build", "labctl.board"}),
        ("artifacts list", LIBRARIES | {"labctl.config.lab", "labctl.hdc", "labctl.runs"}),
        ("schema recipe", LIBRARIES | {"rich", "labctl.config.lab", "labctl.hdc"}),
        ("init new", LIBRARIES | {"rich", "labctl.runs", "labctl.build", "labctl.models"}),
        ("boards probes", {"httpx", "numpy", "rich", "labctl.runs.probe", "labctl.runs.planning"}),
    ],
)
def test_a_command_that_only_reads_imports_little(
    words: str, not_needed: set[str], tmp_path: Path
) -> None:
    devices = "boards: {b: {target: rk3568, transport: {kind: local}, workdir: w}}\n"
    (tmp_path / "devices.yaml").write_text(devices)
    (tmp_path / "models.yaml").write_text("models: {a: {file: a.gguf}}\n")
    assert not imported(words.split(), tmp_path) & not_needed


def test_no_command_imports_what_few_of_them_use() -> None:
    code = (
        "import importlib, sys; from labctl.cli.root import COMMANDS\n"
        "for name, one in COMMANDS.items():\n"
        "    importlib.import_module(one.module_and_function(name)[0])\n"
        "print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    few = {"numpy", "scipy", "requests", "httpx", "paramiko", "fabric"}
    assert not set(done.stdout.split()) & few


#: Libraries that take longer to import than most commands run; ``gguf`` imports numpy.
SLOW = {"numpy", "scipy", "gguf"}


def run_at_import(nodes: Iterable[ast.AST]) -> Iterator[ast.Import | ast.ImportFrom]:
    """The imports that a module makes when it is imported: not in functions, not for types."""
    for node in nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            yield from run_at_import(node.orelse)
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from run_at_import(ast.iter_child_nodes(node))


def packages(node: ast.Import | ast.ImportFrom) -> set[str]:
    """The packages that an import names: ``numpy`` of ``from numpy.typing import NDArray``."""
    names = (
        [node.module or ""] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names]
    )
    return {name.partition(".")[0] for name in names}


def test_no_module_imports_a_slow_library_before_it_is_used() -> None:
    root = Path(labctl.__file__).parent
    paths = sorted(root.rglob("*.py"))
    assert len(paths) > 600
    found = [
        f"{path.relative_to(root)}:{node.lineno}: {ast.unparse(node)}"
        for path in paths
        for node in run_at_import([ast.parse(path.read_text())])
        if packages(node) & SLOW
    ]
    assert found == []


#: Faces that import modules of their package, and why this costs nobody anything.
EAGER = {
    "labctl.build.container": "one class, imported only to build in a container",
    "labctl.build.remote": "one class, imported only to build over ssh",
    "labctl.doctor": "its only module",
    "labctl.engines.command": "one engine, imported by its entry point",
    "labctl.engines.openharmony": "entry points name its tuples of engines",
    "labctl.evaluation.graders": "the base of all graders; each of them is imported by its name",
}


def faces() -> dict[str, ast.Module]:
    """All packages of labctl, and labctl itself, with their ``__init__.py``."""
    root = Path(labctl.__file__).parent
    return {
        ".".join(path.parent.relative_to(root.parent).parts): ast.parse(path.read_text())
        for path in sorted(root.rglob("__init__.py"))
    }


def own_modules(package: str, face: ast.Module) -> list[str]:
    """The modules of its package that a face imports when it is imported itself."""
    found = []
    for node in run_at_import([face]):
        names = [alias.name for alias in node.names]
        if isinstance(node, ast.ImportFrom):
            names = [f"{package}.{node.module or ''}" if node.level else node.module or ""]
            names = [f"{name}.{alias.name}" for name in names for alias in node.names]
        found += [name for name in names if name.startswith(f"{package}.")]
    return found


def test_each_face_is_lazy_or_has_a_reason() -> None:
    assert [name for name, face in faces().items() if own_modules(name, face)] == sorted(EAGER)


#: The program takes over the signals before it imports anything else; it hands nothing on.
PROGRAM = "labctl.cli"
FACES = [
    name for name, face in faces().items() if "__all__" in ast.unparse(face) and name != PROGRAM
]
LAZY = [name for name in FACES if name not in EAGER]


@pytest.mark.parametrize("name", LAZY)
def test_a_face_has_every_name_that_it_hands_on(name: str) -> None:
    package = importlib.import_module(name)
    for one in package.__all__:
        assert getattr(package, one) is not None
    with pytest.raises(AttributeError, match="nothing"):
        _ = package.nothing
    # A name that is a module's too would be the one or the other, by what was imported first.
    assert not {module.name for module in iter_modules(package.__path__)} & set(package.__all__)


def test_lazy_faces_import_nothing() -> None:
    code = (
        "import importlib, sys\n"
        f"for face in {LAZY}: importlib.import_module(face)\n"
        "print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    own = {name for name in done.stdout.split() if name.partition(".")[0] == "labctl"}
    assert own <= set(faces())
    assert own.isdisjoint(EAGER)


@pytest.mark.parametrize("option", ["-t", "-b", "--board"])
def test_a_board_of_hdc_has_three_spellings(option: str, board: Served, folder: Path) -> None:
    words = [sys.executable, "-m", "labctl", "hdc", option, board.address, "shell", "exit 3"]
    assert subprocess.run(words, cwd=folder, check=False).returncode == 3
