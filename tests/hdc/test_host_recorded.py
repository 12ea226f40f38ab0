"""Every recorded session again, with our host in place of the official one.

Each conversation of a recording is asked for anew; a board plays the recorded daemon's packets and
sees that the host's are those recorded, byte for byte. What differs is named here: channel numbers
and contexts (random), who runs the test (owner of files), the official client's working directory
and local paths, further CHANNEL_CLOSE that the official server repeats, and how LZ4 packed a block.
"""

import dataclasses
import queue
import shlex
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest
from raw_hdc import RECORDINGS, RawPeer, Recorded, recorded, scripted_board

from labctl.errors import BoardError, IntegrityError, LabctlError
from labctl.hdc.host import files
from labctl.hdc.host.files import Sending, receive_file, send_file
from labctl.hdc.host.link import hilog, interactive_shell, reboot, remount, shell
from labctl.hdc.host.nodes import Listener
from labctl.hdc.host.session import Session
from labctl.hdc.lz4_chunks import decompress_chunk
from labctl.hdc.messages import (
    EchoLevel,
    TransferConfig,
    TransferPayload,
)
from labctl.hdc.wire import Command

CLOSE = Command.CHANNEL_CLOSE
FORWARDED = range(Command.FORWARD_CHECK, Command.FORWARD_FREE_CONTEXT + 1)


class Conversation(list[Recorded]):
    """The packets of one channel, in order."""

    @classmethod
    def all_of(cls, name: str) -> "list[Conversation]":
        found: dict[tuple[int, int], Conversation] = {}
        for packet in recorded(name):
            if packet.channel:
                found.setdefault((packet.connection, packet.channel), cls()).append(packet)
        return list(found.values())

    def said(self, sender: str, command: int) -> list[bytes]:
        return [p.data for p in self if (p.sender, p.command) == (sender, command)]

    def configs(self) -> list[TransferConfig]:
        return [TransferConfig.decode(p.data) for p in self if p.command == Command.FILE_CHECK]

    def contents(self) -> dict[str, bytes]:
        """The files that were transferred, by name."""
        found: dict[str, bytes] = {}
        name = ""
        for packet in self:
            if packet.command == Command.FILE_CHECK:
                name = TransferConfig.decode(packet.data).optional_name
                found[name] = b""
            elif packet.command == Command.FILE_DATA:
                payload, body = TransferPayload.decode_packet(memoryview(packet.data))
                found[name] += unpacked(payload, bytes(body))
        return found

    def words(self, level: EchoLevel) -> list[bytes]:
        said = self.said("board", Command.ECHO)
        return [data[1:] for data in said if data[0] == level]


def unpacked(payload: TransferPayload, body: bytes) -> bytes:
    return decompress_chunk(body, payload.uncompress_size) if payload.compress_type else body


def comparable(packet: Recorded, *, exact: bool) -> tuple[int, object]:
    """What two packets of a host must have in common."""
    command, data = packet.command, packet.data
    if command == Command.FILE_INIT:
        words = shlex.split(data.decode())
        if words[0] == "-cwd":
            words = words[2:]
        return command, words[:-1]
    if command == Command.FORWARD_INIT:
        return command, data.split()[0]  # the other is a port of the test's
    if command == Command.FILE_CHECK and not exact:
        return command, dataclasses.replace(TransferConfig.decode(data), client_cwd="").encode()
    if command == Command.FILE_DATA:
        payload, body = TransferPayload.decode_packet(memoryview(data))
        if payload.compress_type:
            kind = dataclasses.replace(payload, compress_size=0)
            return command, (kind, unpacked(payload, bytes(body)))
    return command, data


