"""Builds on other hosts: a real sshd on loopback, as x86_64 and as ARM64 machine."""

import json
import os
import platform
import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from sshd_arm64 import arm64_host, userland
from sshd_host import SshHost, ssh_host
from sshd_lab import TARGET, SshLab, run_in

from labctl import process
from labctl.build.builder import build
from labctl.build.manifest import BuilderKind
from labctl.build.plan import BuildRequest
from labctl.build.progress import OnProgress, Step
from labctl.build.source import Folder
from labctl.errors import CompileError, ConfigError, HostError, HostTimeout
from labctl.folders import cache_dir
from labctl.retry import wait_until
from labctl.transport.ssh.link import Watch
from labctl.transport.ssh.login import log_in

pytestmark = pytest.mark.e2e

#: One source of a line, and the thirty of the agent.
PRODUCTS = pytest.mark.parametrize(
    "product", ["plain", pytest.param("agent", marks=pytest.mark.soak)]
)


@pytest.fixture
def x86(tmp_path: Path) -> Iterator[SshHost]:
    with ssh_host(tmp_path / "x86") as host:
        yield host


@pytest.fixture(scope="session")
def arm64_userland() -> Path:
    return userland()


@pytest.fixture
def lab(tmp_path: Path, x86: SshHost, monkeypatch: pytest.MonkeyPatch) -> SshLab:
    (tmp_path / "cache").mkdir()
    (cache_dir() / "sources").mkdir(parents=True, exist_ok=True)
    (tmp_path / "cache" / "sources").symlink_to((cache_dir() / "sources").resolve())
    monkeypatch.setenv("LABCTL_CACHE", str(tmp_path / "cache"))
    return SshLab(tmp_path / "lab", x86=x86.entry())


def test_a_build_leaves_an_artifact_here_and_nothing_there(lab: SshLab, x86: SshHost) -> None:
    artifact = lab.build()
    artifact.verify()
    made = artifact.manifest
    assert made.tools["one"].smoke.done
    assert made.toolchain.on.host == "x86"
    assert made.toolchain.on.machine == platform.machine()
    assert made.toolchain.version
    assert made.toolchain.cmake
    assert lab.steps[:3] == [Step.SEND, Step.CONFIGURE, Step.COMPILE]
    assert [path.name for path in x86.workdir.iterdir()] == ["sources"]
    assert x86.workdir.stat().st_mode & 0o777 == 0o700
    assert x86.working() == []


def test_a_source_is_sent_once(lab: SshLab, x86: SshHost) -> None:
    lab.build("one")
    assert Step.SEND in lab.steps
    lab.events.clear()
    lab.build("two")
    assert Step.COMPILE in lab.steps
    assert Step.SEND not in lab.steps
    (archive,) = (x86.workdir / "sources").iterdir()
    archive.write_bytes(archive.read_bytes()[:-1])
    shutil.rmtree(cache_dir() / "artifacts")
    lab.events.clear()
    lab.build("two")  # what is there is not what was sent
    assert Step.SEND in lab.steps


def test_archives_of_old_sources_go(lab: SshLab, x86: SshHost) -> None:
    sources = x86.workdir / "sources"
    sources.mkdir(parents=True)
    for number in range(6):
        (sources / f"{number}.tar.gz").touch()
        os.utime(sources / f"{number}.tar.gz", (number, number))
    lab.build()
    (new,) = [path.name for path in sources.iterdir() if len(path.name) > 60]
    assert {path.name for path in sources.iterdir()} == {new} | {
        f"{number}.tar.gz" for number in (3, 4, 5)
    }


