"""A lab whose nights build a tiny program of C; each folder of source has its own speed."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import agent_builds
from virtual_process import virtual_board_process

SPEC = """\
product: ticker
description: A program that prints a line every few milliseconds
builder: compile
default_version: v1
versions:
  v1: {source: {folder: ../../source/good}}
tools:
  ticker:
    sources: [ticker.c]
    flags: [-O1, -static, -s]
"""
CODE = """\
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
int main(int count, char **words) {
  if (count > 99) puts("%s");
  struct timespec pause = {0, %d * 1000000L};
  for (int n = atoi(words[1]); n > 0; n--) {
    printf("tick\\n");
    fflush(stdout);
    nanosleep(&pause, 0);
  }
  return %d;
}
"""
RECIPE = f"""\
name: ticking
target: {agent_builds.HOST}
engine:
  name: command
  program: {{product: ticker, tool: ticker}}
  arguments: ["{{tokens}}"]
  tokens: {{stream: stdout, each: line, count: tokens}}
models: {{none: {{file: models/any.bin}}}}
parameters: {{tokens: 9}}
max_time: 1m
sampling_interval: none
"""
PLAN = """\
name: ticks
builds:
  ticker:
    product: ticker
    good: {version: v1}
    head: {folder: source/head}
rows:
  - recipes: [recipes/ticking.yaml]
    boards: [vb]
time: 1h
find: 90%
"""


def give_ticker(root: Path) -> None:
    """Give a lab the ticker, its recipe, and a plan that compares two folders of source."""
    spec = root / "toolchains" / agent_builds.HOST / "ticker.yaml"
    spec.parent.mkdir(parents=True)
    spec.write_text(SPEC)
    write_source(root, "good", 20)
    write_source(root, "head", 20)
    for name, text in (
        ("models/any.bin", "\0" * 1000),
        ("recipes/ticking.yaml", RECIPE),
        ("plan.yaml", PLAN),
    ):
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(text)


@contextmanager
def second_board(root: Path) -> Iterator[None]:
    """Serve another virtual board of a lab: ``vb2`` in its devices.yaml."""
    with virtual_board_process(root / "second", "--target", agent_builds.HOST) as board:
        devices = root / "devices.yaml"
        devices.write_text(
            devices.read_text() + f"  vb2:\n    target: {agent_builds.HOST}\n"
            f'    transport: {{kind: hdc, link: tcp, address: "{board.address}"}}\n'
            f"    workdir: {board.workdir}\n"
        )
        yield


def write_source(root: Path, name: str, milliseconds: int, *, status: int = 0) -> None:
    """Write a folder of source: the program's pause, and how it ends.

    Programs of two folders are never the same, byte for byte.
    """
    folder = root / "source" / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "ticker.c").write_text(CODE % (name, milliseconds, status))
