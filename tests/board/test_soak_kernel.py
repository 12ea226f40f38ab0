"""The console of a real Linux kernel: an out-of-memory kill, a panic, and the boot after it."""

from pathlib import Path

import pytest
from emulated_kernel import arm64_files, booted, initrd

from labctl.board.console import CONSOLE, ConsoleLog
from labctl.board.console_shell import console_answer, run_on_console
from labctl.config.console import Console
from labctl.errors import BoardRebooted, HostError
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


_SHELL = """#!/bin/busybox sh
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t devtmpfs dev /dev
exec /bin/busybox sh -i </dev/console >/dev/console 2>&1
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return arm64_files(tmp_path_factory.mktemp("debian"))


def test_a_real_board_is_repaired_on_its_console(tmp_path: Path, files: tuple[Path, Path]) -> None:
    kernel, busybox = files
    initial = initrd(tmp_path / "initrd", busybox, _SHELL)
    with booted(kernel, initial) as device:
        config = Console(device=device)

        def has_shell() -> bool:
            try:
                run_on_console(config, [["true"]])
            except HostError:
                return False
            return True

        assert wait_until(has_shell, timeout=120, interval=0.5)
        assert console_answer(config) == "answers"
        run_on_console(
            config,
            [
                ["/bin/busybox", "ip", "link", "set", "lo", "up"],
                ["/bin/busybox", "ping", "-c", "1", "127.0.0.1"],
            ],
        )
        with pytest.raises(HostError, match="ended with status 1"):
            run_on_console(config, [["/bin/busybox", "grep", "-q", "no 'such' $(word)", "/init"]])


def test_a_real_kernel_tells_why_it_died(tmp_path: Path, files: tuple[Path, Path]) -> None:
    kernel, busybox = files
    initial = initrd(tmp_path / "initrd", busybox, _INIT)
    told: list[str] = []
    with booted(kernel, initial, words="panic=2") as device:
        with ConsoleLog(Console(device=device), tmp_path / CONSOLE, told.append) as log:

            def kinds() -> list[str]:
                return [seen.message.kind for seen in log.since(0)]

            assert wait_until(
                lambda: "kernel panic" in kinds() and kinds()[-1] == "boot",
                timeout=200,
                interval=0.5,
            )
        found = Failure.of(BoardRebooted("the board restarted"))
        failure = log.explain(found, 0)
    text = (tmp_path / CONSOLE).read_text()
    print(text)
    assert "awk ended with status 137" in text
    # The emulator drops what it prints before the console is opened.
    told_kinds = [kind for kind in kinds() if kind != "kernel oops"]
    assert told_kinds[told_kinds.index("out-of-memory kill") :] == [
        "out-of-memory kill",
        "kernel panic",
        "boot",
    ]
    assert "out-of-memory kill" in failure.message
    assert "kernel panic" in failure.message
    assert any("sysrq triggered crash" in line for line in failure.console_messages)
    assert failure.blame == found.blame
