"""A lab of several virtual boards in one process, with a program that sleeps on them."""

import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import agent_builds
from labs import LabUnderTest
from virtual_process import BoardProcess

from labctl import process

SLEEPER = """\
#!/bin/sh
sleep $1
echo token
"""
RECIPE = f"""\
name: sleeping
target: {agent_builds.HOST}
engine:
  name: command
  program: {{file: tools/sleeper}}
  arguments: ["{{seconds}}"]
  tokens: {{stream: stdout, each: line, count: tokens}}
models: {{none: {{file: models/any.bin}}}}
parameters: {{seconds: 1.0, tokens: 1}}
max_time: 5m
"""


def write_farm(root: Path, boards: Sequence[dict[str, str]]) -> None:
    """A lab's files: boards, one recipe, its program."""
    for name in ("models", "tools", "recipes"):
        (root / name).mkdir(exist_ok=True)
    (root / "models" / "any.bin").write_bytes(b"\0" * 1000)
    sleeper = root / "tools" / "sleeper"
    sleeper.write_text(SLEEPER)
    sleeper.chmod(0o755)
    (root / "recipes" / "sleeping.yaml").write_text(RECIPE)
    entries = "".join(
        f"  {board['name']}:\n"
        f"    target: {agent_builds.HOST}\n"
        f'    transport: {{kind: hdc, link: tcp, address: "{board["address"]}"}}\n'
        f"    workdir: {board['workdir']}\n"
        for board in boards
    )
    (root / "devices.yaml").write_text(f"lab: farm\nboards:\n{entries}")


@contextmanager
def farm_lab(root: Path, count: int) -> Iterator[LabUnderTest]:
    """A lab with ``count`` equal virtual boards, ``b-1``, ``b-2`` ..., in another process."""
    agent_builds.native_agent()
    words = ["virtual-board", "--json", "--dir", str(root / "board"), "--port", "0"]
    words += ["--name", "b", "--count", str(count), "--target", agent_builds.HOST]
    started = process.start(
        [sys.executable, "-m", "labctl", *words], cwd=root, stderr=None, env=os.environ
    )
    assert started.stdout is not None
    try:
        boards = json.loads(started.stdout.readline())
        write_farm(root, boards)
        first = boards[0]
        board = BoardProcess(
            started,
            first["name"],
            first["address"],
            Path(first["directory"]),
            first["workdir"],
            first["boot_id"],
        )
        yield LabUnderTest(root, board)
    finally:
        process.stop(started)
        started.stdout.close()
