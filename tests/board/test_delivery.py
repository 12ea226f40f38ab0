"""A large file over a link that keeps breaking: what counts as getting on."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from answering import AnsweringTransport

from labctl.board import delivery
from labctl.board.chunks import ChunkedFile
from labctl.board.delivery import DeliveryOptions, Place, deliver
from labctl.board.receiver import Receiver, Tally
from labctl.errors import DeviceLost

CHUNK = 10


class Forwarding(AnsweringTransport):
    """A board whose agent listens at once."""

    @contextmanager
    def forward(self, remote_port: int) -> Iterator[int]:
        yield remote_port


def bring(tmp_path: Path) -> bool:
    file = tmp_path / "file"
    file.write_bytes(bytes(CHUNK * 5))
    board = Forwarding('{"port": 1, "token": "t"}')
    place = Place("/data/partial", "/data/target", executable=False)
    with ChunkedFile(file, "0" * 64, CHUNK * 5, CHUNK) as source:
        return deliver(board, "agent", source, place, DeliveryOptions(patience=0.1))


def test_each_round_that_gets_further_is_followed_by_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when the last attempt of a round did not even hear what the board has."""
    attempts = 0

    def attempt(_receiver: Receiver, _source: ChunkedFile, tally: Tally, **_: object) -> bool:
        nonlocal attempts
        attempts += 1
        tally.present_bytes = 0
        if attempts % 2:  # of the two attempts of a round, the first
            tally.present_bytes = tally.most_bytes = attempts * CHUNK
        if attempts < 5:
            raise DeviceLost("again")
        return True

    monkeypatch.setattr(delivery, "send_chunks", attempt)
    assert bring(tmp_path)


def test_a_round_that_brings_nothing_is_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def attempt(_receiver: Receiver, _source: ChunkedFile, tally: Tally, **_: object) -> bool:
        tally.present_bytes = 0
        raise DeviceLost("again")

    monkeypatch.setattr(delivery, "send_chunks", attempt)
    with pytest.raises(DeviceLost):
        bring(tmp_path)
