import os
import platform
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sshd_host import ssh_host

from labctl.board.facts import explaining_full_storage, probe
from labctl.errors import BoardError, BoardNoSpace
from labctl.records.board import Execution
from labctl.transport.base import Transport
from labctl.transport.hdc import HdcTcpConfig
from labctl.transport.local import LocalTransport
from labctl.transport.testing import ScriptedTransport
from labctl.virtual.board import VirtualBoard, serving

#: As a DAYU200 answers, cut down to what matters.
DAYU200 = """
@labctl system
5.10.184 aarch64

@labctl boot
0e7a2f4c-5d1b-4a0e-9a58-1d1f4a3c9b77

@labctl sandbox


@labctl emulator


@labctl shell
@(#)MIRBSD KSH R59 2020/10/31

@labctl files
processor\t: 0
BogoMIPS\t: 48.00
Features\t: fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm asimddp
CPU implementer\t: 0x41
CPU architecture: 8
CPU variant\t: 0x2
CPU part\t: 0xd05
CPU revision\t: 0

processor\t: 1
BogoMIPS\t: 48.00
Features\t: fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm asimddp
CPU implementer\t: 0x41
CPU architecture: 8
CPU variant\t: 0x2
CPU part\t: 0xd05
CPU revision\t: 0

Serial\t\t: 1234
Name:\tcat
VmPeak:\t    2048 kB
Cpus_allowed:\tf
CapEff:\t0000003fffffffff
Cpus_allowed_list:\t0-1
MemTotal:        2017836 kB
MemFree:          101052 kB
MemAvailable:    1203120 kB
HugePages_Total:       0
/dev/root / ext4 ro,seclabel 0 0
tmpfs /data ext4 rw 0 0
/dev/block/mmcblk0p15 /data f2fs rw,nosuid,nodev 0 0
tmpfs /data/local/tmporary tmpfs rw 0 0

@labctl os
OpenHarmony 4.1.7.5

@labctl serial
8c7f1e2d3b4a5968
@labctl compatible
rockchip,rk3568-evb1-v10
rockchip,rk3568
@labctl directory
/data/local/tmp

@labctl space
Filesystem     1024-blocks     Used Available Capacity Mounted on
/dev/block/platform/fe310000.sdhci/by-name/userdata 25165824 5033164 20132660  20% /data
"""


def test_a_board_is_read_whole() -> None:
    facts = probe(ScriptedTransport(DAYU200), workdir="/data/local/tmp/labctl", timeout=5)
    assert facts.execution is Execution.BOARD
    assert (facts.machine, facts.kernel) == ("aarch64", "5.10.184")
    assert facts.boot_id == "0e7a2f4c-5d1b-4a0e-9a58-1d1f4a3c9b77"
    assert facts.os_version == "OpenHarmony 4.1.7.5"
    assert facts.serial == "8c7f1e2d3b4a5968"
    assert facts.compatible == ("rockchip,rk3568-evb1-v10", "rockchip,rk3568")
    assert facts.emulator is None
    assert facts.cores == 2
    (cpu,) = facts.cpus
    assert (cpu.count, cpu.implementer, cpu.part, cpu.model) == (2, "0x41", "0xd05", None)
    assert "asimddp" in cpu.features
    assert facts.cpus_allowed == "0-1"
    assert facts.may_raise_priority is True
    assert facts.memory_total_bytes == 2017836 * 1024
    assert facts.memory_available_bytes == 1203120 * 1024
    assert facts.storage_free_bytes == 20132660 * 1024
    assert facts.storage_kind == "f2fs"


def test_what_a_board_does_not_offer_is_absent() -> None:
    bare = "\n@labctl system\n4.19 armv7l\n\n@labctl boot\nx\n"
    facts = probe(ScriptedTransport(bare), workdir="/w", timeout=5)
    assert facts.model_dump(exclude={"execution", "machine", "kernel", "boot_id"}) == {
        "os_version": None,
        "shell": None,
        "emulator": None,
        "cpus": (),
        "cpus_allowed": None,
        "may_raise_priority": None,
        "memory_total_bytes": None,
        "memory_available_bytes": None,
        "serial": None,
        "compatible": (),
        "storage_free_bytes": None,
        "storage_kind": None,
        "devfreq": None,
        "highest_khz": {},
        "phone": None,
        "phone_state": None,
    }


def test_no_text_of_a_board_controls_a_terminal() -> None:
    text = DAYU200.replace("OpenHarmony 4.1.7.5", "OpenHarmony \x1b]0;owned\x07")
    seen = probe(ScriptedTransport(text), workdir="/w", timeout=5)
    assert seen.os_version == "OpenHarmony \\x1b]0;owned\\x07"


def test_a_serial_number_that_cannot_be_read_is_none(tmp_path: Path) -> None:
    class Unreadable(LocalTransport):
        def run(self, command, **options):  # type: ignore[no-untyped-def]
            # cat of a folder fails, also for root
            serial = command.replace("/proc/device-tree/serial-number", str(tmp_path))
            assert serial != command
            return super().run(serial, **options)

    with Unreadable() as here:
        assert probe(here, workdir=str(tmp_path), timeout=30).serial is None


def test_an_error_of_param_is_no_version() -> None:
    text = DAYU200.replace("OpenHarmony 4.1.7.5", 'Get parameter "x" fail! errNum is:106!')
    assert probe(ScriptedTransport(text), workdir="/w", timeout=5).os_version is None


