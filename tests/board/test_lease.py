import json
from pathlib import Path

import pytest

from labctl.board import BoardLease
from labctl.errors import BoardError, BoardPermission, LeaseLost
from labctl.transport import Transport


def test_a_board_without_a_lease_is_taken(transport: Transport, workdir: str) -> None:
    lease = BoardLease(transport, workdir)
    assert lease.read() is None
    taken = lease.acquire("my lab's")
    assert (taken.lab, taken.epoch) == ("my lab's", 1)
    lease.check(taken)
    assert lease.read() == taken
    assert [path.name for path in Path(workdir).iterdir()] == ["lease"]
    assert json.loads(Path(lease.path).read_text())["epoch"] == 1


def test_each_taking_raises_the_epoch_and_ends_the_one_before(
    transport: Transport, workdir: str
) -> None:
    lease = BoardLease(transport, workdir)
    first = lease.acquire("one")
    second = lease.acquire("two")
    assert second.epoch == first.epoch + 1
    with pytest.raises(LeaseLost, match="two"):
        lease.check(first)
    lease.check(second)


def test_the_epoch_is_above_what_is_known_elsewhere(transport: Transport, workdir: str) -> None:
    lease = BoardLease(transport, workdir)
    assert lease.acquire("lab", minimum_epoch=41).epoch == 42
    assert lease.acquire("lab", minimum_epoch=7).epoch == 43


def test_two_that_got_the_same_epoch_are_told_apart(transport: Transport, workdir: str) -> None:
    lease = BoardLease(transport, workdir)
    mine = lease.acquire("lab")
    fields = json.loads(Path(lease.path).read_text())
    Path(lease.path).write_text(json.dumps({**fields, "token": "other"}))
    with pytest.raises(LeaseLost):
        lease.check(mine)


def test_a_lease_that_is_gone_is_lost(transport: Transport, workdir: str) -> None:
    lease = BoardLease(transport, workdir)
    mine = lease.acquire("lab")
    Path(lease.path).unlink()
    with pytest.raises(LeaseLost, match="gone"):
        lease.check(mine)


@pytest.mark.parametrize("text", ["nonsense", "[]", '{"epoch": 1}', '{"lab":1,"epoch":"x"}'])
def test_what_is_no_lease_is_not_believed(transport: Transport, workdir: str, text: str) -> None:
    lease = BoardLease(transport, workdir)
    Path(workdir).mkdir()
    Path(lease.path).write_text(text + "\n")
    with pytest.raises(BoardError, match="not one that labctl wrote"):
        lease.acquire("lab")


def test_a_workdir_that_cannot_be_made_is_an_error(transport: Transport, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BoardError, match="cannot"):
        BoardLease(transport, f"{tmp_path}/file/below").acquire("lab")
    with pytest.raises((BoardPermission, BoardError)):
        BoardLease(transport, "/proc/labctl").acquire("lab")
