"""Every recorded conversation of the official client, held again by ours: the bytes agree.

A script plays the recorded server and insists on the recorded client's frames; our channel sends
what the record's tasks mean, and has to make of each of the server's frames what it means.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from hdc_server import read
from raw_hdc import FIXTURES, RawPeer, scripted_board

from labctl.errors import LinkError, LinkRefused
from labctl.hdc.server_client.channel import ChannelKind, ServerChannel
from labctl.hdc.server_client.server import HdcServer, Rule
from labctl.hdc.wire import Command

RECORDINGS = sorted(FIXTURES.glob("channel-*.jsonl"))
#: Of large frames only these bytes are on record, behind the length.
HEAD_BYTES = 66
TASKS = {13, 3000, 3001, 3002, 3003, 3004, 3006, 3007}


@dataclass(frozen=True)
class Frame:
    sender: str
    raw: bytes  # with its length in front; large ones are filled up with zeros
    is_end: bool

    @property
    def body(self) -> bytes:
        return self.raw[4:]


def conversations(name: str) -> dict[int, list[Frame]]:
    found: dict[int, list[Frame]] = {}
    for line in (FIXTURES / name).read_text().splitlines():
        entry = json.loads(line)
        raw = bytes.fromhex(entry.get("head", entry.get("hex", "")))
        frame = Frame(entry["from"], raw.ljust(entry.get("bytes", 0), b"\0"), "eof" in entry)
        found.setdefault(entry["conn"], []).append(frame)
    return found


def every() -> Iterator[tuple[str, int]]:
    for path in RECORDINGS:
        for number in conversations(path.name):
            yield path.name, number


def test_nothing_is_left_out() -> None:
    assert len(list(every())) == 31 + 25 + 17 + 24


def play(frames: list[Frame]) -> Callable[[RawPeer], None]:
    def script(peer: RawPeer) -> None:
        for frame in frames:
            if frame.is_end:
                return
            if frame.sender == "server":
                peer.socket.sendall(frame.raw)
                continue
            said = read(peer.socket)
            assert len(said) == len(frame.body)
            assert said[:HEAD_BYTES] == frame.body[:HEAD_BYTES]

    return script


def meaning(frame: Frame, kind: ChannelKind) -> tuple[int, bytes]:
    if frame.is_end:
        return Command.CHANNEL_CLOSE, b""
    number = int.from_bytes(frame.body[:2], "little")
    if kind is ChannelKind.FILES and number in TASKS:
        return number, frame.body[2:]
    if kind is ChannelKind.OUTPUT and not frame.body.startswith(b"[Fail]"):
        return Command.ECHO_RAW, frame.body
    for level, prefix in ((0, b"[Fail]"), (1, b"[Info]"), (2, b"")):
        if frame.body.startswith(prefix):
            words = frame.body.removeprefix(prefix).rstrip(b"\r\n")
            return Command.ECHO, bytes([level]) + words
    raise AssertionError(frame)


def kind_of(command: bytes) -> ChannelKind:
    if command.startswith((b"file send remote", b"file recv remote")):
        return ChannelKind.FILES
    return ChannelKind.OUTPUT if command.startswith((b"shell", b"hilog")) else ChannelKind.WORDS


@pytest.mark.parametrize(("name", "number"), list(every()))
def test_the_recorded_conversation(name: str, number: int) -> None:
    frames = conversations(name)[number]
    _, hello, *rest = frames
    key = hello.body[12:44].rstrip(b"\0").decode()
    at = next((i for i, frame in enumerate(rest) if frame.sender == "client"), len(rest))
    command = rest.pop(at).body if at < len(rest) else b"shell echo hi\0"  # refused unheard
    kind = kind_of(command)
    failures: list[LinkError] = []
    with scripted_board(play(frames)) as port:
        wire, large = HdcServer("127.0.0.1", port).open(
            key, command.removesuffix(b"\0"), label="the board", timeout=5
        )
        assert large
        with ServerChannel(
            wire, timeout=30, kind=kind, large_buffers=large, on_refusal=failures.append
        ) as channel:
            for frame in rest:
                if frame.sender == "client":
                    body = frame.body[2:] if kind is ChannelKind.FILES else frame.body
                    task = int.from_bytes(frame.body[:2], "little")
                    channel.send(
                        Command(task) if kind is ChannelKind.FILES else Command(2001), body
                    )
                elif b"Not match target" in frame.body:
                    with pytest.raises(LinkRefused):
                        channel.receive()
                    break
                else:
                    assert channel.receive() == meaning(frame, kind)
    assert len(failures) == (key == "bogus")


def recorded(name: str, number: int) -> Callable[[RawPeer], None]:
    return play(conversations(f"channel-3.2.0c-{name}.jsonl")[number])


KEY = "127.0.0.1:15600"


def test_rules() -> None:
    with scripted_board(recorded("more", 5)) as port:
        assert HdcServer("127.0.0.1", port).rules(timeout=30) == [
            Rule(KEY, "tcp:18161", "tcp:18160", is_reverse=True),
            Rule(KEY, "tcp:18150", "tcp:18151", is_reverse=False),
            Rule(KEY, "tcp:18152", "tcp:18999", is_reverse=False),
        ]


def test_a_rule_is_removed() -> None:
    rule = Rule(KEY, "tcp:18150", "tcp:18151", is_reverse=False)
    with scripted_board(recorded("more", 6)) as port:
        said = HdcServer("127.0.0.1", port).remove_rule(rule, timeout=30)
    assert said == "Remove forward ruler success, ruler:tcp:18150 tcp:18151"


def test_a_board_is_connected_and_removed() -> None:
    with scripted_board(recorded("basic", 3)) as port:
        assert HdcServer("127.0.0.1", port).connect_target(KEY, timeout=30) == "Connect OK"
    with scripted_board(recorded("raw", 23)) as port:
        HdcServer("127.0.0.1", port).remove_target(KEY, timeout=30)