@pytest.mark.parametrize("section", ["system", "boot"])
def test_a_board_that_does_not_say_what_it_is_cannot_be_used(section: str) -> None:
    text = DAYU200.replace(f"@labctl {section}", "@labctl nothing")
    with pytest.raises(BoardError, match=section):
        probe(ScriptedTransport(text), workdir="/w", timeout=5)


def test_a_board_that_tells_half_of_what_it_is_cannot_be_used() -> None:
    text = DAYU200.replace("5.10.184 aarch64", "aarch64")
    with pytest.raises(BoardError, match="kernel"):
        probe(ScriptedTransport(text), workdir="/w", timeout=5)


def test_a_shell_that_fails_is_an_error() -> None:
    with pytest.raises(BoardError, match="cannot ask for facts"):
        probe(ScriptedTransport((126, "sh: cannot execute")), workdir="/w", timeout=5)


@given(st.text())
def test_garbage_never_becomes_facts(text: str) -> None:
    with pytest.raises(BoardError):
        probe(ScriptedTransport(text.replace("@labctl boot", "")), workdir="/w", timeout=5)


def test_a_real_shell_answers(transport: Transport, workdir: str) -> None:
    facts = probe(transport, workdir=workdir, timeout=20)
    assert facts.machine == platform.machine()
    assert facts.kernel == platform.release()
    assert facts.execution is Execution.NATIVE_HOST
    assert facts.cores == len(os.sched_getaffinity(0))
    assert facts.memory_total_bytes
    assert facts.memory_available_bytes
    statistics = os.statvfs(Path(workdir).parent)
    # toybox's df counts blocks reserved for root as free when root asks: it may use them.
    least, most = (n * statistics.f_frsize for n in (statistics.f_bavail, statistics.f_bfree))
    assert facts.storage_free_bytes is not None
    assert least - (1 << 30) < facts.storage_free_bytes < most + (1 << 30)
    assert facts.storage_kind
    assert not Path(workdir).exists()
    if isinstance(transport, LocalTransport):
        assert facts.boot_id == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    else:
        assert len(facts.boot_id) == 32


@pytest.mark.parametrize("head", ["exit 127", 'shift 2; exec cat "$@"'])
def test_a_board_without_a_head_that_names_files_is_read_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, head: str
) -> None:
    (tmp_path / "head").write_text(f"#!/bin/sh\n{head}\n")
    (tmp_path / "head").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with LocalTransport() as here:
        facts = probe(here, workdir=str(tmp_path), timeout=30)
    assert facts.cores == len(os.sched_getaffinity(0))
    assert facts.cpus_allowed
    assert facts.memory_total_bytes
    assert facts.storage_kind


def test_an_emulating_virtual_board_says_so(tmp_path: Path) -> None:
    plan = VirtualBoard("b", tmp_path, emulator=("/opt/emulator", "-cpu", "x"))
    with serving(plan) as (board,), HdcTcpConfig(address=board.address).open() as link:
        facts = probe(link, workdir=str(board.workdir), timeout=20)
    assert facts.execution is Execution.EMULATED
    assert facts.emulator == "/opt/emulator -cpu x"
    assert facts.boot_id == board.boot_id


def test_a_virtual_board_has_the_memory_that_it_is_said_to_have(tmp_path: Path) -> None:
    plan = VirtualBoard("b", tmp_path / "b", memory_bytes=2_000_000_000)
    with serving(plan) as (board,), HdcTcpConfig(address=board.address).open() as link:
        facts = probe(link, workdir=str(board.workdir), timeout=20)
    assert facts.memory_total_bytes == facts.memory_available_bytes == 2_000_000_000


@pytest.mark.slow
def test_this_host_reached_over_ssh_is_no_board(tmp_path: Path) -> None:
    with ssh_host(tmp_path / "host") as host, host.board().open() as link:
        assert probe(link, workdir="/w", timeout=20).execution is Execution.NATIVE_HOST


DF = """Filesystem     Inodes IUsed IFree IUse% Mounted on
/dev/block/mmcblk0p11  65536 {used}  {free}   {share} /data
"""


@pytest.mark.parametrize(
    ("answer", "tells"),
    [
        (DF.format(used=65536, free=0, share="100%"), True),
        (DF.format(used=65535, free=1, share="100%"), False),
        (DF.replace("65536", "0").format(used=0, free=0, share="-"), False),
        ("df: invalid option -- i\n", False),
        ((127, ""), False),
    ],
)
def test_a_storage_full_of_files_is_not_called_full_of_bytes(
    answer: str | tuple[int, str], tells: bool
) -> None:
    board = ScriptedTransport(answer)
    with (
        pytest.raises(BoardNoSpace, match="cannot write x: No space") as refused,
        explaining_full_storage(board, "/data/local/tmp/labctl"),
    ):
        raise BoardNoSpace("cannot write x: No space left on device")
    assert ("no inodes are left (of 65536)" in refused.value.message) is tells
    assert ("each takes an inode" in str(refused.value.hint)) is tells
    assert "/data/local/tmp/labctl" in board.commands[0]


@pytest.mark.parametrize(("capabilities", "may"), [("0000000000800000", True), ("0", False)])
def test_who_may_raise_a_priority(capabilities: str, may: bool) -> None:
    board = DAYU200.replace("CapEff:\t0000003fffffffff", f"CapEff:\t{capabilities}")
    facts = probe(ScriptedTransport(board), workdir="/w", timeout=5)
    assert facts.may_raise_priority is may
