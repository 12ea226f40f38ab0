"""What several threads want of a database is done in one transaction."""

import threading
from collections.abc import Sequence

import pytest

from labctl.database.base import DatabaseAway, _queue, together
from labctl.errors import HostError
from labctl.retry import wait_until


class Disk:
    """Does things slowly: the first one waits until all others are there."""

    def __init__(self) -> None:
        self.wanted = 0
        self.groups: list[list[str]] = []
        self.errors: dict[str, Exception] = {}

    def ask(self, item: str) -> None:
        try:
            together(id(self), item, self.do)
        except HostError as error:
            self.errors[item] = error

    def do(self, items: Sequence[str]) -> None:
        if not self.groups:
            asked = _queue(id(self)).asked
            assert wait_until(
                lambda: len(asked) == self.wanted - len(items), timeout=20, interval=0.01
            )
        self.groups.append(sorted(items))
        if "bad" in items:
            raise HostError("a bad one")
        if len(items) > 1 and "away" in items:
            raise DatabaseAway("locked")

    def run(self, *items: str) -> list[list[str]]:
        """Do all; the groups in which it was done."""
        self.wanted = len(items)
        threads = [threading.Thread(target=self.ask, args=(item,)) for item in items]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        assert {item for group in self.groups for item in group} == set(items)
        return self.groups


def test_who_waits_is_done_together() -> None:
    disk = Disk()
    groups = disk.run("a", "b", "c", "d", "e")
    assert sorted(item for group in groups for item in group) == ["a", "b", "c", "d", "e"]
    assert len(groups) <= 2
    assert disk.errors == {}


def test_one_that_fails_fails_alone() -> None:
    disk = Disk()
    groups = disk.run("a", "bad", "c", "d")
    assert groups.count(["bad"]) == 1
    assert list(disk.errors) == ["bad"]


def test_a_database_that_is_away_is_so_for_all_at_once() -> None:
    disk = Disk()
    groups = disk.run("a", "away", "c", "d")
    failed = next(group for group in groups if "away" in group)
    assert sorted(disk.errors) == (failed if len(failed) > 1 else [])
    assert len({id(error) for error in disk.errors.values()}) == len(disk.errors)
    assert len(groups) <= 2


def test_an_error_of_one_thread_alone_is_raised_as_it_is() -> None:
    def do(_items: Sequence[int]) -> None:
        raise ValueError("as it is")

    with pytest.raises(ValueError, match="as it is"):
        together("alone", 1, do)
