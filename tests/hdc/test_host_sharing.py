"""Many conversations over one session, with users who keep up and users who do not."""

import threading
import time
from pathlib import Path

import pytest
from daemons import daemon
from raw_hdc import RawPeer, scripted_board

from labctl.errors import HostError
from labctl.hdc.host.channel import LIMITS, Limits
from labctl.hdc.host.files import receive_file, send_file
from labctl.hdc.host.link import interactive_shell, shell
from labctl.hdc.host.session import Session
from labctl.hdc.wire import Command
from labctl.retry import wait_until

IMPATIENT = Limits(queue_bytes=1 << 20, stall_seconds=0.5, heartbeat_seconds=0.1)


def connect(address: str | int, limits: Limits = LIMITS) -> Session:
    host, _, port = str(address).rpartition(":")
    return Session.connect(host or "127.0.0.1", int(port), timeout=30, limits=limits)


@pytest.fixture(autouse=True)
def no_thread_is_left():
    before = set(threading.enumerate())
    yield
    assert {t for t in threading.enumerate() if t not in before and t.is_alive()} == set()


def is_full(session: Session) -> bool:
    """True once one of its channels has no room left."""
    channels = list(session._channels.values())
    return any(channel._waiting_bytes >= IMPATIENT.queue_bytes for channel in channels)


def test_output_that_nobody_takes_does_not_stop_the_others_for_long(tmp_path: Path) -> None:
    with daemon(tmp_path) as address, connect(address, IMPATIENT) as session:
        lazy = shell(session, "head -c 30000000 /dev/zero", timeout=30)
        taken = len(next(lazy))
        assert wait_until(lambda: is_full(session), timeout=60, interval=0.01)  # nobody reads
        began = time.monotonic()
        assert b"".join(shell(session, "echo hi", timeout=30)) == b"hi\n"
        assert time.monotonic() - began < 20
        rest: list[int] = []
        with pytest.raises(HostError, match="was not read for"):
            rest.extend(map(len, lazy))  # what had come is still there
        taken += sum(rest)
        # the queue's megabyte, less what it counts for each packet beside the data
        assert (1 << 20) - (1 << 16) <= taken < 30_000_000
        assert b"".join(shell(session, "echo again", timeout=30)) == b"again\n"


def test_output_that_waits_alone_waits_and_the_board_hears_from_us() -> None:
    beats: list[bytes] = []

    def board(peer: RawPeer) -> None:
        peer.accept_hands(supportfeatures="heartbeat")
        channel = 0
        while not channel:
            channel = peer.receive()[0]
        writer = threading.Thread(
            target=lambda: [peer.send(channel, Command.ECHO_RAW, bytes(60_000)) for _ in range(200)]
        )
        writer.start()
        while len(beats) < 2:  # while it cannot write
            number, _, data = peer.receive()
            if not number:
                beats.append(data)
        writer.join()
        peer.send(channel, Command.CHANNEL_CLOSE, b"\1")
        while True:  # to its end: what is not read when the board leaves resets the link
            peer.receive()

    with scripted_board(board) as port, connect(port, IMPATIENT) as session:
        output = shell(session, "x", timeout=30)
        taken = len(next(output))
        time.sleep(1.2)  # nobody reads: longer than the stall
        assert wait_until(lambda: len(beats) >= 2, timeout=30, interval=0.01)
        assert taken + sum(map(len, output)) == 200 * 60_000


def test_small_questions_are_answered_while_files_travel(tmp_path: Path) -> None:
    content = bytes(40_000_000)
    (tmp_path / "big").write_bytes(content)
    (tmp_path / "board").mkdir()
    answers: list[float] = []
    with daemon(tmp_path / "board") as address, connect(address) as session:
        done = threading.Event()

        def travel() -> None:
            try:
                for _ in range(3):
                    with (tmp_path / "big").open("rb", buffering=0) as file:
                        send_file(session, file, "big", timeout=30, on_chunk=len)
                    got = bytearray()
                    receive_file(session, "big", timeout=30, write=got.extend)
                    assert got == content
            finally:
                done.set()

        traveller = threading.Thread(target=travel)
        traveller.start()
        while not done.is_set():
            began = time.monotonic()
            assert b"".join(shell(session, "echo hi", timeout=30)) == b"hi\n"
            answers.append(time.monotonic() - began)
        traveller.join()
    assert len(answers) > 3
    assert max(answers) < 20


def test_a_shell_is_typed_into(tmp_path: Path) -> None:
    with daemon(tmp_path) as address, connect(address) as session:
        with interactive_shell(session, timeout=30) as typing:
            typing.send(b"echo interactive-$((6*7))\n")
            said = b""
            while b"interactive-42" not in said:
                piece = typing.receive(30)
                assert piece
                said += piece
            assert typing.receive(0.05) in (b"", b"# ")
            typing.send(b"exit\n")
            while typing.receive(30) is not None:
                pass
        # One that is left in the middle ends on the board too.
        with interactive_shell(session, timeout=30) as typing:
            typing.send(b"sleep 1000\n")
        assert b"".join(shell(session, "echo hi", timeout=30)) == b"hi\n"
