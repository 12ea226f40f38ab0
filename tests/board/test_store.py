import hashlib
import os
from pathlib import Path

import pytest
from agent_fences import native_fence
from stored import publish
from wrapped_transport import WrappedTransport

from labctl.board.store import STAT, BoardStore, StoredObject
from labctl.board.upload.client import ChunkedFile
from labctl.board.upload.resumable import PREFIX, DeliveryOptions, pushing
from labctl.errors import BoardError, ConfigError, DeviceLost, InfraError, IntegrityError
from labctl.transport.base import TransferOptions, Transport, remote_words

pytestmark = pytest.mark.usefixtures("private_state")


class Watched(WrappedTransport):
    """Another transport; what crosses it is counted, and pushes can be made to fail."""

    def __init__(self, inner: Transport):
        super().__init__(inner)
        self.pushed: list[str] = []
        self.commands: list[str] = []
        self.fail: Exception | None = None
        self.after_push = lambda: None

    def run(self, command, *, timeout, separate_stderr=False):  # type: ignore[no-untyped-def]
        self.commands.append(command)
        return super().run(command, timeout=timeout, separate_stderr=separate_stderr)

    def push(self, local: Path, remote: str, options: TransferOptions) -> None:
        self.pushed.append(remote)
        super().push(local, remote, options)
        self.after_push()
        if self.fail:
            raise self.fail


@pytest.fixture
def link(transport: Transport) -> Watched:
    return Watched(transport)


@pytest.fixture
def store(link: Watched, workdir: str) -> BoardStore:
    return BoardStore(link, workdir, fence=native_fence(link, workdir))


def content(tmp_path: Path, data: bytes = b"content") -> tuple[Path, StoredObject]:
    local = tmp_path / f"local {len(data)}"
    local.write_bytes(data)
    return local, StoredObject(hashlib.sha256(data).hexdigest(), len(data))


def test_an_empty_board_lacks_everything(store: BoardStore, tmp_path: Path) -> None:
    _, item = content(tmp_path)
    assert store.missing([item, item]) == [item]
    assert store.missing([]) == []


def test_a_published_file_is_there_and_nothing_else(
    store: BoardStore, tmp_path: Path, workdir: str
) -> None:
    local, item = content(tmp_path, b"x" * 3_000_000)
    seen: list[int] = []
    path = Path(publish(store, local, item, progress=seen.append))
    assert path == Path(workdir) / "store" / item.sha256
    assert path.read_bytes() == local.read_bytes()
    assert seen[-1] == item.size_bytes
    assert not path.stat().st_mode & 0o111
    assert sorted(p.name for p in path.parent.iterdir()) == [item.sha256, f"{item.sha256}.stamp"]
    assert store.missing([item]) == []
    assert store.verify([item]) == []


def test_a_program_is_executable(store: BoardStore, tmp_path: Path) -> None:
    local, item = content(tmp_path, b"#!/bin/sh\n")
    path = Path(publish(store, local, item, executable=True))
    assert path.stat().st_mode & 0o111 == 0o111


def test_looking_again_is_one_command_without_hashing(
    store: BoardStore, link: Watched, tmp_path: Path
) -> None:
    items = []
    for number in range(5):
        local, item = content(tmp_path, b"x" * number)
        publish(store, local, item)
        items.append(item)
    link.commands.clear()
    assert store.missing(items) == []
    assert len(link.commands) == 1
    assert "sha256sum" not in link.commands[0]


@pytest.mark.parametrize(
    "change", ["content", "one bit", "truncated", "longer", "same stat", "replaced"]
)
def test_a_changed_file_is_found_and_replaced(
    store: BoardStore, tmp_path: Path, change: str
) -> None:
    local, item = content(tmp_path, b"good bytes")
    path = Path(publish(store, local, item))
    before = path.stat()
    changes = {"truncated": b"good", "longer": b"good bytes and more", "one bit": b"good bytEs"}
    data = changes.get(change, b"evil bytes")
    if change == "replaced":
        other = path.with_name("other")
        other.write_bytes(data)
        other.replace(path)
    else:
        path.write_bytes(data)
    if change in ("same stat", "one bit", "replaced"):
        # The time of change cannot be set back.
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    elif change == "content":
        os.utime(path, (1, 1))
    assert store.missing([item]) == [item]
    publish(store, local, item)
    assert path.read_bytes() == b"good bytes"
    assert store.missing([item]) == []


def test_a_touched_file_is_hashed_once_and_then_believed(
    store: BoardStore, link: Watched, tmp_path: Path
) -> None:
    local, item = content(tmp_path)
    path = Path(publish(store, local, item))
    os.utime(path, (1, 1))
    assert store.missing([item]) == []
    assert any("sha256sum" in command for command in link.commands)
    link.commands.clear()
    assert store.missing([item]) == []
    assert not any("sha256sum" in command for command in link.commands)


