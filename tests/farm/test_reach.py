"""Boards without a host, in a lab whose other boards have one: who reaches them serves them."""

import threading
from pathlib import Path

import pytest
from workers_made import Recorded, Started, made_worker, start

from labctl.cli.worker import served_boards
from labctl.config.lab import Board, Lab, LabFile
from labctl.errors import BoardBusy, ConfigError, DeviceLost, LinkError
from labctl.farm.reach import Reach, host_reach
from labctl.retry import wait_until
from labctl.runs.board.lab_lease import BoardUse
from labctl.runs.board.session import hold_board
from labctl.state.job import NewJob
from labctl.state.state import lab_state
from labctl.transport.base import Transport
from labctl.transport.local import LocalConfig


def board(host: str | None = None) -> Board:
    return Board(target="rk3568", transport=LocalConfig(), workdir="/tmp/w", host=host)


@pytest.fixture
def mixed(tmp_path: Path) -> LabFile:
    boards = {"one": board("lab1"), "two": board("lab2"), "any": board()}
    (tmp_path / "devices.yaml").write_text("lab: mixed\n")
    return LabFile(tmp_path, Lab(lab="mixed", boards=boards))


def test_a_worker_serves_its_hosts_boards_and_those_of_any_host(mixed: LabFile) -> None:
    assert served_boards(mixed, "lab1", ()) == ["one", "any"]
    assert served_boards(mixed, "lab3", ()) == ["any"]
    assert [name for name in mixed.lab.boards if mixed.lab.is_anywhere(name)] == ["any"]
    alone = LabFile(mixed.root, Lab(boards={"one": board(), "two": board()}))
    assert served_boards(alone, "lab1", ()) == ["one", "two"]
    assert not alone.lab.is_anywhere("one")
    with pytest.raises(ConfigError, match="attached to host lab3"):
        served_boards(LabFile(mixed.root, Lab(boards={"one": board("lab1")})), "lab3", ())


def test_a_board_is_asked_in_another_thread_and_again_after_a_while() -> None:
    asked, go, is_there = list[str](), threading.Event(), [True]

    def contact(name: str) -> None:
        asked.append(name)
        go.wait(20)
        if not is_there[0]:
            raise DeviceLost("cable")

    reach = Reach({"any"}, contact, lately_seconds=0.2, again_seconds=600.0)
    assert reach.reaches("one") is True  # of a host: not asked
    assert reach.reaches("any") is None
    assert reach.reaches("any") is None
    go.set()
    assert wait_until(lambda: reach.reaches("any") is True, timeout=20, interval=0.01)
    is_there[0] = False
    assert wait_until(lambda: reach.reaches("any") is False, timeout=20, interval=0.01)
    count = len(asked)
    assert reach.reaches("any") is False
    assert len(asked) == count
    assert set(asked) == {"any"}


def test_who_does_not_reach_a_board_leaves_its_jobs_to_others(
    mixed: LabFile, started: Started
) -> None:
    state = lab_state(mixed)
    state.jobs.submit(NewJob("q8", {}, ("any",), id="a1"))
    contacted = threading.Event()

    def unreached(_name: str) -> None:
        contacted.set()
        raise DeviceLost("no such board here")

    here, there = Recorded(), Recorded()
    away = made_worker(mixed, here, "one", "any")
    away.reaches = Reach({"any"}, unreached).reaches
    start(started, away)
    assert contacted.wait(30)
    away.state.jobs.free_lost()
    job = state.jobs.find("a1")
    assert (job.state, job.attempts, job.failures) == ("waiting", 0, 0)
    near = made_worker(mixed, there, "two", "any", host="lab2")
    near.reaches = Reach({"any"}, lambda _name: None).reaches
    start(started, near)
    assert wait_until(lambda: state.jobs.find("a1").state == "done", timeout=60, interval=0.05)
    assert (here.ran, there.ran) == ([], [("a1", "any")])


def test_a_failed_contact_from_here_is_no_mark_against_a_board_of_any_host(
    mixed: LabFile, private_state: Path
) -> None:
    class Gone:
        label = "gone"

        def __getattr__(self, _name: str) -> object:
            raise DeviceLost("cable")

        def __enter__(self) -> "Gone":
            return self

        def __exit__(self, *_: object) -> None:
            """Nothing was opened."""

    def connect(_board: Board) -> Transport:
        return Gone()  # type: ignore[return-value]

    for name, is_of_host, contact in (("any", True, None), ("one", False, "failing")):
        link = connect(mixed.board(name))
        with (
            pytest.raises(LinkError, match="cable") as raised,
            hold_board(mixed.board(name), link, mixed, BoardUse("run q8")),
        ):
            pass
        assert raised.value.is_of_host is is_of_host
        assert lab_state(mixed).health.get(name).contact == contact
    assert host_reach(mixed, ["one", "any"], connect).reaches("one") is True


def test_a_board_that_somebody_has_is_no_board_that_is_not_reached() -> None:
    asked = list[str]()

    def contact(name: str) -> None:
        asked.append(name)
        raise BoardBusy("run q8 has it")

    reach = Reach({"any"}, contact, again_seconds=600.0)
    assert reach.reaches("any") is None
    assert wait_until(lambda: not reach.asking, timeout=20, interval=0.01)
    assert reach.reaches("any") is None
    assert asked == ["any"]


def test_a_board_that_answers_wrongly_is_reached() -> None:
    """The attempt says what is wrong; left to others, its job would wait for ever."""

    def contact(_name: str) -> None:
        raise ConfigError("the board is a rk3588")

    reach = Reach({"any"}, contact)
    assert reach.reaches("any") is None
    assert wait_until(lambda: reach.reaches("any") is True, timeout=20, interval=0.01)


def test_a_board_in_use_in_the_lab_is_not_contacted(mixed: LabFile, private_state: Path) -> None:
    lab_state(mixed).leases.acquire("any", purpose="run q8", holder="ann@pc", token="0" * 80)
    contacted = list[str]()

    def connect(one: Board) -> Transport:
        class Link:
            label = "link"

            def __enter__(self) -> "Link":
                return self

            def __exit__(self, *_: object) -> None:
                """Nothing was opened."""

            def __getattr__(self, name: str) -> object:
                contacted.append(name)
                raise DeviceLost("cable")

        return Link()  # type: ignore[return-value]

    reach = host_reach(mixed, ["one", "any"], connect)
    assert reach.reaches("any") is None
    assert wait_until(lambda: not reach.asking, timeout=20, interval=0.01)
    assert reach.reaches("any") is None
    assert contacted == []
