"""The agent measures memory and storage, natively and as ARM64 code under emulation."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import agent_builds
import pytest

from labctl import process

pytestmark = pytest.mark.e2e

Words = tuple[str, ...]
SIZE = 8 << 20


@pytest.fixture(params=["native", "arm64"])
def agent(request: pytest.FixtureRequest) -> Words:
    """The words that run the agent."""
    if request.param == "native":
        return (str(agent_builds.native_agent()),)
    emulator = shutil.which("qemu-aarch64-static")
    if emulator is None:
        pytest.skip("qemu-aarch64-static is not installed")
    return (emulator, "-cpu", "cortex-a76", str(agent_builds.agent("aarch64")))


def _bench(agent: Words, *words: object, status: int = 0) -> dict[str, Any]:
    done = process.run([*agent, *map(str, words)], timeout=280)
    assert done.exit_status == status, done.tail()
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_memory_is_measured_with_each_number_of_threads(agent: Words) -> None:
    answer = _bench(agent, "bench-memory", "--threads", 3, "--bytes", 32 << 20, "--seconds", 0.3)
    assert [result["threads"] for result in answer["results"]] == [1, 2, 3]
    assert answer["buffer_bytes"] == 32 << 20
    assert answer["instructions"] == ("neon" if len(agent) > 1 else answer["instructions"])
    for result in answer["results"]:
        assert result["bytes_per_second"] > 50_000_000
        assert result["passes"] >= 3


def test_storage_is_measured_and_nothing_is_left(agent: Words, tmp_path: Path) -> None:
    file = tmp_path / "test"
    words = ("--file", file, "--bytes", SIZE, "--threads", 2, "--seconds", 2)
    answer = _bench(agent, "bench-storage", *words)
    assert list(tmp_path.iterdir()) == []
    assert (answer["created"], answer["file_bytes"]) == (True, SIZE)
    measured = [(r["pattern"], r["method"], r["threads"]) for r in answer["results"]]
    assert ("sequential", "dropped", 1) in measured
    assert [m for m in measured if m[0] == "mapping"] == [
        ("mapping", "dropped", 1),
        ("mapping", "dropped", 2),
    ]
    for result in answer["results"]:
        assert 0 < result["bytes_read"] <= SIZE
        assert result["bytes_per_second"] > 0


def test_a_file_that_is_given_stays_as_it_is(agent: Words, tmp_path: Path) -> None:
    file = tmp_path / "model"
    data = os.urandom(SIZE)
    file.write_bytes(data)
    answer = _bench(agent, "bench-storage", "--file", file, "--threads", 1, "--seconds", 1)
    assert not answer["created"]
    assert file.read_bytes() == data


def test_memory_that_stays_in_the_cache_is_not_called_storage() -> None:
    """A file system in memory cannot be dropped: no read of it is uncached."""
    folder = Path("/dev/shm")
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        pytest.skip("no file system in memory here")
    file = folder / f"labctl-test-{os.getpid()}"
    agent = (str(agent_builds.native_agent()),)
    answer = _bench(
        agent, "bench-storage", "--file", file, "--bytes", SIZE, "--threads", 1, "--seconds", 1
    )
    assert not file.exists()
    assert answer["results"]
    assert [r["uncached"] for r in answer["results"] if r["uncached"]] == []


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        (("bench-memory", "--threads", "0"), "usage"),
        (("bench-memory", "--file", "x"), "usage"),
        (("bench-storage",), "usage"),
        (("bench-storage", "--file", "/dev/null"), "usage"),
    ],
)
def test_wrong_use_is_told(words: Words, kind: str) -> None:
    answer = _bench((str(agent_builds.native_agent()),), *words, status=2)
    assert answer["error"] == kind


def test_storage_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    words = ("bench-storage", "--file", tmp_path / "no" / "such")
    answer = _bench((str(agent_builds.native_agent()),), *words, status=73)
    assert answer["error"] == "directory"
