"""Labs in folders of a test's own, used as a user uses them: through the command line."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tiny_gguf import write_tiny_gguf
from virtual_process import BoardProcess, virtual_board_process

from labctl import process

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


def write_devices(root: Path, address: str, workdir: str, *, target: str = "rk3568") -> None:
    """A devices.yaml with one board, ``vb``."""
    (root / "devices.yaml").write_text(
        "boards:\n"
        "  vb:\n"
        f"    target: {target}\n"
        f'    transport: {{kind: hdc, link: tcp, address: "{address}"}}\n'
        f"    workdir: {workdir}\n"
    )


@contextmanager
def lab_with_board(root: Path, *options: str) -> Iterator[LabUnderTest]:
    """A lab with a tiny model, and a virtual board started with ``options``."""
    (root / "models").mkdir()
    write_tiny_gguf(root / "models" / "tiny.gguf")
    with virtual_board_process(root / "board", *options) as board:
        write_devices(root, board.address, board.workdir)
        yield LabUnderTest(root, board)
