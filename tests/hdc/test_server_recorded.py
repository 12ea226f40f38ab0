"""The client of an hdc server against the recorded official one, frame by frame."""

import json
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hdc_server import read
from raw_hdc import FIXTURES, RawPeer, scripted_board

from labctl.errors import BoardError, BoardNoSpace, LinkRefused
from labctl.hdc.host.files import receive_file, send_file
from labctl.hdc.host.link import shell
from labctl.hdc.messages import PAYLOAD_AREA_BYTES, TransferConfig
from labctl.hdc.server_client.server import HdcServer, Target
from labctl.hdc.server_client.session import ServerSession
from labctl.hdc.wire import Command

#: Of large frames only these bytes are on record: length, task, payload area.
HEAD_BYTES = 4 + 2 + PAYLOAD_AREA_BYTES
CHECK = int(Command.FILE_CHECK).to_bytes(2, "little")


@dataclass
class Frame:
    sender: str
    raw: bytes  # with its length in front; large ones are filled up with zeros
    is_end: bool = False


def conversation(name: str, number: int) -> Iterator[Frame]:
    for line in (FIXTURES / f"channel-3.2.0c-{name}.jsonl").read_text().splitlines():
        entry = json.loads(line)
        if entry["conn"] == number:
            raw = bytes.fromhex(entry.get("head", entry.get("hex", "")))
            yield Frame(entry["from"], raw.ljust(entry.get("bytes", 0), b"\0"), "eof" in entry)


def plain(frame: bytes) -> object:
    """A client's frame without what differs by right: where its own file is, and quotes."""
    if frame.startswith(b"file "):
        words = shlex.split(frame.rstrip(b"\0").decode())
        assert frame.endswith(b"\0")
        assert words[3] == "-cwd"
        words[4] = "HERE"
        words[5 if words[1] == "send" else 6] = "MINE"
        return words
    if frame.startswith(CHECK):
        config = TransferConfig.decode(frame[2:])
        assert replace(config).encode() == frame[2:]  # every field is there, in order
        return replace(config, client_cwd="HERE")
    return frame


def replay(name: str, number: int) -> Callable[[RawPeer], None]:
    """The server of a recorded connection; it insists on the recorded client's frames."""

    def script(peer: RawPeer) -> None:
        for frame in conversation(name, number):
            if frame.is_end:
                return
            if frame.sender == "server":
                peer.socket.sendall(frame.raw)
                continue
            said, theirs = read(peer.socket), frame.raw[4:]
            if len(theirs) > 4096:
                assert len(said) == len(theirs)
                said, theirs = said[: HEAD_BYTES - 4], theirs[: HEAD_BYTES - 4]
            assert plain(said) == plain(theirs)

    return script


KEY = "127.0.0.1:15600"


def board(port: int, key: str = KEY) -> ServerSession:
    return ServerSession(HdcServer("127.0.0.1", port), key)


def test_check_server() -> None:
    with scripted_board(replay("basic", 1)) as port:
        assert HdcServer("127.0.0.1", port).version(timeout=30) == "Ver: 3.2.0c"


@pytest.mark.parametrize(
    ("name", "number", "targets"),
    [
        ("basic", 2, []),
        ("basic", 4, [Target(KEY, "TCP", "Connected", "vm")]),
        ("raw", 24, [Target(KEY, "TCP", "Offline", "vm")]),
    ],
)
def test_list_targets(name: str, number: int, targets: list[Target]) -> None:
    with scripted_board(replay(name, number)) as port:
        assert HdcServer("127.0.0.1", port).list_targets(timeout=30) == targets


@pytest.mark.parametrize(
    ("name", "number", "command", "output"),
    [
        ("basic", 5, '"echo hi; exit 3"', b"hi\n"),
        ("basic", 6, '"echo out; echo err 1>&2; false"', b"out\nerr\n"),
        ("basic", 7, "\"printf 'a\\000b\\n'\"", b"a\0b\n"),
        ("basic", 29, '"sleep 0.4; echo late"', b"late\n"),
        ("raw", 6, '( echo hi; exit 3 ); echo "N0nce:$?"', b"hi\nN0nce:3\n"),
        ("raw", 7, "printf 'a\\000b'", b"a\0b"),
    ],
)
def test_shell(name: str, number: int, command: str, output: bytes) -> None:
    with scripted_board(replay(name, number)) as port:
        assert b"".join(shell(board(port), command, timeout=30)) == output


@pytest.mark.parametrize(
    ("number", "size", "remote"),
    [(11, 6, "a.txt"), (12, 0, "empty"), (13, 430_000, "mid.bin")],
)
def test_send(number: int, size: int, remote: str, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"hello\n" if size == 6 else bytes(size))
    seen = []
    with (
        scripted_board(replay("basic", number)) as port,
        (tmp_path / "x").open("rb", buffering=0) as file,
    ):
        sent = send_file(
            board(port),
            file,
            f"/data/local/tmp/{remote}",
            timeout=30,
            on_chunk=lambda c: seen.append(len(c)),
        )
    assert sent == sum(seen) == size


@pytest.mark.parametrize(("number", "size", "remote"), [(19, 6, "a.txt"), (20, 430_000, "mid.bin")])
def test_receive(number: int, size: int, remote: str) -> None:
    content = bytearray()
    with scripted_board(replay("basic", number)) as port:
        receive_file(board(port), f"/data/local/tmp/{remote}", timeout=30, write=content.extend)
    assert content == (b"hello\n" if size == 6 else bytes(size))


@pytest.mark.parametrize(
    ("name", "number", "remote", "error", "words"),
    [
        ("basic", 17, "/data/local/tmp/no/such/a.txt", BoardError, "no such file or directory"),
        ("extra", 5, "/dev/full", BoardNoSpace, "storage is full"),
    ],
)
def test_a_send_that_the_board_refuses(
    *, name: str, number: int, remote: str, error: type[Exception], words: str, tmp_path: Path
) -> None:
    def script(peer: RawPeer) -> None:
        for frame in conversation(name, number):
            if frame.sender == "server" and not frame.is_end:
                peer.socket.sendall(frame.raw)
            elif frame.sender == "client":
                read(peer.socket)

    (tmp_path / "x").write_bytes(b"hello\n")
    key = KEY if name == "basic" else "127.0.0.1:16741"
    with (
        scripted_board(script) as port,
        (tmp_path / "x").open("rb", buffering=0) as file,
        pytest.raises(error, match=words),
    ):
        send_file(board(port, key), file, remote, timeout=30, on_chunk=lambda _: None)


def test_a_receive_that_the_board_refuses() -> None:
    with (
        scripted_board(replay("basic", 23)) as port,
        pytest.raises(BoardError, match="no such file or directory"),
    ):
        receive_file(board(port), "/data/local/tmp/missing", timeout=30, write=lambda _: None)


@pytest.mark.parametrize(("name", "number"), [("basic", 27), ("raw", 9)])
def test_a_key_that_the_server_does_not_know(name: str, number: int) -> None:
    """It says so without waiting for a command, which may get an answer of its own."""

    def script(peer: RawPeer) -> None:
        for frame in conversation(name, number):
            if frame.sender == "server" and not frame.is_end:
                peer.socket.sendall(frame.raw)
            elif frame.sender == "client":
                assert read(peer.socket) == frame.raw[4:]

    with scripted_board(script) as port:
        session = board(port, "bogus")
        with pytest.raises(LinkRefused, match="Not match target founded"):
            b"".join(shell(session, "echo hi", timeout=30))
        assert isinstance(session.failure, LinkRefused)
