"""``labctl virtual-board``: what its first start compiles, and says."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import agent_builds
import pytest

from labctl.folders import cache_dir

WORDS = [sys.executable, "-m", "labctl", "virtual-board", "--port", "0", "--json"]


@pytest.fixture
def unbuilt(tmp_path: Path) -> dict[str, str]:
    """An environment in which nothing is built, but compilers have their caches."""
    agent_builds.native_agent()
    cache = tmp_path / "cache"
    cache.mkdir()
    for known in cache_dir().iterdir():
        if known.is_dir() and known.name != "artifacts":
            (cache / known.name).symlink_to(known)
    return {**os.environ, "LABCTL_CACHE": str(cache)}


def test_no_build_refuses_with_the_command_that_builds(
    unbuilt: dict[str, str], tmp_path: Path
) -> None:
    done = subprocess.run(
        [*WORDS, "--no-build"], cwd=tmp_path, env=unbuilt, capture_output=True, check=False
    )
    assert done.returncode == 2
    told = done.stderr.decode()
    assert f"not built: agent for {agent_builds.HOST}" in told
    assert f"labctl build --target {agent_builds.HOST} --product agent" in told
    assert not list((tmp_path / "cache").glob("artifacts/*/*"))


def test_the_first_start_says_first_that_it_compiles(
    unbuilt: dict[str, str], tmp_path: Path
) -> None:
    with subprocess.Popen(WORDS, cwd=tmp_path, env=unbuilt, stdout=-1, stderr=-1) as running:
        assert running.stderr is not None
        first = running.stderr.readline().decode()
        running.send_signal(signal.SIGINT)  # the compiler is not waited for
        running.communicate(timeout=60)
    told = f"compiling agent for {agent_builds.HOST}, once: a virtual board needs it\n"
    assert (first, running.returncode) == (told, 130)