def test_a_file_without_a_stamp_is_not_believed_unread(store: BoardStore, tmp_path: Path) -> None:
    local, item = content(tmp_path)
    path = Path(publish(store, local, item))
    path.with_name(f"{item.sha256}.stamp").unlink()
    path.write_bytes(b"CONTENT")
    assert store.missing([item]) == [item]
    assert not path.exists()


def test_verify_reads_what_the_stamp_vouches_for(
    store: BoardStore, link: Watched, tmp_path: Path
) -> None:
    local, item = content(tmp_path)
    path = Path(publish(store, local, item))
    path.write_bytes(b"CONTENT")
    quoted = remote_words(str(path))
    link.run(f"{STAT} {quoted} >{quoted}.stamp", timeout=30).check()
    assert store.missing([item]) == []
    assert store.verify([item]) == [item]
    assert store.missing([item]) == [item]


def test_a_local_file_that_is_not_what_it_was_is_refused(
    store: BoardStore, link: Watched, tmp_path: Path
) -> None:
    local, item = content(tmp_path)
    local.write_bytes(b"CONTENT")
    with pytest.raises(ConfigError, match="changed"):
        publish(store, local, item)
    assert link.pushed == []


def test_a_local_file_that_changes_meanwhile_is_not_published(
    store: BoardStore, link: Watched, tmp_path: Path, workdir: str
) -> None:
    local, item = content(tmp_path)
    link.after_push = lambda: os.utime(local, (1, 1))
    with pytest.raises(ConfigError, match="changed"):
        publish(store, local, item)
    assert list((Path(workdir) / "store").iterdir()) == []