class Player:
    """Plays the recorded board of one conversation, and compares the host."""

    def __init__(self, conversation: Conversation, features: str, *, exact: bool):
        self._conversation = conversation
        self._heard: queue.Queue[int] = queue.Queue()
        self._failure: AssertionError | None = None
        self._features = features
        self._exact = exact
        self._stream = b""
        self._contexts: dict[bytes, bytes] = {}  # recorded to ours

    def __call__(self, peer: RawPeer) -> None:
        try:
            self._play(peer)
        except AssertionError as error:
            self._failure = error
            raise
        finally:
            self._heard.put(len(self._conversation))

    def _play(self, peer: RawPeer) -> None:
        peer.accept_hands(**({"supportfeatures": self._features} if self._features else {}))
        channel = 0
        has_closed = False
        for place, packet in enumerate(self._conversation):
            if packet.sender == "board":
                peer.send(channel, packet.command, self._ours(packet))
            elif packet.command == Command.FORWARD_DATA:
                self._take_stream(peer, packet)
            elif packet.command != CLOSE or not has_closed:
                has_closed = has_closed or packet.command == CLOSE
                number, command, data = peer.receive()
                channel = channel or number
                assert number == channel
                self._compare(packet, packet._replace(command=command, data=data))
            self._heard.put(place)

    def _take_stream(self, peer: RawPeer, packet: Recorded) -> None:
        """Bytes of a connection, which TCP may have cut elsewhere."""
        context = self._ours(packet)[:4]
        while len(self._stream) < len(packet.data) - 4:
            _, command, data = peer.receive()
            assert (command, data[:4]) == (Command.FORWARD_DATA, context)
            assert len(data) <= 4 + 65_535
            self._stream += data[4:]
        size = len(packet.data) - 4
        assert self._stream[:size] == packet.data[4:]
        self._stream = self._stream[size:]

    def wait_for(self, place: int) -> None:
        """Until the board is past a packet of the conversation."""
        while self._heard.get(timeout=30) < place:
            pass
        self.check()

    def check(self) -> None:
        """Raise what the board found wrong."""
        if self._failure is not None:
            raise self._failure

    def wait_for_end(self) -> None:
        self.wait_for(len(self._conversation) - 1)

    def _compare(self, theirs: Recorded, ours: Recorded) -> None:
        if theirs.command == ours.command == CLOSE and refusal_of(self._conversation):
            return  # after a refusal, the board's own end may come too late for us to answer it
        if theirs.command in FORWARDED:
            self._contexts.setdefault(theirs.data[:4], ours.data[:4])
            theirs = theirs._replace(data=self._ours(theirs))
        assert comparable(ours, exact=self._exact) == comparable(theirs, exact=self._exact)

    def _ours(self, packet: Recorded) -> bytes:
        if packet.command not in FORWARDED:
            return packet.data
        context = packet.data[:4]
        return self._contexts.get(context, context) + packet.data[4:]


@contextmanager
def session_with(player: Player) -> Iterator[Session]:
    with (
        scripted_board(player) as port,
        Session.connect("127.0.0.1", port, timeout=30) as session,
    ):
        try:
            yield session
        except LabctlError:
            player.check()
            raise
        # The board must have seen all that was due before it is left alone.
        player.wait_for_end()


def words_of(conversation: Conversation) -> list[str]:
    """What a host asked of files to receive."""
    asked = conversation.said("host", Command.FILE_INIT)
    return shlex.split(asked[0].decode()) if asked else []


def is_compressed(conversation: Conversation) -> bool:
    packed = any(config.compress_type for config in conversation.configs())
    return packed or "-z" in words_of(conversation)


def refusal_of(conversation: Conversation) -> str | None:
    """Why the board did not do it; None when it did, whatever it said meanwhile."""
    words = conversation.words(EchoLevel.FAIL)
    ended_well = conversation.words(EchoLevel.OK) or b"\0" in conversation.said(
        "board", Command.FILE_FINISH
    )
    return words[0].decode() if words and not ended_well else None


@contextmanager
def ending_as_recorded(conversation: Conversation) -> Iterator[None]:
    refusal = refusal_of(conversation)
    if refusal is None:
        yield
    else:
        with pytest.raises(BoardError) as refused:
            yield
        assert refusal in refused.value.message


def ask_shell(session: Session, conversation: Conversation, _: Path) -> None:
    command = conversation[0].data.decode()
    output = b"".join(shell(session, command, timeout=30))
    assert output == b"".join(conversation.said("board", Command.ECHO_RAW))


def ask_hilog(session: Session, conversation: Conversation, _: Path) -> None:
    output = b"".join(hilog(session, timeout=30))
    assert output == b"".join(conversation.said("board", Command.ECHO_RAW))


def ask_reboot(session: Session, conversation: Conversation, _: Path) -> None:
    reboot(session, conversation[0].data.decode(), timeout=30)  # type: ignore[arg-type]


