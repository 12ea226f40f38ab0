import os
from pathlib import Path

import pytest
from fake_engine import FakeEngine

from labctl.build.container.abandoned import remove_abandoned
from labctl.build.container.answers import questions_dir
from labctl.build.container.engine import Engine, Mount, find_engine
from labctl.errors import ConfigError, HostError, ToolMissing

INFO = "^info "


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder on PATH."""
    path = tmp_path / "bin"
    path.mkdir()
    monkeypatch.setenv("PATH", str(path))
    return path


def run_words(engine: Engine, *, network: bool = False, mounts: tuple[Mount, ...] = ()) -> str:
    words = engine.run_words(
        "sha256:1", name="n", label="a=b", network=network, mounts=mounts, cwd="/build", seconds=9
    )
    return " ".join(words)


def test_no_engine_is_a_missing_tool(programs: Path) -> None:
    with pytest.raises(ToolMissing, match="neither podman nor docker is installed") as caught:
        find_engine()
    assert "apt-get install podman" in (caught.value.hint or "")


def test_podman_comes_before_docker(programs: Path) -> None:
    FakeEngine.install("podman", programs).reply("^version", "5.4.2\n")
    FakeEngine.install("docker", programs).reply(INFO, '28.0.1 ["name=seccomp"]\n')
    assert str(find_engine()) == "podman 5.4.2"


def test_a_podman_that_does_not_work_gives_way_to_docker(programs: Path) -> None:
    FakeEngine.install("podman", programs).reply("", stderr="no subuid ranges", exit_status=125)
    FakeEngine.install("docker", programs).reply(INFO, '28.0.1 ["name=seccomp"]\n')
    assert str(find_engine()) == "docker 28.0.1"


def test_a_docker_without_its_daemon_is_the_hosts_fault(programs: Path) -> None:
    said = "Cannot connect to the Docker daemon at unix:///var/run/docker.sock."
    FakeEngine.install("docker", programs).reply("", stderr=said, exit_status=1)
    with pytest.raises(HostError, match="docker is installed but does not work here") as caught:
        find_engine()
    assert said in (caught.value.details or "")


@pytest.mark.parametrize(
    ("uid", "options", "user"),
    [
        (1000, '["name=seccomp"]', f"1000:{os.getegid()}"),
        (1000, '["name=seccomp","name=rootless"]', None),
        (0, '["name=seccomp"]', None),
    ],
)
def test_files_of_docker_belong_to_who_asked(
    programs: Path, monkeypatch: pytest.MonkeyPatch, uid: int, options: str, user: str | None
) -> None:
    FakeEngine.install("docker", programs).reply(INFO, f"28.0.1 {options}\n")
    monkeypatch.setattr("os.geteuid", lambda: uid)
    engine = find_engine()
    assert engine.user == user
    assert (f"--user {user}" in run_words(engine)) == (user is not None)


@pytest.mark.parametrize(("enforce", "disabled"), [("1\n", True), ("0\n", False), (None, False)])
def test_selinux_lets_containers_at_the_mounted_folders(
    programs: Path, tmp_path: Path, enforce: str | None, disabled: bool
) -> None:
    FakeEngine.install("podman", programs).reply("^version", "5.4.2\n")
    path = tmp_path / "enforce"
    if enforce is not None:
        path.write_text(enforce)
    words = run_words(find_engine(path))
    assert ("--security-opt label=disable" in words) == disabled


@pytest.mark.parametrize(("program", "limited"), [("podman", True), ("docker", False)])
def test_podman_ends_a_container_that_nobody_waits_for(program: str, limited: bool) -> None:
    words = run_words(Engine(program, "5"))
    assert ("--timeout 9" in words) == limited
    assert "--stop-timeout 0" in words


def test_the_network_is_cut_off_unless_it_cannot_be() -> None:
    engine = Engine("podman", "5")
    assert "--network none" in run_words(engine)
    assert "--network" not in run_words(engine, network=True)


def test_mounts_are_read_only_unless_they_are_to_be_written() -> None:
    mounts = (Mount(Path("/a b"), "/source"), Mount(Path("/t"), "/build", writable=True))
    words = run_words(Engine("podman", "5"), mounts=mounts)
    assert "--volume /a b:/source:ro --volume /t:/build:rw" in words
    with pytest.raises(ConfigError, match=r"no container engine can mount /a:b"):
        Mount(Path("/a:b"), "/source")


@pytest.mark.parametrize("id_", ["sha256:12ab", "12ab"])
def test_an_image_is_known_by_its_digest(programs: Path, id_: str) -> None:
    FakeEngine.install("podman", programs).reply("^image inspect .* thing$", f"{id_}\n")
    assert Engine("podman", "5").image_id("thing") == "sha256:12ab"


@pytest.mark.parametrize(
    "said", ["Error: inspecting object: thing: image not known", "Error: No such image: thing"]
)
def test_an_image_that_is_not_there_is_no_failure(programs: Path, said: str) -> None:
    FakeEngine.install("podman", programs).reply("", stderr=said, exit_status=125)
    assert Engine("podman", "5").image_id("thing") is None


def test_an_engine_that_cannot_look_is_not_taken_for_a_missing_image(programs: Path) -> None:
    said = "Error: database is locked"
    FakeEngine.install("podman", programs).reply("", stderr=said, exit_status=125)
    with pytest.raises(HostError, match="cannot look at its images") as caught:
        Engine("podman", "5").image_id("thing")
    assert caught.value.details == said


def test_what_an_earlier_build_left_is_removed(programs: Path) -> None:
    fake = FakeEngine.install("podman", programs)
    fake.reply("^ps .* label=labctl.build=/x$", "111\n222\n")
    fake.reply("^rm")
    Engine("podman", "5").remove_labelled("labctl.build=/x")
    assert fake.calls("^rm") == ["rm --force --volumes 111 222"]
    fake.reply("^rm", stderr="permission denied", exit_status=125)
    with pytest.raises(HostError, match="cannot end the containers") as caught:
        Engine("podman", "5").remove_labelled("labctl.build=/x")
    assert caught.value.hint == "podman rm --force 111 222"
    fake.reply("^ps", "")
    Engine("podman", "5").remove_labelled("labctl.build=/x")


def test_what_killed_builds_left_is_removed_and_nothing_of_others(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LABCTL_CACHE", str(tmp_path / "cache"))
    old, new = (questions_dir() / name for name in ("old", "new"))
    for folder in (old / "control", new):
        folder.mkdir(parents=True)
    os.utime(old, (0, 0))
    fake = FakeEngine.install("podman", programs)
    fake.reply("^version", "5.4.2\n")
    fake.reply("^ps .*label=labctl.build$", "killed\nrunning\nother\nasked\n")
    fake.reply("^ps .*label=labctl.build=questions --filter status=exited$", "asked\n")
    builds = tmp_path / "cache" / "build" / "rk3568"
    homes = {"killed": builds / "killed", "running": builds / "running", "other": "/else/where"}
    for name, home in homes.items():
        fake.reply(f"^container inspect .* {name}$", f"{home}\n")
    fake.reply("^container inspect .* asked$", "questions\n")
    fake.reply("^rm")
    expected = [str(old), "container asked", "container killed"]
    assert remove_abandoned(lambda home: home.name == "running", dry_run=True) == expected
    assert old.exists()
    assert fake.calls("^rm") == []
    assert remove_abandoned(lambda home: home.name == "running", dry_run=False) == expected
    assert [folder.name for folder in questions_dir().iterdir()] == ["new"]
    assert [call.split()[-1] for call in fake.calls("^rm")] == ["asked", "killed"]


def test_without_an_engine_there_are_no_containers(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LABCTL_CACHE", str(tmp_path / "cache"))
    assert list(programs.iterdir()) == []
    assert remove_abandoned(lambda _home: False, dry_run=False) == []


def test_a_container_that_is_gone_already_needs_no_removal(programs: Path) -> None:
    fake = FakeEngine.install("podman", programs)
    fake.reply("^rm", stderr="no such container", exit_status=1)
    fake.reply("^ps", "")
    Engine("podman", "5").remove("n")
    fake.reply("^ps", "111\n")
    with pytest.raises(HostError, match="podman cannot end n"):
        Engine("podman", "5").remove("n")