def test_a_missing_local_file_is_the_users_error(store: BoardStore, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read"):
        publish(store, tmp_path / "gone", StoredObject("0" * 64, 1))


@pytest.mark.parametrize("error", [IntegrityError("torn"), BoardError("bad")])
def test_a_failed_transfer_leaves_nothing(
    store: BoardStore, link: Watched, tmp_path: Path, workdir: str, error: Exception
) -> None:
    local, item = content(tmp_path)
    link.fail = error
    with pytest.raises(type(error)):
        publish(store, local, item)
    assert list((Path(workdir) / "store").iterdir()) == []


def test_what_a_lost_link_left_is_removed_by_the_next_push(
    store: BoardStore, link: Watched, tmp_path: Path, workdir: str
) -> None:
    local, item = content(tmp_path)
    link.fail = DeviceLost("cable")
    with pytest.raises(DeviceLost):
        publish(store, local, item)
    assert list((Path(workdir) / "store").iterdir()) == []
    (left,) = (Path(workdir) / "incoming" / "0").iterdir()
    assert left.name.startswith(PREFIX)
    assert store.missing([item]) == [item]
    link.fail = None
    publish(store, local, item)
    assert not left.exists()


def test_a_small_file_survives_a_lost_link_and_keeps_the_rate(
    store: BoardStore, link: Watched, tmp_path: Path
) -> None:
    local, item = content(tmp_path, bytes(2_000_000))
    losses: list[InfraError] = []
    paced: list[int] = []
    link.fail = DeviceLost("cable")

    def lost(error: InfraError) -> None:
        losses.append(error)
        link.fail = None

    with ChunkedFile(local, item.sha256, item.size_bytes) as source:
        options = DeliveryOptions(on_loss=lost, pace=paced.append)
        there = store.receive(source, item, options=options)
    assert Path(there).read_bytes() == local.read_bytes()
    assert [error.message for error in losses] == ["cable"]
    assert sum(paced) == 2 * item.size_bytes


def test_a_delivery_that_gave_up_a_lost_link_is_not_begun_again(
    link: Watched, workdir: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has been patient already."""
    attempts: list[str] = []

    def give_up(_transport: Transport, agent: str, *_: object) -> bool:
        attempts.append(agent)
        raise DeviceLost("cable")

    monkeypatch.setattr("labctl.board.store.deliver", give_up)
    local, item = content(tmp_path)
    fence = native_fence(link, workdir)
    store = BoardStore(link, workdir, fence=fence)
    with (
        ChunkedFile(local, item.sha256, item.size_bytes) as source,
        pytest.raises(DeviceLost),
    ):
        store.receive(source, item, options=DeliveryOptions(retry_timeout=60, chunked_bytes=1))
    assert attempts == [fence.agent]


def test_transfers_that_live_or_are_another_hosts_are_left_alone(
    store: BoardStore, tmp_path: Path, workdir: str
) -> None:
    folder = Path(workdir) / "store"
    folder.mkdir(parents=True)
    foreign = folder / f"{PREFIX}{'f' * 32}"
    forgotten = folder / f"{PREFIX}{'e' * 32}"
    for path in (foreign, forgotten):
        path.write_bytes(b"part")
    os.utime(forgotten, (1, 1))
    with pushing() as push:
        alive = folder / f"{PREFIX}{push.token}"
        alive.write_bytes(b"part")
        publish(store, *content(tmp_path))
        assert alive.exists()
    assert foreign.exists()
    assert not forgotten.exists()


def test_what_people_call_it_is_kept_beside_it(store: BoardStore, tmp_path: Path) -> None:
    local, item = content(tmp_path)
    named = StoredObject(item.sha256, item.size_bytes, "it's a model.gguf")
    path = Path(publish(store, local, named))
    path.with_name("stray").write_text("")
    (found,) = store.contents()
    assert (found, found.name) == (item, "it's a model.gguf")
    store.remove(item.sha256)
    assert [left.name for left in path.parent.iterdir()] == ["stray"]


def test_a_hole_and_a_link_are_not_whole(store: BoardStore, tmp_path: Path) -> None:
    local, item = content(tmp_path)
    folder = Path(publish(store, local, item)).parent
    (folder / ("a" * 64)).touch()
    os.truncate(folder / ("a" * 64), 1 << 42)
    (folder / ("b" * 64)).symlink_to(local)
    (folder / ("c" * 64)).write_bytes(b"x" * (3 << 20))
    found = {one.sha256: (one.is_whole, one.size_bytes) for one in store.contents()}
    assert found.pop("b" * 64)[0] is False
    assert found == {
        item.sha256: (True, item.size_bytes),
        "a" * 64: (False, 1 << 42),
        "c" * 64: (True, 3 << 20),
    }


def test_looking_for_it_says_that_it_is_wanted(store: BoardStore, tmp_path: Path) -> None:
    local, item = content(tmp_path)
    stamp = Path(f"{publish(store, local, item)}.stamp")
    os.utime(stamp, (1, 1))
    assert store.missing([item]) == []
    assert stamp.stat().st_mtime > 1


def test_content_can_be_removed(store: BoardStore, tmp_path: Path) -> None:
    local, item = content(tmp_path)
    path = Path(publish(store, local, item))
    store.remove(item.sha256)
    store.remove(item.sha256)
    assert list(path.parent.iterdir()) == []


@pytest.mark.parametrize("name", ["", "../x", "A" * 64, "0" * 63, "0" * 64 + "\n"])
def test_only_hashes_are_names(store: BoardStore, name: str) -> None:
    with pytest.raises(ConfigError, match="SHA-256"):
        store.path(name)


def test_a_store_that_cannot_be_made_is_the_boards_error(link: Watched, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    path = f"{tmp_path}/file"
    with pytest.raises(BoardError, match="cannot make"):
        publish(BoardStore(link, path, fence=native_fence(link, path)), *content(tmp_path))


def test_a_name_of_several_lines_makes_no_objects(
    transport: Transport, workdir: str, tmp_path: Path
) -> None:
    local = tmp_path / "file"
    local.write_bytes(b"content")
    sha256 = hashlib.sha256(b"content").hexdigest()
    hostile = f"x\n7 {'b' * 64} y\x1b[31m"
    store = BoardStore(transport, workdir, fence=native_fence(transport, workdir))
    path = Path(publish(store, local, StoredObject(sha256, 7, hostile)))
    assert Path(f"{path}.name").read_text().count("\n") == 1
    (found,) = store.contents()
    assert (found.sha256, found.size_bytes) == (sha256, 7)
    assert found.name == f"x\\x0a7 {'b' * 64} y\\x1b[31m"
    # As somebody else may write it.
    Path(f"{path}.name").write_text(f"x\u20287 {'b' * 64}\n7 {'b' * 64} y\n")
    assert [item.sha256 for item in store.contents()] == [sha256]


@pytest.mark.parametrize("chunked", [False, True])
def test_nothing_is_written_or_removed_through_a_link(
    store: BoardStore, tmp_path: Path, workdir: str, chunked: bool
) -> None:
    """What a hostile job left in the store leads out of it."""
    local, item = content(tmp_path)
    named = StoredObject(item.sha256, item.size_bytes, "model")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("mine")
    folder = Path(workdir) / "store"
    folder.mkdir(parents=True)
    final = folder / item.sha256
    for suffix in (".stamp", ".name"):
        Path(f"{final}{suffix}").symlink_to(outside / "precious")
    if not chunked:
        final.symlink_to(outside)
    publish(store, local, named, chunked_bytes=1 if chunked else 1 << 30)
    assert final.read_bytes() == local.read_bytes()
    assert not final.is_symlink()
    assert [(path.name, path.read_text()) for path in outside.iterdir()] == [("precious", "mine")]
    final.unlink()
    final.symlink_to(outside)
    store.remove(item.sha256)
    assert (outside / "precious").read_text() == "mine"
    assert list(folder.iterdir()) == []