def ask_remount(session: Session, conversation: Conversation, _: Path) -> None:
    with ending_as_recorded(conversation):
        remount(session, timeout=30)


def ask_interactive(session: Session, conversation: Conversation, _: Path) -> None:
    with interactive_shell(session, timeout=30) as typing:
        for packet in conversation[1:]:
            if packet.command == Command.SHELL_DATA:
                typing.send(packet.data)
            elif packet.command == Command.ECHO_RAW:
                assert typing.receive(30) == packet.data
        assert typing.receive(30) is None


def ask_other(session: Session, conversation: Conversation, _: Path) -> None:
    """Tasks that have no function of their own."""
    with session.open_task(
        Command(conversation[0].command), conversation[0].data, text="", timeout=5
    ) as channel:
        for packet in conversation[1:]:
            if packet.sender == "board":
                assert channel.receive() == (packet.command, packet.data)


def ask_send(
    session: Session, conversation: Conversation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    contents, compress = conversation.contents(), is_compressed(conversation)
    configs = conversation.configs()
    for config in configs:
        path = tmp_path / config.optional_name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(contents[config.optional_name] or bytes(config.file_size))
    # The official host compresses whatever it is told to.
    monkeypatch.setattr(files, "_is_worthwhile", lambda _source, _size: True)
    remote = configs[0].path
    counted: list[int] = []
    rejected = b"\x07" in conversation.said("board", Command.FILE_FINISH)  # 3.1.0e and LZ4
    if "/" in configs[0].optional_name:
        with session.open_send(remote, timeout=30) as channel:
            sending = Sending(channel, remote, compress=compress)
            for config in configs:
                with (tmp_path / config.optional_name).open("rb", buffering=0) as file:
                    sending.send(
                        file, config.optional_name, lambda chunk: counted.append(len(chunk))
                    )
            sending.finish()
        assert sending.sent_bytes == sum(counted) == sum(map(len, contents.values()))
        return
    (name,) = contents
    with (
        pytest.raises(IntegrityError) if rejected else ending_as_recorded(conversation),
        (tmp_path / name).open("rb") as file,
    ):
        send_file(
            session,
            file,
            remote,
            timeout=30,
            on_chunk=lambda chunk: counted.append(len(chunk)),
            name=name,
            compress=compress,
        )
        assert sum(counted) == len(contents[name])


def ask_receive(session: Session, conversation: Conversation, _: Path) -> None:
    remote = words_of(conversation)[-2]
    got = bytearray()
    with ending_as_recorded(conversation):
        size = receive_file(
            session, remote, timeout=30, write=got.extend, compress=is_compressed(conversation)
        )
        assert size == len(got)
        assert [bytes(got)] == list(conversation.contents().values())


def ask_forward(session: Session, conversation: Conversation, player: Player) -> None:
    with ending_as_recorded(conversation), ExitStack() as held:
        if conversation[0].command == Command.FORWARD_INIT:
            service = held.enter_context(closing(Listener("tcp:0")))
            listen = conversation[0].data.decode().split(" ")[0]
            held.enter_context(session.reverse(listen, service.node, timeout=30))
            carry(conversation, player, service.accept, close=service.stop)
        else:
            node = conversation[1].data[12:-1].decode()
            rule = held.enter_context(session.forward("tcp:0", node, timeout=30))
            address = ("127.0.0.1", rule.port)
            carry(conversation, player, lambda: socket.create_connection(address, timeout=30))


def carry(
    conversation: Conversation,
    player: Player,
    connect: Callable[[], socket.socket | None],
    close: Callable[[], None] = lambda: None,
) -> None:
    """Each recorded connection again; whoever ended it then ends it now."""
    opened = {p.data[:4] for p in conversation if p.command == Command.FORWARD_ACTIVE_MASTER}
    refused_here = {
        p.data[:4]
        for p in conversation
        if (p.sender, p.command) == ("host", Command.FORWARD_FREE_CONTEXT)
    } - opened
    sock: socket.socket | None = None
    for place, packet in enumerate(conversation):
        context = packet.data[:4]
        if packet.command == Command.FORWARD_ACTIVE_SLAVE and context not in refused_here:
            try:
                sock = connect()
            except ConnectionResetError:  # the board refused it before connect(2) returned
                after = [p for p in conversation[place + 1 :] if p.data[:4] == context]
                assert (after[0].sender, after[0].command) == (
                    "board",
                    Command.FORWARD_FREE_CONTEXT,
                )
                refused_here.add(context)
                continue
            assert sock is not None
            opened.discard(context)
            if not opened:
                close()  # further ones were refused
        elif packet.command == Command.FORWARD_DATA and sock is not None:
            if packet.sender == "host":
                sock.sendall(packet.data[4:])
                player.wait_for(place)
            else:
                assert take(sock, len(packet.data) - 4) == packet.data[4:]
        elif packet.command == Command.FORWARD_FREE_CONTEXT:
            if context not in refused_here:
                assert sock is not None
                with sock:
                    if packet.sender == "board":
                        assert ended(sock)
            player.wait_for(place)


def ended(sock: socket.socket) -> bool:
    """Whether the other end is closed, in good order or, if it never was open, with a reset."""
    try:
        return sock.recv(1) == b""
    except ConnectionResetError:
        return True


def take(sock: socket.socket, size: int) -> bytes:
    got = b""
    while len(got) < size:
        piece = sock.recv(size - len(got))
        assert piece
        got += piece
    return got


Ask = Callable[[Session, Conversation, Path], None]
PLAIN: dict[int, Ask] = {
    Command.UNITY_EXECUTE: ask_shell,
    Command.UNITY_HILOG: ask_hilog,
    Command.UNITY_REBOOT: ask_reboot,
    Command.UNITY_REMOUNT: ask_remount,
    Command.SHELL_INIT: ask_interactive,
    Command.FILE_INIT: ask_receive,
}


def is_asked(conversation: Conversation) -> bool:
    """Whether our host has a reason to open a conversation: its arguments were good."""
    if any(config.bundle_name for config in conversation.configs()):
        return False  # files of applications
    if keeps_status(conversation) or receives_in_vain(conversation):
        return False
    commands = [packet.command for packet in conversation if packet.sender == "host"]
    return any(command not in (CLOSE, Command.WAKEUP_SLAVETASK) for command in commands)


def keeps_status(conversation: Conversation) -> bool:
    """Whether modes or times of files go along: ours sets them by commands of the board."""
    return (
        any(packet.command == Command.FILE_MODE for packet in conversation)
        or any(config.hold_timestamp for config in conversation.configs())
        or not {"-m", "-a"}.isdisjoint(words_of(conversation))
    )


def receives_in_vain(conversation: Conversation) -> bool:
    """Whether a directory is received, which ours asks for file by file, or nothing written."""
    names = [config.optional_name for config in conversation.configs()]
    has_begun = bool(conversation.said("host", Command.FILE_BEGIN))
    received = bool(conversation.said("host", Command.FILE_INIT))
    return received and bool(names) and ("/" in names[0] or not has_begun)


CASES = [
    pytest.param(name, conversation, id=f"{name.removeprefix('session-')[:-6]}-{place}")
    for name in RECORDINGS
    for place, conversation in enumerate(Conversation.all_of(name))
    if is_asked(conversation)
]


@pytest.mark.parametrize(("name", "conversation"), CASES)
def test_the_board_sees_what_it_saw(
    name: str, conversation: Conversation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "3.1.0e" in name:  # the official host of that age compresses all the same
        monkeypatch.setattr(Session, "can_compress", True)
    features = "" if "3.1.0e" in name else "heartbeat,encrypt_tcp"
    player = Player(conversation, features, exact="-raw" in name)
    with session_with(player) as session:
        first, second = conversation[0].command, conversation[1].command
        if first in PLAIN:
            PLAIN[first](session, conversation, tmp_path)
        elif second == Command.FORWARD_CHECK or first == Command.FORWARD_INIT:
            ask_forward(session, conversation, player)
        elif first == Command.WAKEUP_SLAVETASK:
            ask_send(session, conversation, tmp_path, monkeypatch)
        else:
            ask_other(session, conversation, tmp_path)


def test_nearly_all_of_each_recording_is_replayed() -> None:
    replayed = {case.values[0] for case in CASES}
    assert replayed == set(RECORDINGS)
    assert len(CASES) == 89  # all but those that keep modes or times, or receive a directory
