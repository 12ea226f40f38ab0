from pathlib import Path

import pytest
from fake_engine import FakeEngine, only_programs

from labctl.build.container import ContainerBuilder
from labctl.build.container import image as image_module
from labctl.build.container.engine import Engine
from labctl.build.container.image import (
    BASE_VARIABLE,
    IMAGE_SECONDS,
    ensure_image,
    find_containerfile,
)
from labctl.build.manifest import CompilerKind
from labctl.build.progress import BuildProgress, Step, ignore
from labctl.build.toolchain import Needs
from labctl.config.target import load_target
from labctl.errors import ConfigError, HostError, HostTimeout, LabctlError, ToolMissing
from labctl.package_data import TOOLCHAINS

TEXT = "ARG BASE=docker.io/library/debian:12@sha256:00\nFROM ${BASE}\nRUN true\n"
ABSENT = "Error: thing: image not known"


class Making:
    """A Containerfile, and an engine that has its base and builds it when told."""

    def __init__(self, path: Path, engine: FakeEngine):
        self.path = path
        self.engine = engine
        self.seen: list[BuildProgress] = []
        engine.reply("^image inspect", stderr=ABSENT, exit_status=125)
        engine.reply("^image inspect .*debian:12@", "ba5e\n")
        engine.reply("^build", "STEP 1/2: FROM\nSTEP 2/2: RUN true\n")

    def make(self, target: str = "rk3568", *, seconds: float = IMAGE_SECONDS) -> str:
        engine = Engine("podman", "5")
        return ensure_image(engine, target, self.path, self.seen.append, seconds=seconds)

    def appears(self) -> None:
        """From now on the image is there."""
        self.engine.reply("^image inspect .*localhost/labctl-", "1111\n")

    def refused(self, kind: type[LabctlError], *, seconds: float = IMAGE_SECONDS) -> LabctlError:
        with pytest.raises(kind) as caught:
            self.make(seconds=seconds)
        return caught.value


@pytest.fixture
def making(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Making:
    programs = tmp_path / "bin"
    programs.mkdir()
    monkeypatch.setenv("PATH", only_programs(programs))
    monkeypatch.setenv("LABCTL_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv(BASE_VARIABLE, raising=False)
    path = tmp_path / "Containerfile"
    path.write_text(TEXT)
    return Making(path, FakeEngine.install("podman", programs))


def tags(making: Making) -> list[str]:
    return [call.split(" --tag ")[1].split()[0] for call in making.engine.calls("^build")]


def test_an_image_is_built_when_it_is_not_there_and_progress_is_told(making: Making) -> None:
    built = making.refused(HostError)  # the fake builds nothing in truth
    assert "but there is no such image" in built.message
    assert [(p.step, p.done, p.total) for p in making.seen] == [
        (Step.IMAGE, None, None),
        (Step.IMAGE, 1, 2),
        (Step.IMAGE, 2, 2),
    ]
    (call,) = making.engine.calls("^build")
    assert "--build-arg BASE=docker.io/library/debian:12@sha256:00" in call
    making.appears()
    assert making.make() == "sha256:1111"
    assert len(making.engine.calls("^build")) == 1


def test_another_containerfile_or_base_is_another_image(
    making: Making, monkeypatch: pytest.MonkeyPatch
) -> None:
    making.refused(HostError)
    making.path.write_text(TEXT + "RUN false\n")
    making.refused(HostError)
    monkeypatch.setenv(BASE_VARIABLE, "localhost/mine")
    making.engine.reply("^image inspect .*localhost/mine$", "aaaa\n")
    making.refused(HostError)
    making.engine.reply("^image inspect .*localhost/mine$", "bbbb\n")  # imported anew
    making.refused(HostError)
    assert len(set(tags(making))) == 4
    assert "BASE=localhost/mine" in making.engine.calls("^build")[-1]


def test_a_base_that_is_not_there_is_fetched(making: Making) -> None:
    making.engine.reply("^image inspect .*debian:12@", stderr=ABSENT, exit_status=125)
    making.engine.reply("^pull", stderr="dial tcp: no such host", exit_status=125)
    error = making.refused(HostError)
    assert error.message.startswith("podman cannot get the base image docker.io/library/debian:12@")
    assert BASE_VARIABLE in (error.hint or "")
    assert "podman import" in (error.hint or "")
    assert "no such host" in (error.details or "")
    assert making.engine.calls("^build") == []


@pytest.mark.parametrize(
    ("said", "kind", "message"),
    [
        ("E: Unable to locate package g++", HostError, "the container image for rk3568 cannot be"),
        ("cp: write error: No space left on device", HostError, "the disk is full"),
        ("Error: unknown instruction: INSTALL", ConfigError, "Containerfile is wrong"),
    ],
)
def test_an_image_that_cannot_be_built(
    making: Making, said: str, kind: type[LabctlError], message: str
) -> None:
    making.engine.reply("^build", f"STEP 1/2: FROM\n{said}\n", exit_status=1)
    error = making.refused(kind)
    assert message in error.message
    log = Path((error.hint or "").removeprefix("the whole log: "))
    assert said in log.read_text()


def test_an_image_that_takes_too_long(making: Making) -> None:
    making.engine.reply("^build", seconds=60)
    error = making.refused(HostTimeout, seconds=0.5)
    assert error.message == "the container image for rk3568 was not built within 0.5 s"


def test_a_containerfile_has_to_name_its_base(making: Making) -> None:
    making.path.write_text("FROM debian:12\n")
    assert "there is no line 'ARG BASE=IMAGE'" in making.refused(ConfigError).message


def test_the_labs_own_containerfile_wins(tmp_path: Path) -> None:
    shipped = find_containerfile("rk3568", tmp_path)
    own = tmp_path / "toolchains" / "rk3568" / "Containerfile"
    own.parent.mkdir(parents=True)
    own.write_text(TEXT)
    assert find_containerfile("rk3568", tmp_path) == own != shipped


def test_a_target_without_a_containerfile_takes_the_one_for_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipped = find_containerfile("a-board-of-mine", tmp_path)
    assert shipped == TOOLCHAINS / "products" / "Containerfile"
    own = tmp_path / "toolchains" / "products" / "Containerfile"
    own.parent.mkdir(parents=True)
    own.write_text(TEXT)
    assert find_containerfile("a-board-of-mine", tmp_path) == own
    monkeypatch.setattr(image_module, "toolchain_folders", lambda _lab: (tmp_path / "empty",))
    with pytest.raises(ConfigError, match="the target 'rk3568' has no Containerfile"):
        find_containerfile("rk3568", tmp_path)


def test_the_shipped_image_has_a_base_by_digest_and_what_builds_need() -> None:
    for target in ("rk3568", "generic-armv8-a"):
        text = find_containerfile(target, None).read_text()
        assert "@sha256:" in text.partition("FROM")[0]
        for package in ("g++-aarch64-linux-gnu", "cmake", "ninja-build"):
            assert package in text


def test_there_is_no_zig_in_containers() -> None:
    needs = Needs(cmake=True, asked=CompilerKind.ZIG)
    with pytest.raises(ToolMissing, match="compiles with GCC"):
        ContainerBuilder(None, ignore).offer(load_target("rk3568"), needs)
