import platform
import shutil
from collections.abc import Iterator
from pathlib import Path

import agent_builds
import pytest
from cli_calls import LabctlIn
from labs import LabUnderTest, give_talker, lab_with_board

from labctl.board.measuring import Effort
from labctl.build.builder import build
from labctl.build.plan import BuildRequest
from labctl.cli.root import run_cli
from labctl.config.target import load_target
from labctl.runs import probe


@pytest.fixture(scope="session")
def rk3568() -> None:
    """llama.cpp for the board, both versions: minutes the first time, then cached."""
    emulator = load_target("rk3568").emulator
    if platform.machine() != "aarch64" and emulator and not shutil.which(emulator.argv[0]):
        pytest.skip(f"{emulator.argv[0]} is not installed: no ARM64 program runs here")
    if platform.machine() == "x86_64":
        build(BuildRequest(target="host-x86_64", product="agent"))
    for version, tools in (
        ("classic", ("llama-cli", "llama-bench")),
        ("new", ("llama-completion", "llama-bench", "llama-quantize")),
    ):
        build(BuildRequest(target="rk3568", version=version, tools=tools))


@pytest.fixture
def lab(tmp_path: Path, private_state: Path, rk3568: None) -> Iterator[LabUnderTest]:
    """A lab with a tiny model and a virtual board that emulates an rk3568."""
    with lab_with_board(tmp_path, "--target", "rk3568") as lab:
        yield lab


@pytest.fixture
def native_lab(tmp_path: Path, private_state: Path) -> Iterator[LabUnderTest]:
    """A lab with a tiny model and a virtual board that runs this host's own programs."""
    agent_builds.native_agent()
    with lab_with_board(tmp_path, "--target", agent_builds.HOST) as lab:
        devices = lab.root / "devices.yaml"
        devices.write_text(devices.read_text().replace("rk3568", agent_builds.HOST))
        yield lab


@pytest.fixture
def talking(native_lab: LabUnderTest) -> LabUnderTest:
    """A lab whose board has a program that shows its tokens; the recipe is called ``talking``."""
    give_talker(native_lab)
    return native_lab


@pytest.fixture(scope="session")
def native_llama() -> None:
    """Programs of llama.cpp for this host: minutes the first time, then cached."""
    tools = ("llama-bench", "llama-completion", "llama-perplexity")
    build(BuildRequest(target=agent_builds.HOST, version="new", tools=tools))


@pytest.fixture
def measuring_briefly(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> LabctlIn:
    """Call labctl in this process, where probes take a second: the rates are not the point."""
    effort = Effort(memory_s=0.2, storage_s=0.5, file_bytes=8 << 20)
    monkeypatch.setattr(probe, "QUICK", effort)

    def call(root: Path, *words: str, status: int = 0) -> tuple[str, str]:
        ended = run_cli(["--lab", str(root), *words])
        shown = capsys.readouterr()
        assert ended == status, shown.err
        return shown.out, shown.err

    return call
