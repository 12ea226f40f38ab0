"""How long a deploy is said to take: with a limit, and after one that was interrupted."""

import fcntl
import json
import os
import pty
import re
import signal
import struct
import sys
import termios
from pathlib import Path

import agent_builds
import pytest
from labs import LabUnderTest, said

from labctl import process

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

SIZE = 48_000_000
RECIPE = f"""\
name: large
target: {agent_builds.HOST}
engine:
  name: command
  program: {{file: tools/any}}
  arguments: ["{{tokens}}"]
  tokens: {{stream: stdout, each: line, count: tokens}}
parameters: {{tokens: 4}}
models: {{large: {{file: models/large.bin}}}}
max_time: 5m
"""


@pytest.fixture
def large(native_lab: LabUnderTest) -> LabUnderTest:
    """A lab with a model of 48 MB that no board has."""
    (native_lab.root / "tools").mkdir()
    (native_lab.root / "tools" / "any").write_text("#!/bin/sh\n")
    (native_lab.root / "models" / "large.bin").write_bytes(bytes(range(256)) * (SIZE // 256))
    native_lab.recipe(RECIPE, "large")
    return native_lab


def test_the_limit_counts_in_the_estimate(large: LabUnderTest) -> None:
    done = large.run("deploy", "large", "--plan", "--limit-rate", "4MB/s")
    assert re.search(
        r"needs 2 files \(48\.0 MB\); at least 12\.0 s at 4\.00 MB/s, the limit:", done.text
    )


def test_after_an_interrupted_deploy_what_arrived_and_the_speed_are_known(
    large: LabUnderTest,
) -> None:
    running = large.start("deploy", "large", "--limit-rate", "8MB/s")
    parts = Path(large.board.workdir) / "store"

    def has_some() -> bool:
        found = [path.read_text().count("\n") for path in parts.glob(".part-*.journal")]
        return sum(found) > 3

    running.waiting_for(has_some)
    running.process.send_signal(signal.SIGINT)
    assert running.finish().exit_status == 130
    (plan,) = json.loads(large.run("deploy", "large", "--plan", "--json").text)
    assert 0 < plan["arrived_bytes"] < SIZE
    done = large.run("deploy", "large", "--plan", "--limit-rate", "8MB/s")
    assert done.exit_status == 0, said(done)
    promised = re.search(
        r"\(48\.0 MB, ([\d.]+) MB are there already\); at least ([\d.]+) s at", done.text
    )
    assert promised, done.text
    assert float(promised[2]) == pytest.approx((48 - float(promised[1])) / 8, rel=0.02)


def test_a_slow_delivery_moves_its_bar_from_the_start(large: LabUnderTest) -> None:
    """Four chunks of 4 MB are under way before the board has said a word."""
    mine, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    argv = [sys.executable, "-m", "labctl", "deploy", "large", "--limit-rate", "4MB/s"]
    environment = {**os.environ, "TERM": "xterm"}
    running = process.start(argv, cwd=large.root, env=environment, stderr=theirs)
    os.close(theirs)
    shown, bar = "", None
    while bar is None:
        shown += re.sub(r"\x1b\[[0-9;?]*m", "", os.read(mine, 1 << 16).decode(errors="replace"))
        bar = re.search(r"send to vb .* ([1-9]\d*)% ([\d.]+) MB/s 0:00:\d\d left", shown)
    process.stop(running)
    running.communicate()  # closes its output
    os.close(mine)
    assert re.search(r"send to vb .* 0% 0:00:0\d elapsed", shown)
    assert int(bar[1]) < 25
    assert float(bar[2]) < 8
