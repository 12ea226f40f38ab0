"""A large file over a link that keeps breaking: what counts as getting on."""

from pathlib import Path
from typing import Any

import pytest

from labctl.board.upload import resumable as delivery
from labctl.board.upload.client import ChunkedFile, Counters
from labctl.board.upload.resumable import DeliveryOptions, Destination, deliver
from labctl.errors import BoardError, BoardNoSpace, DeviceLost, InfraError
from labctl.transport.linked import Stream
from labctl.transport.testing import Answer, ScriptedTransport

CHUNK = 10


class Unused:
    """A connection that nobody uses."""

    def settimeout(self, seconds: float) -> None:
        raise AssertionError

    def sendall(self, data: object) -> None:
        raise AssertionError

    def recv(self, count: int) -> bytes:
        raise AssertionError


LISTENS = '{"port": 1, "token": "t"}'
BUSY = (76, '{"schema":1,"error":"busy","message":"another transfer fills /data/partial"}')


def bring(
    tmp_path: Path,
    *answers: Answer,
    retry_timeout: float = 0.1,
    **more: Any,
) -> bool:
    file = tmp_path / "file"
    file.write_bytes(bytes(CHUNK * 5))
    board = ScriptedTransport(*(answers or (LISTENS,)), dial=lambda _port: Unused())
    destination = Destination("/data/partial", "/data/target", executable=False)
    options = DeliveryOptions(retry_timeout=retry_timeout, **more)
    with ChunkedFile(file, "0" * 64, CHUNK * 5, CHUNK) as source:
        return deliver(board, "agent", source, destination, options)


def test_each_round_that_gets_further_is_followed_by_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when the last attempt of a round did not even hear what the board has."""
    attempts = 0

    def attempt(_: Stream, __: str, ___: ChunkedFile, counters: Counters, **____: object) -> bool:
        nonlocal attempts
        attempts += 1
        counters.present_bytes = 0
        if attempts % 2:  # of the two attempts of a round, the first
            counters.present_bytes = counters.most_bytes = attempts * CHUNK
        if attempts < 5:
            raise DeviceLost("again")
        return True

    monkeypatch.setattr(delivery, "send_chunks", attempt)
    assert bring(tmp_path)


def test_a_round_that_brings_nothing_is_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def attempt(_: Stream, __: str, ___: ChunkedFile, counters: Counters, **____: object) -> bool:
        counters.present_bytes = 0
        raise DeviceLost("again")

    monkeypatch.setattr(delivery, "send_chunks", attempt)
    with pytest.raises(DeviceLost):
        bring(tmp_path)


def test_what_another_brings_is_waited_for_also_when_the_link_breaks(tmp_path: Path) -> None:
    told: list[InfraError] = []
    published = (77, "{}")
    lost = DeviceLost("cable")
    answers: list[Answer] = [BUSY, "75", "", lost, BUSY, lost, published]
    assert not bring(tmp_path, *answers, retry_timeout=60, on_loss=told.append)
    assert [str(error.message) for error in told] == [
        "scripted: another transfer of file is under way",
        "cable",
        "cable",
    ]


def test_another_that_stands_still_is_not_waited_for_without_end(tmp_path: Path) -> None:
    # One answer for all: the words of who is busy are also what its journal is said to hold.
    with pytest.raises(BoardError, match="makes no progress"):
        bring(tmp_path, BUSY, idle_timeout=0, watch_seconds=0.2)


class Clock:
    """Goes on when it is told to."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


def test_a_conversation_of_ones_own_is_no_standstill_of_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The board reads for long what is there, then the link breaks: it may still have ours."""
    clock = Clock()

    def attempt(_: Stream, __: str, ___: ChunkedFile, counters: Counters, **____: object) -> bool:
        clock.now += 1000
        raise DeviceLost("cable")

    monkeypatch.setattr(delivery, "time", clock)
    monkeypatch.setattr(delivery, "send_chunks", attempt)
    answers: list[Answer] = [BUSY, "75", "", LISTENS, BUSY, "75", "", (77, "{}")]
    assert not bring(tmp_path, *answers, retry_timeout=60)


def test_who_reads_again_what_is_there_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(delivery, "time", clock)

    def an_hour(*_: object, **__: object) -> bool:
        clock.now += 3600
        return False

    monkeypatch.setattr(delivery, "wait_until", an_hour)
    answers: list[Answer] = [BUSY, "75", BUSY, "75", (77, "{}")]
    assert not bring(tmp_path, *answers, retry_timeout=60, storage_bytes_per_second=0.01)


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        (
            '{"schema":1,"error":"no-space","message":"No space left","missing_bytes":7000000}',
            BoardNoSpace,
            "scripted: the board cannot take file, 50 B: free space missing: 7.00 MB",
        ),
        (
            '{"schema":1,"error":"no-space","message":"Quota exceeded","missing_bytes":null}',
            BoardNoSpace,
            "scripted: the board cannot take file, 50 B: Quota exceeded",
        ),
        (
            '{"schema":1,"error":"directory","message":"cannot write /x: File too large"}',
            BoardError,
            "scripted: the board cannot take file: cannot write /x: File too large",
        ),
        ("sh: agent: not found", BoardError, "cannot take file: sh: agent: not found"),
    ],
)
def test_a_board_that_cannot_take_a_file_says_why(
    tmp_path: Path, answer: str, kind: type[BoardError], words: str
) -> None:
    status = 74 if kind is BoardNoSpace else 73
    with pytest.raises(kind, match=words):
        bring(tmp_path, (status, answer))
