"""A lab of several virtual boards in one process, with a program that sleeps on them."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import agent_builds
import forked
from labs import LabUnderTest
from virtual_process import BoardProcess

from labctl import process

#: Sleeps; for less than nothing until the test lets it end.
SLEEPER = """\
#!/bin/sh
case $1 in
  -*) until [ -e {go_on} ]; do sleep 0.05; done;;
  *) sleep $1;;
esac
echo token
"""
#: A job that runs until `let_go`, however slow the host is.
ENDLESS = ("--set", "seconds=-1")
#: Boards of one host see each other's processes: to sample all of them costs too much.
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
max_time: 15m
sampling_interval: none
"""


def write_farm(root: Path, boards: Sequence[dict[str, str]]) -> None:
    """A lab's files: boards, one recipe, its program."""
    for name in ("models", "tools", "recipes"):
        (root / name).mkdir(exist_ok=True)
    (root / "models" / "any.bin").write_bytes(b"\0" * 1000)
    sleeper = root / "tools" / "sleeper"
    sleeper.write_text(SLEEPER.format(go_on=root / "go-on"))
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


def let_go(root: Path) -> None:
    """Have all jobs end that are ``ENDLESS``."""
    (root / "go-on").touch()


@contextmanager
def farm_lab(root: Path, count: int, *, storage: Path | None = None) -> Iterator[LabUnderTest]:
    """A lab with ``count`` equal virtual boards, ``b-1``, ``b-2`` ..., in another process.

    ``storage``: a folder for the boards' own files elsewhere.
    """
    agent_builds.native_agent()
    words = ["virtual-board", "--json", "--dir", str(storage or root / "board"), "--port", "0"]
    words += ["--name", "b", "--count", str(count), "--target", agent_builds.HOST]
    started = forked.start(words, cwd=root, stderr=None)
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
