import os
import platform
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tiny_gguf import write_tiny_gguf
from virtual_process import BoardProcess, virtual_board_process

from labctl import process
from labctl.build import BuildRequest, build

Labctl = Callable[..., process.Completed]

RECIPE = """\
name: tiny
target: rk3568
engine: {name: llama_cpp}
models:
  tiny: {file: models/tiny.gguf}
prompt: once upon
parameters: {tokens: 24, context: 128, threads: 2}
max_time: 10m
"""


@dataclass(frozen=True)
class LabUnderTest:
    """A lab in a folder of the test's own, with one virtual board in another process."""

    root: Path
    board: BoardProcess

    def run(self, *words: str, timeout: float = 280) -> process.Completed:
        """``labctl WORDS`` in the lab, as a user types it."""
        return process.run(
            [sys.executable, "-m", "labctl", *words], timeout=timeout, cwd=self.root, env=os.environ
        )

    def recipe(self, text: str = RECIPE, name: str = "tiny") -> str:
        path = self.root / "recipes" / f"{name}.yaml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return str(path)


def said(done: process.Completed) -> str:
    """What a command printed on standard error."""
    return done.stderr.decode()


@pytest.fixture(scope="session")
def rk3568() -> None:
    """llama.cpp for the board, both versions: minutes the first time, then cached."""
    if platform.machine() == "x86_64":
        build(BuildRequest(target="host-x86_64", product="agent"))
    for version, tools in (
        ("classic", ("llama-cli",)),
        ("new", ("llama-completion", "llama-quantize")),
    ):
        build(BuildRequest(target="rk3568", version=version, tools=tools))


@pytest.fixture
def lab(tmp_path: Path, private_state: Path, rk3568: None) -> Iterator[LabUnderTest]:
    """A lab with a tiny model and a virtual board that emulates an rk3568."""
    (tmp_path / "models").mkdir()
    write_tiny_gguf(tmp_path / "models" / "tiny.gguf")
    with virtual_board_process(tmp_path / "board", "--target", "rk3568") as board:
        (tmp_path / "devices.yaml").write_text(
            "boards:\n"
            "  vb:\n"
            "    target: rk3568\n"
            f'    transport: {{kind: hdc, link: tcp, address: "{board.address}"}}\n'
            f"    workdir: {board.workdir}\n"
        )
        yield LabUnderTest(tmp_path, board)
