"""The life of a link: who opens it, who ends it, and who may send."""

import threading
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

import pytest
from wrapped_transport import WrappedTransport

from labctl.errors import DeviceLost, LeaseLost, LinkError
from labctl.transport.base import TransferOptions, Transport
from labctl.transport.file_transfer import BoardHash, FileTransfer
from labctl.transport.linked import LinkedTransport, Stream
from labctl.transport.local import LocalTransport
from labctl.transport.testing import ScriptedTransport


@dataclass
class HeldLink:
    """A link that does nothing."""

    failure: LinkError | None = None
    is_closed: bool = False

    def close(self) -> None:
        self.is_closed = True


class HeldTransport(LinkedTransport[HeldLink]):
    """Only opens and closes links."""

    def shell(self, link: HeldLink, script: str, *, timeout: float) -> Generator[bytes, None, None]:
        raise NotImplementedError

    def file_transfer(self, options: TransferOptions) -> FileTransfer:
        raise NotImplementedError

    def connect(self, port: int, *, timeout: float) -> AbstractContextManager[Stream]:
        raise NotImplementedError


@dataclass
class SlowBoard:
    """A board whose links open when that is allowed; ``opened`` are all of them."""

    may_open: threading.Event = field(default_factory=threading.Event)
    is_opening: threading.Event = field(default_factory=threading.Event)
    opened: list[HeldLink] = field(default_factory=list)

    def open(self) -> HeldLink:
        self.is_opening.set()
        assert self.may_open.wait(30)
        self.opened.append(HeldLink())
        return self.opened[-1]


def test_close_does_not_wait_for_a_connection_that_is_being_opened() -> None:
    board = SlowBoard()
    transport = HeldTransport("b", board.open)
    with ThreadPoolExecutor(3) as pool:
        asked = [pool.submit(transport.connected) for _ in range(2)]
        assert board.is_opening.wait(30)
        pool.submit(transport.close).result(timeout=30)
        board.may_open.set()
        for one in asked:
            with pytest.raises(DeviceLost, match="b: the link was closed while it was opened"):
                one.result(timeout=30)
    assert [link.is_closed for link in board.opened] == [True]  # nobody has it
    after = transport.connected()  # who asks later gets a link
    assert not after.is_closed
    transport.close()
    assert after.is_closed


def test_a_link_that_is_over_is_opened_anew_and_a_whole_one_kept() -> None:
    board = SlowBoard()
    board.may_open.set()
    transport = HeldTransport("b", board.open)
    first = transport.connected()
    assert transport.connected() is first
    first.failure = DeviceLost("cable")
    second = transport.connected()
    assert (first.is_closed, second.is_closed) == (True, False)


def may_not() -> None:
    raise LeaseLost("it is over")


@pytest.mark.parametrize("wrap", [lambda link: link, WrappedTransport])
@pytest.mark.parametrize("make", [LocalTransport, lambda: ScriptedTransport("")])
def test_nothing_is_sent_that_is_not_permitted(
    make: type[LocalTransport], wrap: type[WrappedTransport]
) -> None:
    transport: Transport = wrap(make())
    for use in (
        lambda: transport.run(":", timeout=30),
        lambda: transport.stream(":", timeout=30, write=lambda _raw: None),
        lambda: transport.connect(1, timeout=30).__enter__(),
    ):
        with transport.only_while(may_not), pytest.raises(LeaseLost):
            use()
    assert transport.run(":", timeout=30).exit_status == 0
    with transport.only_while(lambda: None):
        with transport.only_while(may_not), pytest.raises(LeaseLost):
            transport.run(":", timeout=30)
        assert transport.run(":", timeout=30).exit_status == 0


def test_the_hash_of_the_board_is_found_once_or_given() -> None:
    board = ScriptedTransport("sha256sum\n")
    assert board.files_hash(30).command == ()  # it has none, as it is made
    board.use_hash(None)
    assert board.files_hash(30).command == ("sha256sum",)
    assert board.files_hash(30).command == ("sha256sum",)
    assert len(board.commands) == 1
    wrapped = WrappedTransport(board)
    wrapped.use_hash(BoardHash("sha256", ("agent", "hash")))
    assert board.files_hash(30).command == ("agent", "hash")
