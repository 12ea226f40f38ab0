"""The console of a real Linux kernel: an out-of-memory kill, a panic, and the boot after it."""

from pathlib import Path

import pytest
from emulated_kernel import arm64_files, booted, initrd

from labctl.board.console import CONSOLE, ConsoleLog
from labctl.config.console import Console
from labctl.errors import BoardRebooted
from labctl.records.trial import Failure
from labctl.retry import wait_until

pytestmark = [pytest.mark.soak, pytest.mark.usefixtures("private_state")]

_INIT = """#!/bin/busybox sh
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t devtmpfs dev /dev
echo the board is ready
/bin/busybox awk 'BEGIN { s = "x"; while (1) s = s s }'
echo awk ended with status $?
echo c >/proc/sysrq-trigger
"""


def test_a_real_kernel_tells_why_it_died(tmp_path: Path) -> None:
    kernel, busybox = arm64_files(tmp_path)
    initial = initrd(tmp_path / "initrd", busybox, _INIT)
    told: list[str] = []
    with booted(kernel, initial, words="panic=2") as device:
        with ConsoleLog(Console(device=device), tmp_path / CONSOLE, told.append) as log:

            def kinds() -> list[str]:
                return [seen.message.kind for seen in log.since(0)]

            wait_until(lambda: kinds().count("boot") == 2, timeout=300, interval=0.5)
        found = Failure.of(BoardRebooted("the board restarted"))
        failure = log.explain(found, 0)
    text = (tmp_path / CONSOLE).read_text()
    print(text)
    assert "awk ended with status 137" in text
    assert [kind for kind in kinds() if kind != "kernel oops"] == [
        "boot",
        "out-of-memory kill",
        "kernel panic",
        "boot",
    ]
    assert "out-of-memory kill" in failure.message
    assert "kernel panic" in failure.message
    assert any("sysrq triggered crash" in line for line in failure.console_messages)
    assert failure.blame == found.blame
