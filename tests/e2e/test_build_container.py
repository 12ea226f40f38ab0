"""The container builder, with a real podman: what it makes, and how it fails."""

import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from subprocess import Popen
from typing import Any

import pytest
from podman import containers_of, podman_environment
from small_disk import small_disk

from labctl import process
from labctl.build.artifact import Artifact
from labctl.build.builder import build
from labctl.build.container.image import BASE_VARIABLE
from labctl.build.manifest import BuilderKind
from labctl.build.plan import BuildRequest
from labctl.retry import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]

SPEC = """\
product: trial
description: Small programs, good and bad
builder: cmake
default_version: first
versions:
  first:
    source: {folder: ../../source}
definitions: {CMAKE_BUILD_TYPE: Release}
tools:
  good: {smoke: []}
  bad: {smoke: []}
  slow: {smoke: []}
  intruder: {smoke: []}
  big: {smoke: []}
"""

CMAKE = """\
cmake_minimum_required(VERSION 3.14)
project(trial C)
function(made_by name)
  add_custom_command(OUTPUT ${name}.c COMMAND ${ARGN} VERBATIM)
  add_executable(${name} ${CMAKE_CURRENT_BINARY_DIR}/${name}.c)
endfunction()
add_executable(good good.c)
add_executable(bad bad.c)
made_by(slow sleep 600)
made_by(intruder cp ${CMAKE_SOURCE_DIR}/good.c ${CMAKE_SOURCE_DIR}/left-behind.c)
made_by(big dd if=/dev/zero of=big.c bs=1M count=200)
"""

GOOD = """\
#include <stdio.h>
int main(void) { return puts(__FILE__ " " __DATE__) < 0; }
"""


@dataclass(frozen=True)
class Containerised:
    """A lab whose product is built in containers, with a cache of its own."""

    root: Path
    environment: dict[str, str]

    def words(self, tool: str) -> list[str]:
        command = [sys.executable, "-m", "labctl", "build", "--target", "rk3568"]
        return [*command, "--product", "trial", "--builder", "container", "--tool", tool]

    def build(self, tool: str, *words: str, **environment: str) -> process.Completed:
        return process.run(
            [*self.words(tool), *words],
            timeout=600,
            cwd=self.root,
            env={**os.environ, **self.environment, **environment},
        )

    def start(self, tool: str) -> "Popen[bytes]":
        """A build that sleeps for ten minutes, when its container runs."""
        running = process.start(
            self.words(tool), cwd=self.root, env={**os.environ, **self.environment}
        )
        if not wait_until(lambda: bool(self.compiling()), timeout=240, interval=0.2):
            process.stop(running)
            pytest.fail("the build did not get as far as Ninja")
        return running

    @property
    def cache(self) -> Path:
        return Path(self.environment["LABCTL_CACHE"])

    def own_containerfile(self, line: str) -> None:
        path = self.root / "toolchains" / "rk3568" / "Containerfile"
        path.write_text(f"ARG BASE=unused\nFROM ${{BASE}}\n{line}\n")

    def manifest(self, *words: str) -> dict[str, Any]:
        done = self.build("good", "--json", *words)
        assert done.exit_status == 0, done.tail()
        document: dict[str, Any] = json.loads(done.text)
        return document

    def containers(self) -> list[str]:
        """All containers of this lab's builds."""
        return containers_of(self.cache, self.environment)

    def compiling(self) -> list[str]:
        """Containers in which Ninja sleeps."""
        logs = self.cache.glob("build/rk3568/trial-*/build.log")
        begun = any("-C /build" in log.read_text() for log in logs)
        return self.containers() if begun else []

    def is_empty(self) -> bool:
        return not self.containers()


def processes_naming(path: Path) -> list[str]:
    """Processes of this host with a path among their words."""
    found: list[str] = []
    for cmdline in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has just ended
            if os.fsencode(path) in cmdline.read_bytes():
                found.append(cmdline.parent.name)
    return found


@pytest.fixture(scope="module")
def podman() -> dict[str, str]:
    return podman_environment()


