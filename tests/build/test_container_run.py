from pathlib import Path

import pytest
from fake_engine import FakeEngine

from labctl import process
from labctl.build.container import run as run_module
from labctl.build.container.answers import Image
from labctl.build.container.builder import SOURCE, TREE, ContainerWorkspace
from labctl.build.container.engine import Engine, Mount
from labctl.build.container.run import Containers
from labctl.build.workspace import Folders
from labctl.errors import HostError, HostTimeout, ToolMissing

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
        words, launch=lambda argv: process.run(argv, timeout=timeout), env={"LC_ALL": "C"}
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
        with pytest.raises(HostError, match="left a link out of its folder"):
            workspace.fetch(path, tmp_path / "fetched")
        with pytest.raises(HostError, match="left a link out of its folder"):
            workspace.read(path)
    with pytest.raises(HostError, match="left a link out of its folder"):
        workspace.write("bin/tool.map", "text")
    assert not (tmp_path / "fetched").exists()
    assert workspace.read("same") == "good"


def test_a_status_that_is_a_link_is_none(engine: FakeEngine, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("0\n")
    engine.reply("^run", "made\n", status="0\n", exit_status=0)

    def launch(argv: list[str]) -> process.Completed:
        done = process.run(argv, timeout=60)
        (status,) = (tmp_path / "control").glob("*/status")
        status.unlink()
        status.symlink_to(secret)
        return done

    containers = Containers(Engine("podman", "5"), "sha256:1", "a=b", tmp_path / "control")
    with pytest.raises(HostError, match="ended before"):
        containers.run(["ninja"], launch=launch, env={})


def test_the_exit_status_is_the_programs_not_the_engines(
    engine: FakeEngine, tmp_path: Path
) -> None:
    engine.reply("^run", "made\n", status="2\n", exit_status=0)
    done = run(tmp_path, "ninja", "-C", "/build")
    assert (done.argv, done.exit_status, done.text) == (("ninja", "-C", "/build"), 2, "made\n")
    engine.reply("^run", status="127\n", exit_status=125)
    assert run(tmp_path, "ninja").exit_status == 127
    assert list((tmp_path / "control").iterdir()) == []
    assert engine.calls("^rm") == []


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
    assert len(engine.calls("^rm --force labctl-")) == 1


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
    assert len(engine.calls("^rm --force labctl-")) == 1


def test_ctrl_c_removes_the_container_also_when_the_engine_fails_then(
    engine: FakeEngine, tmp_path: Path
) -> None:
    engine.reply("^rm", stderr="locked", exit_status=125)
    engine.reply("^ps", "1\n")

    def interrupted(argv: list[str]) -> process.Completed:
        process.run(argv, timeout=120)
        raise KeyboardInterrupt

    containers = Containers(Engine("podman", "5"), "sha256:1", "a=b", tmp_path / "control")
    with pytest.raises(KeyboardInterrupt):
        containers.run(["ninja"], launch=interrupted, env={})
    assert len(engine.calls("^rm --force labctl-")) == 1


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
