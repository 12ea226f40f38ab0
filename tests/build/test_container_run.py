import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from fake_engine import FakeEngine

from labctl import process
from labctl.build.container import run as run_module
from labctl.build.container.answers import Image
from labctl.build.container.builder import SOURCE, TREE, ContainerWorkspace
from labctl.build.container.engine import Engine, Mount, Restrictions
from labctl.build.container.run import Containers
from labctl.build.workspace import Folders
from labctl.errors import (
    CompileError,
    HostError,
    HostTimeout,
    LabctlError,
    ProgramTimeout,
    ToolMissing,
)
from labctl.retry import wait_until

LOOPBACK = f"{'0' * 32} 00 {'0' * 32} 00 {'0' * 32} ffffffff 1 0 00200200 lo\n"
HEADING = "Iface Destination Gateway\n"
DEFAULT_ROUTE = "eth0 00000000 0100000A\n"


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeEngine:
    """An engine that starts nothing; programs in its containers end well and say nothing."""
    path = tmp_path / "bin"
    path.mkdir()
    monkeypatch.setenv("PATH", str(path))
    monkeypatch.setenv("LABCTL_CACHE", str(tmp_path / "cache"))
    engine = FakeEngine.install("podman", path)
    engine.reply("^run", status="0\n")
    engine.reply("^run .*/proc/net/route", HEADING + LOOPBACK, status="0\n")
    engine.reply("^rm")
    return engine


def run(tmp_path: Path, *words: str, timeout: float = 120) -> process.Completed:
    containers = Containers(
        Engine("podman", "5"),
        "sha256:1",
        "a=b",
        tmp_path / "control",
        mounts=(Mount(tmp_path, "/source"),),
    )
    return containers.run(
        words,
        launch=lambda argv, cwd, held: process.run(
            argv, timeout=timeout, cwd=cwd, keep_open=(held,)
        ),
        seconds=timeout,
        env={"LC_ALL": "C"},
    )


def refused(tmp_path: Path, kind: type[HostError], **options: float) -> HostError:
    with pytest.raises(kind) as caught:
        run(tmp_path, "ninja", "-C", "/build", **options)
    return caught.value


def test_files_are_looked_for_where_a_container_sees_them(tmp_path: Path) -> None:
    for name in ("source", "tree", "kit"):
        (tmp_path / name).mkdir()
    (tmp_path / "source" / "configure").touch()
    (tmp_path / "tree" / "made").touch()
    containers = Containers(Engine("podman", "5"), "sha256:1", "a=b", tmp_path / "control")
    here = {TREE: tmp_path / "tree", SOURCE: tmp_path / "source"}
    workspace = ContainerWorkspace(Folders(SOURCE, TREE), here, containers, lock=0)
    for there in (f"{SOURCE}/./configure", f"{TREE}/made", "made", f"{tmp_path}/kit"):
        assert workspace.exists(there)
    for gone in (f"{SOURCE}/made", f"{TREE}/configure", f"{SOURCE}s/configure"):
        assert not workspace.exists(gone)


