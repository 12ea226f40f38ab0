"""JSON of commands that need a board to print any: its keys and their order."""

from pathlib import Path

import pytest
from measured_runs import run

from labctl.board.prune import Verified
from labctl.bundle.reproduce import reproduction_document
from labctl.bundle.verdicts import Judgement, Number
from labctl.errors import BoardBusy
from labctl.runs.deploy import board_document
from labctl.runs.record.directory import RunDirectory
from labctl.runs.runner import Outcome
from labctl.transport.hdc import forward_document
from labctl.virtual.board import Served
from labctl.virtual.fault_injector import FaultInjector


def test_a_store_that_was_read_is_told_after_its_boards_name() -> None:
    found = Verified(3, ["a"], {"b": "input/output error"}).document()
    assert list(board_document("rk1", found).items()) == [
        ("board", "rk1"),
        ("checked", 3),
        ("damaged", ["a"]),
        ("unread", {"b": "input/output error"}),
    ]


def test_an_error_stands_in_place_of_what_would_be_found() -> None:
    found = board_document("rk1", BoardBusy("rk1 is in use"))
    error = {"kind": "BoardBusy", "blame": "infra", "message": "rk1 is in use"}
    assert found == {"board": "rk1", "error": error}
    assert list(BoardBusy("rk1 is in use").document()) == list(error)


@pytest.mark.parametrize(("listen", "port"), [("tcp:8080", 8080), ("localabstract:a:1", None)])
def test_a_forwarding_has_its_port_where_it_has_one(listen: str, port: int | None) -> None:
    assert list(forward_document(listen, "tcp:80", reverse=False).items()) == [
        ("listen", listen),
        ("connect", "tcp:80"),
        ("reverse", False),
        ("port", port),
    ]


def test_a_reproduction_names_both_runs_and_every_judgement() -> None:
    here = Outcome(RunDirectory(Path("runs/here")), run("here"), (), ())
    number = Number("q2", "per token", Judgement.REPRODUCED, "same", 2.0, 1.9)
    found = reproduction_document(
        Path("x.labctl.zip"), RunDirectory(Path("runs/there")), here, [number]
    )
    judged = {"variant": "q2", "what": "per token", "judgement": "reproduced", "reason": "same"}
    assert list(found.items()) == [
        ("bundle", "x.labctl.zip"),
        ("there", "there"),
        ("here", "here"),
        ("estimate", "geometric mean"),
        ("numbers", [{**judged, "there": 2.0, "here": 1.9}]),
    ]


def test_a_virtual_board_ends_with_the_words_of_its_emulator(tmp_path: Path) -> None:
    board = Served("b", "127.0.0.1", 7, tmp_path, tmp_path, "boot", None, FaultInjector(None))
    found = board.document(("qemu", "-L"))
    assert list(found) == [
        *("name", "address", "directory", "workdir", "boot_id", "note", "emulator"),
    ]
    assert (found["address"], found["emulator"]) == ("127.0.0.1:7", ["qemu", "-L"])
