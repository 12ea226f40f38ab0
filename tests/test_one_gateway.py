"""No way to start a program but ``labctl.process``: it decides where programs start."""

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import labctl

ROOT = Path(labctl.__file__).parents[1]
GATEWAY = "labctl/process.py"
#: Modules that are for nothing else, or that hide a start.
MODULES = re.compile(
    r"multiprocessing|pty|webbrowser|pexpect|sh|plumbum|invoke|anyio|concurrent\.futures\.process"
)
#: Functions of any module, by their last name.
CALLS = re.compile(
    r"popen|fork|forkpty|exec[lv]p?e?|spawn[lv]p?e?|posix_spawnp?|ProcessPoolExecutor"
    r"|create_subprocess_(exec|shell)|subprocess_(exec|shell)|getoutput|getstatusoutput"
    r"|check_call|check_output|find_library|ProxyCommand"
)
#: Functions whose last name means something else, too.
WHOLE_NAMES = {"os.system", "click.launch", "click.edit"}
#: What of ``subprocess`` starts nothing; ``Popen`` in an annotation.
HARMLESS = {"PIPE", "DEVNULL", "STDOUT", "TimeoutExpired"}
#: Modules that are called by their own names here.
HIDDEN = {"os", "subprocess", "click", "asyncio"}
#: Functions of click that start a program: only within ``elsewhere()``.
OF_CLICK = {"echo_via_pager", "source"}


def starts(code: str) -> Iterator[str]:
    """Yield what of a module's code may start a program, and the Pythons that are not isolated."""
    tree = ast.parse(code)
    annotated = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Subscript)}
    guarded = {
        id(inner)
        for block in ast.walk(tree)
        if isinstance(block, ast.With) and "elsewhere()" in ast.unparse(block.items[0])
        for inner in ast.walk(block)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names if MODULES.fullmatch(one.name))
            yield from (one.name for one in node.names if one.asname and one.name in HIDDEN)
        elif isinstance(node, ast.ImportFrom):
            names = [one.name for one in node.names]
            if MODULES.fullmatch(node.module or "") or node.module == "subprocess":
                yield f"{node.module}: {names}"
            if node.module in ("os", "asyncio", "click", "ctypes.util", "concurrent.futures"):
                yield from (n for n in names if CALLS.fullmatch(n) or n in ("system", "launch"))
        elif isinstance(node, ast.Attribute):
            if isinstance(node.value, ast.Name) and node.value.id == "subprocess":
                if node.attr not in HARMLESS and not (
                    node.attr == "Popen" and id(node) in annotated
                ):
                    yield ast.unparse(node)
            elif (
                CALLS.fullmatch(node.attr)
                or ast.unparse(node) in WHOLE_NAMES
                or (node.attr in OF_CLICK and id(node) not in guarded and _is_called(tree, node))
            ):
                yield ast.unparse(node)
        elif isinstance(node, ast.List | ast.Tuple) and node.elts:
            words = [ast.unparse(one) for one in node.elts]
            if words[0] == "sys.executable" and words[1:2] not in (["'-P'"], ["'-I'"]):
                yield f"not isolated: {words}"


def _is_called(tree: ast.AST, function: ast.Attribute) -> bool:
    return any(isinstance(n, ast.Call) and n.func is function for n in ast.walk(tree))


def _modules() -> list[Path]:
    return [*(ROOT / "labctl").rglob("*.py"), *(ROOT / "toolchains").rglob("*.py")]


def test_only_the_gateway_starts_programs() -> None:
    found = {
        str(path.relative_to(ROOT)): [*starts(path.read_text())]
        for path in _modules()
        if path != ROOT / GATEWAY
    }
    assert len(found) > 500
    assert {path: ways for path, ways in found.items() if ways} == {}
    assert [*starts((ROOT / GATEWAY).read_text())] == ["subprocess.Popen"]


@pytest.mark.parametrize(
    "code",
    [
        "import subprocess; subprocess.run(['x'])",
        "from subprocess import run",
        "import subprocess as sub; sub.check_output(['x'])",
        "start = subprocess.Popen",
        "import os; os.system('x')",
        "os.execvp('x', [])",
        "from os import posix_spawn",
        "os.spawnle(os.P_WAIT, 'x')",
        "import multiprocessing",
        "from concurrent.futures import ProcessPoolExecutor",
        "asyncio.create_subprocess_exec('x')",
        "loop.subprocess_shell(None, 'x')",
        "import webbrowser",
        "click.launch('x')",
        "click.echo_via_pager('x')",
        "completer(root).source()",
        "run([sys.executable, '-m', 'x'])",
        "run((sys.executable, script))",
    ],
)
def test_each_other_way_is_seen(code: str) -> None:
    assert [*starts(code)] != []


#: Python tells each start, also of libraries: ``subprocess.Popen`` with the program and its folder.
TOLD = """
import json, sys
starts = []
sys.addaudithook(lambda event, given: starts.append([str(one) for one in given[1:3]])
    if event in ("subprocess.Popen", "os.system", "os.fork", "os.exec", "os.posix_spawn") else None)
from labctl.cli.root import run_cli
status = run_cli(sys.argv[1:]); sys.stdout.flush()
print("starts:", json.dumps(starts), file=sys.stderr); sys.exit(status)
"""


@pytest.mark.parametrize("words", ["doctor", "completion bash", "build --target rk3568 --explain"])
def test_no_library_starts_a_program_in_the_present_folder(
    words: str, tmp_path: Path, private_state: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", TOLD, *words.split()],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    starts = json.loads(done.stderr.rpartition("starts:")[2])
    assert starts or words != "completion bash"
    # A library is in the folder itself, and says nothing of it.
    given = {folder for _, folder in starts} - {str(private_state / "empty")}
    assert given <= ({"None"} if words == "completion bash" else set())