@pytest.fixture
def in_podman(podman: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in podman.items():
        monkeypatch.setenv(name, value)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def lab(tmp_path: Path, podman: dict[str, str], cache: Path) -> Iterator[Containerised]:
    source = tmp_path / "source"
    source.mkdir()
    (source / "CMakeLists.txt").write_text(CMAKE)
    (source / "good.c").write_text(GOOD)
    (source / "bad.c").write_text("int main(void) { return missing; }\n")
    spec = tmp_path / "toolchains" / "rk3568" / "trial.yaml"
    spec.parent.mkdir(parents=True)
    spec.write_text(SPEC)
    (tmp_path / "devices.yaml").write_text("boards: {}\n")
    lab = Containerised(tmp_path, {**podman, "LABCTL_CACHE": str(cache)})
    yield lab
    assert lab.is_empty(), "a container was left behind"
    for log in cache.glob("build/rk3568/trial-*/build.log"):
        log.unlink()


def in_container(
    product: str, *, version: str | None = None, lab_root: Path | None = None
) -> Artifact:
    request = BuildRequest(
        target="rk3568",
        product=product,
        version=version,
        builder=BuilderKind.CONTAINER,
        lab_root=lab_root,
    )
    return build(request)


@pytest.mark.usefixtures("in_podman")
def test_the_agent_is_built_and_the_manifest_says_how() -> None:
    artifact = in_container("agent")
    artifact.verify()
    toolchain = artifact.manifest.toolchain
    assert toolchain.compiler == "gcc"
    assert toolchain.triple == "aarch64-linux-gnu"
    assert (toolchain.libc or "").startswith("glibc ")
    assert (toolchain.on.builder, toolchain.on.network) == ("container", False)
    assert (toolchain.on.image or "").startswith("sha256:")
    assert (toolchain.on.engine or "").startswith("podman ")
    assert "-march=armv8.2-a+dotprod+fp16" in artifact.manifest.flags
    agent = artifact.manifest.tools["agent"]
    assert (agent.elf.machine, agent.elf.dynamic) == ("EM_AARCH64", False)
    assert agent.smoke.exit_status == 0
    assert agent.smoke.output.startswith("labctl-agent ")


@pytest.mark.usefixtures("in_podman")
def test_a_tool_of_ggml_reads_a_model_under_the_emulator() -> None:
    artifact = in_container("gguf-tools")
    artifact.verify()
    toolchain = artifact.manifest.toolchain
    assert toolchain.cmake is not None
    assert toolchain.ninja is not None
    tool = artifact.manifest.tools["llama-gguf"]
    assert tool.infer is not None
    assert tool.infer.exit_status == 0


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.usefixtures("in_podman")
@pytest.mark.parametrize("version", ["new", "classic"])
def test_llama_cpp_is_built_whole(version: str) -> None:
    artifact = in_container("llama.cpp", version=version)
    artifact.verify()
    for name, tool in artifact.manifest.tools.items():
        assert tool.smoke.done, name
        assert not tool.elf.dynamic, name


@pytest.mark.soak
def test_the_same_bytes_come_out_of_another_folder_and_cache(
    lab: Containerised, tmp_path: Path
) -> None:
    first = lab.manifest()
    elsewhere = Containerised(tmp_path / "else" / "where", dict(lab.environment))
    elsewhere.root.mkdir(parents=True)
    for name in ("source", "toolchains", "devices.yaml"):
        (lab.root / name).rename(elsewhere.root / name)
    elsewhere.environment["LABCTL_CACHE"] = str(tmp_path / "other-cache")
    second = elsewhere.manifest()
    assert second["path"] != first["path"]
    assert second["tools"]["good"]["sha256"] == first["tools"]["good"]["sha256"]
    assert second["toolchain"] == first["toolchain"]
    program = Path(first["path"], "bin", "good").read_bytes()
    assert str(lab.root).encode() not in program


def test_what_is_built_belongs_to_who_asked_and_the_source_stays_as_it_was(
    lab: Containerised,
) -> None:
    manifest = lab.manifest()
    tree = lab.cache / "build" / "rk3568"
    owners = {path.lstat().st_uid for path in tree.rglob("*")}
    assert owners == {os.geteuid()}
    assert Path(manifest["path"], "bin", "good").stat().st_uid == os.geteuid()
    before = sorted((lab.root / "source").iterdir())
    done = lab.build("intruder")
    assert done.exit_status == 1
    assert "Read-only file system" in done.tail()
    assert sorted((lab.root / "source").iterdir()) == before


def test_a_compile_error_is_the_sources_fault(lab: Containerised) -> None:
    done = lab.build("bad")
    assert done.exit_status == 1
    said = done.stderr.decode()
    assert "trial for rk3568 does not compile" in said
    assert "'missing' undeclared" in said


@pytest.mark.parametrize(
    "number",
    [
        signal.SIGINT,
        pytest.param(signal.SIGTERM, marks=pytest.mark.soak),
        pytest.param(signal.SIGKILL, marks=pytest.mark.soak),
    ],
)
def test_a_stopped_labctl_leaves_no_container(lab: Containerised, number: signal.Signals) -> None:
    running = lab.start("slow")
    running.send_signal(number)
    running.communicate(timeout=120)
    assert wait_until(lab.is_empty, timeout=120, interval=0.2)
    if number is signal.SIGINT:
        assert running.returncode == 130
    # Nothing is locked or half done.
    assert lab.manifest()["tools"].keys() == {"good"}


@pytest.mark.soak
def test_a_killed_labctl_whose_engine_was_killed_too_leaves_no_container(
    lab: Containerised,
) -> None:
    running = lab.start("slow")
    children = Path(f"/proc/{running.pid}/task/{running.pid}/children").read_text().split()
    (engine,) = (
        int(child)
        for child in children
        if Path(f"/proc/{child}/cmdline").read_bytes().startswith(b"podman\0run\0")
    )
    os.kill(running.pid, signal.SIGSTOP)  # it sees nothing of its engine's end
    os.kill(engine, signal.SIGKILL)
    os.kill(running.pid, signal.SIGKILL)
    running.communicate(timeout=120)
    assert wait_until(lab.is_empty, timeout=120, interval=0.2)
    assert lab.manifest()["tools"].keys() == {"good"}


@pytest.mark.parametrize(
    "number", [pytest.param(signal.SIGINT, marks=pytest.mark.soak), signal.SIGKILL]
)
def test_a_labctl_stopped_while_its_image_is_built_leaves_no_process(
    lab: Containerised, number: signal.Signals
) -> None:
    lab.own_containerfile(f"RUN echo {lab.root} && sleep 600")
    running = process.start(lab.words("good"), cwd=lab.root, env={**os.environ, **lab.environment})
    begun = wait_until(lambda: len(processes_naming(lab.root)) > 1, timeout=120, interval=0.2)
    running.send_signal(number)
    running.communicate(timeout=120)
    assert begun
    assert wait_until(lambda: not processes_naming(lab.root), timeout=120, interval=0.2)


@pytest.mark.soak
def test_a_container_that_is_killed_is_no_result_of_the_source(lab: Containerised) -> None:
    running = lab.start("slow")
    (container,) = lab.containers()
    words = ["podman", "kill", "--signal", "KILL", container]
    killed = process.run(words, timeout=120, env={**os.environ, **lab.environment})
    assert killed.exit_status == 0, killed.tail()
    _, said = running.communicate(timeout=120)
    assert running.returncode == 3
    assert b"the container ended before ninja did" in said


@pytest.mark.soak
def test_a_full_disk_is_the_hosts_fault(lab: Containerised, tmp_path: Path) -> None:
    with small_disk(tmp_path / "small", 100 << 10) as small:
        done = lab.build("big", LABCTL_CACHE=str(small))
    assert done.exit_status == 3
    assert "the disk is full" in done.stderr.decode()


def test_a_base_image_that_cannot_be_had(lab: Containerised) -> None:
    done = lab.build("good", **{BASE_VARIABLE: "localhost:1/no-such-image:1"})
    assert done.exit_status == 3
    said = " ".join(done.stderr.decode().split())
    assert "podman cannot get the base image localhost:1/no-such-image:1" in said
    assert "debootstrap" in said
    assert BASE_VARIABLE in said


@pytest.mark.parametrize(
    ("line", "status", "message"),
    [
        ("RUN echo no compiler to be had && false", 3, "image for rk3568 cannot be built"),
        ("INSTALL gcc", 2, "Containerfile is wrong"),
        pytest.param(
            *("RUN true", 3, "not installed in the container: aarch64-linux-gnu-gcc"),
            marks=pytest.mark.soak,
        ),
    ],
)
def test_a_wrong_containerfile_of_the_labs_own(
    lab: Containerised, line: str, status: int, message: str
) -> None:
    lab.own_containerfile(line)
    done = lab.build("good")
    assert done.exit_status == status
    assert message in " ".join(done.stderr.decode().split())
    if "echo" in line:
        assert "no compiler to be had" in done.stderr.decode()
