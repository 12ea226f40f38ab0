"""The agent's facts and hashes, natively and as ARM64 code under emulation."""

import hashlib
import json
import os
import platform
import random
import shutil
import time
from pathlib import Path

import agent_builds
import pytest

from labctl import process

pytestmark = pytest.mark.e2e

Words = tuple[str, ...]


@pytest.fixture(params=["native", "arm64"])
def agent(request: pytest.FixtureRequest) -> Words:
    """The words that run the agent."""
    if request.param == "native":
        return (str(agent_builds.native_agent()),)
    emulator = shutil.which("qemu-aarch64-static")
    if emulator is None:
        pytest.skip("qemu-aarch64-static is not installed")
    return (emulator, "-cpu", "cortex-a76", str(agent_builds.agent("aarch64")))


def test_hashes_are_those_of_hashlib(agent: Words, tmp_path: Path) -> None:
    # Every length around the borders of SHA-256's blocks and padding, and of the agent's buffer.
    lengths = [*range(131), (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 3_000_000]
    expected = ""
    paths = []
    for length in lengths:
        data = random.Random(length).randbytes(length)
        path = tmp_path / f"file {length}"
        path.write_bytes(data)
        paths.append(str(path))
        expected += f"{hashlib.sha256(data).hexdigest()}  {length}  {path}\n"
    done = process.run([*agent, "hash", *paths], timeout=120)
    assert done.exit_status == 0
    assert done.text == expected


@pytest.mark.parametrize(("length", "chunk"), [(0, 10), (10, 10), (25, 10), (2_500_000, 1 << 20)])
def test_chunks_are_hashed_one_by_one(
    agent: Words, tmp_path: Path, length: int, chunk: int
) -> None:
    data = random.Random(7).randbytes(length)
    path = tmp_path / "file"
    path.write_bytes(data)
    done = process.run([*agent, "hash", "--chunk", str(chunk), path], timeout=120)
    pieces = [data[start : start + chunk] for start in range(0, length, chunk)]
    lines = [f"chunk {i} {hashlib.sha256(p).hexdigest()}" for i, p in enumerate(pieces)]
    assert done.text.splitlines() == [
        *lines,
        f"{hashlib.sha256(data).hexdigest()}  {length}  {path}",
    ]


@pytest.mark.parametrize("part", [1000, 1 << 20, (1 << 63) - 1])
def test_parts_are_hashed_by_all_cpus(agent: Words, tmp_path: Path, part: int) -> None:
    expected = ""
    paths = []
    for length in (0, 999, 1000, 1001, 100_000, 1 << 20, 3_000_000):
        data = random.Random(length).randbytes(length)
        path = tmp_path / f"file {length}"
        path.write_bytes(data)
        paths.append(str(path))
        parts = [data[start : start + part] for start in range(0, length, part)]
        whole = hashlib.sha256(b"".join(hashlib.sha256(piece).digest() for piece in parts))
        expected += f"{whole.hexdigest()}  {length}  {path}\n"
    done = process.run([*agent, "hash", "--parts", str(part), *paths], timeout=120)
    assert done.exit_status == 0
    assert done.text == expected


def test_parts_of_what_is_no_file(agent: Words, tmp_path: Path) -> None:
    done = process.run([*agent, "hash", "--parts", "9", tmp_path / "gone", tmp_path], timeout=120)
    assert done.exit_status == 1
    assert done.text.splitlines() == [
        f"error {tmp_path}/gone: No such file or directory",
        f"error {tmp_path}: Is a directory",
    ]


def test_a_file_that_cannot_be_read_is_named(agent: Words, tmp_path: Path) -> None:
    good = tmp_path / "good"
    good.write_bytes(b"")
    done = process.run([*agent, "hash", tmp_path / "gone", tmp_path, good], timeout=120)
    lines = done.text.splitlines()
    assert done.exit_status == 1
    assert lines[0] == f"error {tmp_path}/gone: No such file or directory"
    assert lines[1] == f"error {tmp_path}: Is a directory"
    assert lines[2].startswith(hashlib.sha256(b"").hexdigest())


def test_facts_are_those_of_the_machine(agent: Words) -> None:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("LABCTL_SANDBOX")}
    done = process.run([*agent, "facts"], timeout=120, env=environment)
    assert done.exit_status == 0
    facts = json.loads(done.stdout)
    arm64 = len(agent) > 1
    assert facts["compiled_for"] == ("aarch64" if arm64 else platform.machine())
    assert facts["machine"] == ("aarch64" if arm64 else platform.machine())
    assert facts["boot_id"] == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert facts["sandbox"] is None
    assert facts["emulator"] is None
    assert sum(cpu["count"] for cpu in facts["cpus"]) == os.cpu_count()
    total = int(Path("/proc/meminfo").read_text().split()[1]) * 1024
    assert facts["memory_total_bytes"] == total
    assert 0 < facts["memory_available_bytes"] <= total
    assert abs(facts["utc_ns"] - time.time_ns()) < 60_000_000_000
    assert facts["sha256"] == ("armv8" if arm64 else facts["sha256"])
    assert facts["page_size_bytes"] >= 4096


def test_a_virtual_board_is_told(agent: Words) -> None:
    environment = {**os.environ, "LABCTL_SANDBOX": "boot 1", "LABCTL_SANDBOX_EMULATOR": "/e -c x"}
    facts = json.loads(process.run([*agent, "facts"], timeout=120, env=environment).stdout)
    assert (facts["boot_id"], facts["sandbox"], facts["emulator"]) == (
        "boot 1",
        "boot 1",
        "/e -c x",
    )


def test_version_is_the_same_everywhere(agent: Words) -> None:
    done = process.run([*agent, "version"], timeout=120)
    assert done.text.startswith("labctl-agent ")
    native = process.run([agent_builds.native_agent(), "version"], timeout=120)
    assert done.text == native.text


def test_the_agent_is_static() -> None:
    for machine in ("x86_64", "aarch64"):
        head = agent_builds.agent(machine).read_bytes()
        assert b"/ld-musl" not in head
        assert b"/ld-linux" not in head


def test_memory_that_a_virtual_board_made_up_is_believed(agent: Words, tmp_path: Path) -> None:
    (tmp_path / "memory_kb").write_text("1953125\n")
    there = {**os.environ, "LABCTL_SANDBOX_FAKES": str(tmp_path)}
    told = json.loads(process.run([*agent, "facts"], timeout=120, env=there).text)
    assert told["memory_total_bytes"] == told["memory_available_bytes"] == 2_000_000_000
    told = json.loads(process.run([*agent, "facts"], timeout=120).text)
    assert told["memory_total_bytes"] != 2_000_000_000