def test_no_link_leads_out_of_the_tree(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    for folder in (tree, tmp_path / "source", tmp_path / "outside"):
        folder.mkdir()
    (tmp_path / "outside" / "secret").write_text("words of the host")
    (tree / "tool").symlink_to(tmp_path / "outside" / "secret")
    (tree / "bin").symlink_to(tmp_path / "outside")
    (tree / "inside").write_text("good")
    (tree / "same").symlink_to("inside")
    containers = Containers(Engine("podman", "5"), "sha256:1", "a=b", tmp_path / "control")
    here = {TREE: tree, SOURCE: tmp_path / "source"}
    workspace = ContainerWorkspace(Folders(SOURCE, TREE), here, containers, lock=0)
    for path in ("tool", f"{TREE}/tool", "bin/secret", f"{TREE}/../outside/secret"):
        with pytest.raises(CompileError, match="left a link out of its folder"):
            workspace.fetch(path, tmp_path / "fetched")
        with pytest.raises(CompileError, match="left a link out of its folder"):
            workspace.read(path)
    with pytest.raises(CompileError, match="left a link out of its folder"):
        workspace.write("bin/tool.map", "text")
    (tree / "loop").symlink_to("loop")
    (tree / "folder").mkdir()
    os.mkfifo(tree / "pipe")
    for path in ("loop", "folder", "pipe", "nothing"):
        with pytest.raises(CompileError, match="left no file that can be read"):
            workspace.fetch(path, tmp_path / "fetched")
    assert not (tmp_path / "fetched").exists()
    assert workspace.read("same") == "good"


def make_link(path: Path) -> None:
    path.with_name("good").write_text("0\n")
    path.symlink_to("good")


@pytest.mark.parametrize("made", [make_link, os.mkfifo, os.mkdir])
def test_a_status_that_is_no_file_is_none(
    engine: FakeEngine, tmp_path: Path, made: Callable[[Path], object]
) -> None:
    engine.reply("^run", "made\n", status="0\n", exit_status=0)

    def launch(argv: list[str], _cwd: Path, _held: int) -> process.Completed:
        done = process.run(argv, timeout=60)
        (status,) = (tmp_path / "control").glob("*/control/status")
        status.unlink()
        made(status)
        return done

    containers = Containers(Engine("podman", "5"), "sha256:1", "a=b", tmp_path / "control")
    with pytest.raises(HostError, match="ended before"):
        containers.run(["ninja"], launch=launch, seconds=60, env={})


def test_the_exit_status_is_the_programs_not_the_engines(
    engine: FakeEngine, tmp_path: Path
) -> None:
    engine.reply("^run", "made\n", status="2\n", exit_status=0)
    done = run(tmp_path, "ninja", "-C", "/build")
    assert (done.argv, done.exit_status, done.text) == (("ninja", "-C", "/build"), 2, "made\n")
    engine.reply("^run", status="127\n", exit_status=125)
    assert run(tmp_path, "ninja").exit_status == 127
    assert list((tmp_path / "control").iterdir()) == []
    assert len(engine.calls("^rm --force --volumes labctl-")) == 2


def test_a_program_gets_its_own_environment_and_the_engine_the_users(
    engine: FakeEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONTAINERS_CONF", "/etc/mine.conf")
    run(tmp_path, "ninja")
    assert engine.environments()[0]["CONTAINERS_CONF"] == "/etc/mine.conf"
    (call,) = engine.calls("^run")
    assert "CONTAINERS_CONF" not in call
    assert call.endswith("labctl ninja LC_ALL=C ninja")


@pytest.mark.parametrize(
    ("exit_status", "message"),
    [
        (125, "podman 5 cannot start a container"),
        (137, "the container ended before ninja did: killed, or out of memory"),
        (0, "the container ended before ninja did: killed, or out of memory"),
    ],
)
def test_a_container_that_ends_by_itself_is_the_hosts_fault(
    engine: FakeEngine, tmp_path: Path, exit_status: int, message: str
) -> None:
    engine.reply("^run", stderr="what podman says", exit_status=exit_status)
    error = refused(tmp_path, HostError)
    assert error.message == message
    assert error.details == "what podman says"
    assert len(engine.calls("^rm --force --volumes labctl-")) == 1


def test_a_container_that_ends_on_a_full_disk(
    engine: FakeEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.reply("^run", exit_status=1)
    monkeypatch.setattr(run_module, "disk_is_full", lambda _folder: True)
    assert refused(tmp_path, HostError).message == "ninja in a container: the disk is full"


def test_a_program_that_the_image_lacks(engine: FakeEngine, tmp_path: Path) -> None:
    engine.reply("^run", status="missing ninja\n")
    error = refused(tmp_path, ToolMissing)
    assert error.message == "not in the container's image: ninja"
    assert "Containerfile" in (error.hint or "")


def test_a_time_out_removes_the_container(engine: FakeEngine, tmp_path: Path) -> None:
    engine.reply("^run", "[3/7] linking\n", seconds=600)
    error = refused(tmp_path, HostTimeout, timeout=4)
    assert error.message == "ninja in a container did not end within 4 s and was stopped"
    assert "[3/7]" in (error.details or "")
    assert len(engine.calls("^rm --force --volumes labctl-")) == 1


def test_ctrl_c_removes_the_container_also_when_the_engine_fails_then(
    engine: FakeEngine, tmp_path: Path
) -> None:
    engine.reply("^rm", stderr="locked", exit_status=125)
    engine.reply("^ps", "1\n")

    def interrupted(argv: list[str], _cwd: Path, _held: int) -> process.Completed:
        process.run(argv, timeout=120)
        raise KeyboardInterrupt

    containers = Containers(Engine("podman", "5"), "sha256:1", "a=b", tmp_path / "control")
    with pytest.raises(KeyboardInterrupt):
        containers.run(["ninja"], launch=interrupted, seconds=60, env={})
    # What labctl could not remove, its guard tries as well.
    assert len(engine.calls("^rm --force --volumes labctl-")) >= 2


RESTRICTED = Restrictions(memory_bytes=8 << 30, processes=9, file_bytes=9, disk_bytes=1 << 40)


def refused_restricted(tmp_path: Path, timeout: float = 120) -> LabctlError:
    containers = Containers(
        Engine("podman", "5"), "sha256:1", "a=b", tmp_path / "control", restrictions=RESTRICTED
    )
    with pytest.raises(LabctlError) as caught:
        containers.run(
            ["ninja"],
            launch=lambda argv, cwd, held: process.run(
                argv, timeout=timeout, cwd=cwd, keep_open=(held,)
            ),
            seconds=timeout,
            env={},
        )
    return caught.value


NEVER = "0001-01-01 00:00:00 +0000 UTC\tfalse"
ENDED = "2026-11-28 07:00:00 +0000 UTC\tfalse"
OUT_OF_MEMORY = "2026-11-28 07:00:00 +0000 UTC\ttrue"


@pytest.mark.parametrize(
    ("engine_says", "status", "error"),
    [
        ((125, None), None, HostError("podman 5 cannot start a container")),
        ((127, NEVER), None, HostError("podman 5 cannot start a container")),
        ((125, ENDED), None, CompileError("the container ended before ninja did")),
        ((143, ENDED), None, CompileError("the container ended before ninja did")),
        ((0, ENDED), "missing cc\n", CompileError("the container ended before ninja did")),
        ((137, OUT_OF_MEMORY), None, CompileError("ninja needed more than 8.59 GB of memory")),
    ],
)
def test_the_host_alone_says_that_it_is_at_fault(
    engine: FakeEngine,
    tmp_path: Path,
    engine_says: tuple[int, str | None],
    status: str | None,
    error: LabctlError,
) -> None:
    """Not what a program of an untrusted source prints, writes, or ends."""
    said = "Error: No space left on device"
    exit_status, inspected = engine_says
    engine.reply("^run", stderr=said, status=status, exit_status=exit_status)
    engine.reply("^container inspect", inspected or "", exit_status=0 if inspected else 125)
    raised = refused_restricted(tmp_path)
    assert (type(raised), raised.message, raised.details) == (type(error), error.message, said)


@pytest.mark.parametrize(("status", "failed"), [("0\n", False), ("1\n", True), ("1\n", False)])
def test_conmon_tells_podman_of_memory_by_a_file(
    engine: FakeEngine, tmp_path: Path, status: str, failed: bool
) -> None:
    """Podman 4 looks for it elsewhere. A program may go on after one of its own was ended."""
    engine.reply("^run", status=status)
    engine.reply("^container inspect", ENDED)

    def launch(argv: list[str], cwd: Path, _held: int) -> process.Completed:
        if failed or status == "0\n":
            (cwd / "oom").touch()
        return process.run(argv, timeout=60, cwd=cwd)

    containers = Containers(
        Engine("podman", "5"), "sha256:1", "a=b", tmp_path / "control", restrictions=RESTRICTED
    )
    if failed:
        with pytest.raises(CompileError, match=r"ninja needed more than 8\.59 GB of memory"):
            containers.run(["ninja"], launch=launch, seconds=60, env={})
    else:
        done = containers.run(["ninja"], launch=launch, seconds=60, env={})
        assert done.exit_status == int(status)


@pytest.mark.parametrize(
    ("began", "kind"), [("2026-11-28 07:00:00 UTC", ProgramTimeout), ("0001-01-01", HostTimeout)]
)
def test_a_time_out_is_of_who_used_the_time(
    engine: FakeEngine, tmp_path: Path, began: str, kind: type[LabctlError]
) -> None:
    engine.reply("^run", seconds=600)
    engine.reply("^container inspect", f"{began}\tfalse")
    assert type(refused_restricted(tmp_path, timeout=2)) is kind


SLOW_ENGINE = """\
#!/bin/sh
folder=@FOLDER@
case $1 in
run) : >$folder/asked; sleep 3; : >$folder/container; sleep 600 ;;
rm) rm -f $folder/container; echo >>$folder/removals ;;
ps) ls $folder/container 2>/dev/null ;;
esac
"""
LABCTL = """\
from pathlib import Path
from labctl import process
from labctl.build.container.engine import Engine
from labctl.build.container.run import Containers
containers = Containers(Engine("podman", "5"), "sha256:1", "a=b", Path("control"))
containers.run(
    ["ninja"],
    launch=lambda argv, cwd, held: process.run(argv, timeout=600, cwd=cwd, keep_open=(held,)),
    seconds=600,
    env={},
)
"""


def test_a_container_that_comes_after_the_death_of_labctl_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """labctl dies while its engine is about to make the container."""
    program = tmp_path / "bin" / "podman"
    program.parent.mkdir()
    program.write_text(SLOW_ENGINE.replace("@FOLDER@", str(tmp_path)))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    labctl = process.start([sys.executable, "-c", LABCTL], cwd=tmp_path)
    assert wait_until((tmp_path / "asked").exists, timeout=60, interval=0.05)
    os.killpg(labctl.pid, signal.SIGKILL)
    container, removals = tmp_path / "container", tmp_path / "removals"
    assert wait_until(container.exists, timeout=60, interval=0.01)
    assert wait_until(lambda: not container.exists(), timeout=5, interval=0.01)
    (engine,) = (pid for pid in processes_in(tmp_path) if "run" in words_of(pid))
    os.killpg(engine, signal.SIGKILL)
    assert wait_until(lambda: not processes_in(tmp_path), timeout=10, interval=0.05)
    assert len(removals.read_text().splitlines()) > 2
    labctl.communicate(timeout=60)


def words_of(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")


def processes_in(folder: Path) -> list[int]:
    """Processes of this host that work in a folder or below: an engine's, and its guard."""
    found = []
    for cwd in Path("/proc").glob("[0-9]*/cwd"):
        with suppress(OSError):  # it has just ended
            if cwd.readlink().is_relative_to(folder):
                found.append(int(cwd.parent.name))
    return found


def test_an_image_is_asked_each_question_once(engine: FakeEngine) -> None:
    engine.reply("^run .* uname -m$", "x86_64\n", status="0\n")
    engine.reply("^run .*os-release$", 'PRETTY_NAME="Debian 12"\nID=debian\n', status="0\n")
    engine.reply("^run .* gcc --version$", status="missing gcc\n")
    image = Image(Engine("podman", "5"), "sha256:1")
    said = (image.isolated, image.machine, image.system, image.ask(["gcc", "--version"]))
    assert said == (True, "x86_64", "Debian 12", None)
    asked = len(engine.calls("^run"))
    again = Image(Engine("podman", "5"), "sha256:1")
    assert (again.isolated, again.machine, again.system, again.ask(["gcc", "--version"])) == said
    assert len(engine.calls("^run")) == asked
    Image(Engine("podman", "6"), "sha256:1")
    assert len(engine.calls("^run")) > asked


def test_an_engine_that_cannot_cut_off_the_network_is_recorded_as_such(
    engine: FakeEngine,
) -> None:
    engine.reply("^run .*--network none", stderr="cannot make a namespace", exit_status=126)
    engine.reply("^ps", "")
    image = Image(Engine("podman", "5"), "sha256:1")
    assert not image.isolated
    assert image.ask(["uname", "-m"]) == ""


def test_a_network_that_was_not_asked_for_is_seen(engine: FakeEngine) -> None:
    engine.reply("^run .*/proc/net/route", HEADING + DEFAULT_ROUTE + LOOPBACK, status="0\n")
    assert not Image(Engine("podman", "5"), "sha256:1").isolated


def test_an_engine_that_starts_nothing_at_all_is_an_error(engine: FakeEngine) -> None:
    engine.reply("^run", stderr="no space for containers", exit_status=125)
    with pytest.raises(HostError, match="podman 5 cannot start a container"):
        Image(Engine("podman", "5"), "sha256:1")
