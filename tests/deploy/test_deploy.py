import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from agent_fences import native_fence

from labctl.board.store import BoardStore
from labctl.deploy.plan import Object, agent_object, describe, plan
from labctl.deploy.send import DeployOptions, deploy
from labctl.errors import ConfigError
from labctl.records.board import BoardFacts, Execution
from labctl.transport.local import LocalConfig

pytestmark = pytest.mark.usefixtures("private_state")

FACTS = BoardFacts(
    execution=Execution.BOARD,
    machine="aarch64",
    kernel="5.10",
    boot_id="boot",
    storage_free_bytes=1 << 30,
)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[BoardStore]:
    with LocalConfig().open() as link:
        workdir = str(tmp_path / "board")
        yield BoardStore(link, workdir, fence=native_fence(link, workdir))


@pytest.fixture
def objects(tmp_path: Path) -> list[Object]:
    made = []
    for name, size in (("tool", 2_000_000), ("model", 3_000_000)):
        (tmp_path / name).write_bytes(name.encode() * (size // len(name)))
        made.append(describe(tmp_path / name, executable=name == "tool"))
    return made


def test_everything_is_sent_once(store: BoardStore, objects: list[Object]) -> None:
    first = plan(store, [*objects, objects[0]])
    assert [item.name for item in first.missing] == ["tool", "model"]
    assert first.bytes == sum(item.size_bytes for item in objects)
    seen: dict[str, int] = {}
    options = DeployOptions(progress=lambda item, sent: seen.update({item.name: sent}))
    paths = deploy(store, first, options)
    assert seen == {item.name: item.size_bytes for item in objects}
    for item in objects:
        assert Path(paths[item.sha256]).read_bytes() == item.local.read_bytes()
    assert Path(paths[objects[0].sha256]).stat().st_mode & 0o111
    second = plan(store, objects)
    assert (second.missing, second.bytes) == ((), 0)
    seen.clear()
    assert deploy(store, second) == paths
    assert not seen


def test_the_same_content_under_two_names_is_sent_once(store: BoardStore, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(b"same")
    made = plan(store, [describe(tmp_path / "a"), describe(tmp_path / "b")])
    assert len(made.objects) == 2
    assert len(made.missing) == 1
    assert made.bytes == 4


def test_what_was_finished_before_an_error_stays(store: BoardStore, objects: list[Object]) -> None:
    made = plan(store, objects)
    objects[1].local.write_bytes(b"changed")
    with pytest.raises(ConfigError, match="changed"):
        deploy(store, made)
    assert [item.name for item in plan(store, objects).missing] == ["model"]


def test_an_object_is_described_by_its_content(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"abc")
    item = describe(path)
    assert item.sha256 == hashlib.sha256(b"abc").hexdigest()
    assert (item.size_bytes, item.name, item.executable) == (3, "file", False)
    with pytest.raises(ConfigError, match="cannot read"):
        describe(tmp_path / "gone")


def test_the_agent_is_chosen_by_the_boards_own_machine(tmp_path: Path) -> None:
    asked: list[str] = []

    def agent_for(machine: str) -> Path:
        asked.append(machine)
        path = tmp_path / machine
        path.write_bytes(b"agent")
        return path

    item = agent_object(FACTS, agent_for)
    assert asked == ["aarch64"]
    assert item.executable
    assert item.local == tmp_path / "aarch64"