def test_what_was_edited_while_it_was_sent_is_in_no_later_build(
    lab: SshLab, x86: SshHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.write_hosts(x86=x86.entry(keep_trees=True))
    program, fetch = lab.source / "main.c", Folder.fetch
    before = program.read_text()

    def edited(self: Folder, on_progress: OnProgress) -> Path:
        program.write_text("int main(int count, char **words) { return count > 1 ? 0 : 7; }\n")
        return fetch(self, on_progress)

    with monkeypatch.context() as patch:
        patch.setattr(Folder, "fetch", edited)
        with pytest.raises(ConfigError, match="was changed while"):
            lab.build()
    program.write_text(before)
    tool = lab.build().tool("one")
    assert process.run([str(tool)], timeout=60).exit_status == 0


def test_a_tree_stays_when_asked_for(lab: SshLab, x86: SshHost) -> None:
    lab.write_hosts(x86=x86.entry(keep_trees=True))
    lab.build("one")
    (tree,) = (x86.workdir / "builds" / TARGET).iterdir()
    assert (tree / "tree" / "bin" / "one").is_file()
    lab.build("two")
    assert x86.working() == []


def test_a_compile_error_is_the_sources(lab: SshLab, x86: SshHost) -> None:
    (lab.source / "main.c").write_text("int main(void) { return wrong; }\n")
    with pytest.raises(CompileError) as caught:
        lab.build()
    assert "'wrong' undeclared" in (caught.value.details or "")
    # The build host clears up when the connection has ended.
    assert wait_until(
        lambda: [path.name for path in x86.workdir.iterdir()] == ["sources"],
        timeout=120,
        interval=0.05,
    )
    assert wait_until(lambda: x86.working() == [], timeout=120, interval=0.05)


def test_two_builds_of_the_same_take_turns(lab: SshLab, x86: SshHost) -> None:
    watched = partial(log_in, watch=Watch(every=0.1))  # a wait is looked after with it
    turns: list[str] = []

    def second() -> None:
        with lab.workspace(open_link=watched):
            turns.append("second")

    with ThreadPoolExecutor(1) as pool:
        with lab.workspace() as workspace:
            other = pool.submit(second)
            assert wait_until(lambda: Step.WAIT in lab.steps, timeout=120, interval=0.05)
            run_in(workspace, ["true"])
            turns.append("first")
        other.result(timeout=120)
    assert turns == ["first", "second"]


def test_a_program_gets_its_words_and_environment_as_they_are(lab: SshLab, x86: SshHost) -> None:
    words = ["a b", "", "it's", "$HOME", "`id`", "*", "\\", "two\nlines", "ü", "!x", "-n"]
    with lab.workspace() as workspace:
        workspace.write("print.sh", 'for word; do printf "<%s>\\n" "$word"; done; env')
        done = run_in(workspace, ["sh", "print.sh", *words])
        lines = done.text.splitlines()
        assert "\n".join(lines).startswith("\n".join(f"<{word}>" for word in words))
        assert "LC_ALL=C" in lines
        assert not any(line.startswith(("SSH_", "SHLVL=5")) for line in lines)
        assert workspace.read("print.sh") is not None
        assert workspace.read("nothing") is None
        assert workspace.exists("print.sh")
        workspace.clear()
        assert not workspace.exists("print.sh")


def test_a_program_that_takes_too_long_is_ended_with_all_it_started(
    lab: SshLab, x86: SshHost
) -> None:
    script = "sleep 301 | sleep 302 & setsid sleep 303 & trap '' TERM; sleep 304"
    with lab.workspace() as workspace:
        with pytest.raises(HostTimeout, match="sh on build host 'x86' did not end within 2 s"):
            run_in(workspace, ["sh", "-c", script], timeout=2)
        assert not [line for line in x86.working() if "sleep 30" in line]
        assert run_in(workspace, ["echo", "still here"]).text == "still here"


def test_without_a_sign_of_labctl_a_host_clears_up(lab: SshLab, x86: SshHost) -> None:
    running = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        # No pulse within the host's patience: to it, the network is dead.
        lost = pool.submit(_lose, lab, running)
        assert running.wait(30)
        assert wait_until(lambda: x86.working() == [], timeout=120, interval=0.1)
        assert not (x86.workdir / "builds").exists()
        with pytest.raises(HostError, match="build host 'x86' has let go of the build"):
            lost.result(timeout=120)


def _lose(lab: SshLab, running: threading.Event) -> None:
    with lab.workspace(silence_seconds=1) as workspace:
        run_in(workspace, ["sh", "-c", "echo go; sleep 305"], on_line=lambda _line: running.set())


def test_what_is_built_names_no_folder_of_the_host(lab: SshLab, x86: SshHost) -> None:
    """CMake and a compiler for the board; the program holds the name of its source."""
    content = lab.build("one", target="rk3568").tool("one").read_bytes()
    assert b"main.c" in content
    assert str(x86.workdir).encode() not in content


@PRODUCTS
def test_a_product_is_built_from_the_command_line(lab: SshLab, x86: SshHost, product: str) -> None:
    lab.copy_agent()
    words = ("build", "--target", "rk3568", "--product", product, "--builder", "ssh", "--json")
    done = lab.labctl(*words)
    assert done.exit_status == 0, done.tail()
    manifest = json.loads(done.stdout)
    assert manifest["tools"][product]["elf"]["machine"] == "EM_AARCH64"
    assert manifest["tools"][product]["smoke"]["exit_status"] == 0
    assert manifest["toolchain"]["on"]["host"] == "x86"
    assert x86.working() == []


@pytest.mark.soak
def test_a_small_tool_of_ggml_is_built(lab: SshLab, x86: SshHost) -> None:
    request = BuildRequest(target="rk3568", product="gguf-tools", lab_root=lab.root)
    there = build(replace(request, builder=BuilderKind.SSH, host="x86"))
    assert x86.working() == []
    assert there.manifest.toolchain.on.host == "x86"
    for name, tool in there.manifest.tools.items():
        assert tool.smoke.done, name
        assert str(x86.workdir).encode() not in there.tool(name).read_bytes()


@PRODUCTS
@pytest.mark.timeout(900)
def test_an_arm64_host_builds_with_its_own_gcc(
    arm64_userland: Path, lab: SshLab, tmp_path: Path, product: str
) -> None:
    with arm64_host(tmp_path / "arm", arm64_userland) as arm:
        lab.write_hosts(arm=arm.entry())
        lab.copy_agent()
        words = ("build", "--target", "rk3568", "--product", product, "--host", "arm", "--json")
        done = lab.labctl(*words)
    assert done.exit_status == 0, done.tail()
    manifest = json.loads(done.stdout)
    on = manifest["toolchain"]["on"]
    assert (on["builder"], on["machine"], on["host"]) == ("ssh", "aarch64", "arm")
    assert manifest["toolchain"]["cmake"] is None
    assert "-march=armv8.2-a+dotprod+fp16" in manifest["flags"]
    tool = manifest["tools"][product]
    assert (tool["elf"]["machine"], tool["elf"]["interpreter"]) == ("EM_AARCH64", None)
    assert tool["smoke"]["exit_status"] == 0
    left = [path.name for path in (tmp_path / "arm" / "srv" / "labctl").iterdir()]
    assert left == ["sources"]


@pytest.mark.soak
def test_llama_cpp_is_built_whole(lab: SshLab, x86: SshHost) -> None:
    request = BuildRequest(target="rk3568", builder=BuilderKind.SSH, host="x86", lab_root=lab.root)
    manifest = build(request).manifest
    assert all(tool.smoke.done for tool in manifest.tools.values())
    generated = manifest.tools["llama-completion"].infer
    assert generated is not None
    assert generated.exit_status == 0
    assert [path.name for path in x86.workdir.iterdir()] == ["sources"]
    assert x86.working() == []
