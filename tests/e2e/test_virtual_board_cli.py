"""``labctl virtual-board`` as a user starts it, with ARM64 programs where they can run."""

import json
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import agent_builds
import forked
import pytest
import yaml
from virtual_process import virtual_board_process

from labctl import process
from labctl.transport.base import TransferOptions
from labctl.transport.hdc import HdcTcpConfig

pytestmark = pytest.mark.e2e

EMULATOR = "qemu-aarch64-static"
HELLO = """
#include <stdio.h>
#include <stdlib.h>
#include <sys/utsname.h>
int main(int argc, char **argv)
{
    struct utsname names;
    uname(&names);
    printf("%s %s %d\\n", names.machine, argc > 1 ? argv[1] : "-", getenv("LD_PRELOAD") != NULL);
    return 7;
}
"""


def labctl(*words: str, cwd: Path, timeout: float = 60) -> process.Completed:
    return forked.run(words, cwd=cwd, timeout=timeout)


@pytest.fixture(scope="session")
def hello_arm64() -> Path:
    return agent_builds.arm64_program(HELLO)


def test_it_says_how_to_use_the_boards_and_ends_on_an_interrupt(tmp_path: Path) -> None:
    folder = tmp_path / "a #b: c"
    words = ["virtual-board", "--count", "2", "--port", "0", "--dir", str(folder)]
    started = process.start([sys.executable, "-m", "labctl", *words], cwd=tmp_path)
    assert started.stdout is not None
    said = [""]
    while "workdir:" not in said[-1] or "virtual-2" not in said[-1]:
        said.append(started.stdout.readline().decode())
        assert said[-1], said
    assert said[1].startswith("virtual-1 answers at 127.0.0.1:")
    assert said[2].startswith("virtual-2 answers at 127.0.0.1:")
    assert "run as you" in "".join(said)
    boards = yaml.safe_load("".join(said).partition("For devices.yaml:\n")[2])["boards"]
    assert {name: board["workdir"] for name, board in boards.items()} == {
        name: f"{folder}/{name}/data/local/tmp/labctl" for name in ("virtual-1", "virtual-2")
    }
    started.send_signal(2)
    _, errors = started.communicate(timeout=120)
    assert started.returncode == 0
    assert errors == b""


def test_wrong_use_is_one_clear_sentence(tmp_path: Path) -> None:
    for words, says in (
        (("--target", "rk3569"), "rk3568"),
        (("--emulator", "no-such-emulator"), "the emulator is not installed"),
        (("--dir", "100%"), "no virtual board can be in"),
        (("--target", "rk3568", "--emulator", "x"), "not both"),
        (("--count", "3", "--port", "65534"), "ports above 65535"),
    ):
        done = labctl("virtual-board", "--port", "0", *words, cwd=tmp_path)  # the last one counts
        assert done.exit_status in (2, 3)
        assert says in done.stderr.decode()
        assert "Traceback" not in done.stderr.decode()


def test_a_directory_in_use_is_refused(tmp_path: Path) -> None:
    with virtual_board_process(tmp_path / "b") as board:
        words = ("virtual-board", "--port", "0", "--dir", str(board.directory))
        done = labctl(*words, cwd=tmp_path)
        assert done.exit_status == 2
        assert "another virtual board already runs" in done.stderr.decode()


@pytest.mark.skipif(shutil.which(EMULATOR) is None, reason=f"{EMULATOR} is not installed")
def test_arm64_programs_run_through_the_emulator(tmp_path: Path, hello_arm64: Path) -> None:
    with (
        virtual_board_process(tmp_path / "b", "--target", "rk3568") as board,
        HdcTcpConfig(address=board.address).open() as link,
    ):
        emulator = link.run("echo $LABCTL_SANDBOX_EMULATOR", timeout=30).text.split()
        assert Path(emulator[0]).is_absolute()
        assert Path(emulator[0]).name == EMULATOR
        assert emulator[1:] == ["-cpu", "cortex-a76"]
        remote = f"{board.workdir}/hello"
        link.push(hello_arm64, remote, TransferOptions(timeout=20))
        assert link.run(f"chmod 755 {remote}", timeout=30).exit_status == 0
        result = link.run(f"{remote} word", timeout=20)
        assert result.exit_status == 7, result.text
        assert result.text.split()[:2] == ["aarch64", "word"]
        assert link.run("uname -m", timeout=30).text != "aarch64\n"


@pytest.mark.skipif(shutil.which(EMULATOR) is None, reason=f"{EMULATOR} is not installed")
def test_a_board_without_an_emulator_refuses_arm64_programs(
    tmp_path: Path, hello_arm64: Path
) -> None:
    with (
        virtual_board_process(tmp_path / "b") as board,
        HdcTcpConfig(address=board.address).open() as link,
    ):
        link.push(hello_arm64, f"{board.workdir}/hello", TransferOptions(timeout=20))
        result = link.run(f"chmod 755 {board.workdir}/hello; {board.workdir}/hello", timeout=20)
        registered = Path("/proc/sys/fs/binfmt_misc/qemu-aarch64").exists()
        assert (result.exit_status == 7) == registered
        assert link.run("echo ${LABCTL_SANDBOX_EMULATOR-none}", timeout=30).text == "none\n"


def test_json_is_one_line_for_machines(tmp_path: Path) -> None:
    words = ["virtual-board", "--json", "--port=0", "--name=b1", f"--dir={tmp_path / 'b'}"]
    started: subprocess.Popen[bytes] = process.start(
        [sys.executable, "-m", "labctl", *words], cwd=tmp_path
    )
    assert started.stdout is not None
    (board,) = json.loads(started.stdout.readline())
    process.stop(started)
    started.communicate()
    assert board["name"] == "b1"
    assert board["workdir"] == f"{tmp_path}/b/data/local/tmp/labctl"
    assert len(board["boot_id"]) == 32


def test_it_takes_the_port_of_the_labs_board_of_its_name(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        transport = f'{{kind: hdc, link: tcp, address: "127.0.0.1:{port}"}}'
        (tmp_path / "devices.yaml").write_text(
            f"boards: {{vb: {{target: host-x86_64, transport: {transport}}}}}\n"
        )
        done = labctl("virtual-board", "--name", "vb", cwd=tmp_path)
        assert (done.exit_status, done.stdout) == (3, b""), done.tail()
        assert f"cannot listen on 127.0.0.1:{port}: Address already in use" in done.tail()
        assert "--port" in done.tail()
        assert "from boards.vb in devices.yaml" in done.tail()
        done = labctl("virtual-board", "--name", "vb", "--port", str(port), cwd=tmp_path)
        assert "from --port" in done.tail()
    started = process.start(
        [sys.executable, "-m", "labctl", "virtual-board", "--name", "vb"], cwd=tmp_path
    )
    assert started.stdout is not None
    assert started.stdout.readline().startswith(f"vb answers at 127.0.0.1:{port}".encode())
    started.send_signal(2)
    started.communicate(timeout=120)
