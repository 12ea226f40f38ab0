"""Proving to a locked board who we are, against recordings and boards that are played by hand."""

import threading
import time
from pathlib import Path

import pytest
from raw_hdc import RawPeer, Recorded, recorded, scripted_board

from labctl.errors import (
    CommandTimeout,
    DeviceLost,
    LabctlError,
    NotAuthorised,
    ProtocolError,
)
from labctl.hdc.host import handshake
from labctl.hdc.host.handshake import Consent
from labctl.hdc.host.link import shell
from labctl.hdc.host.session import Session
from labctl.hdc.keys import HostKey, Scheme, verify
from labctl.hdc.messages import AuthType, SessionHandShake, encode_tlv
from labctl.hdc.wire import Command

TOKEN = b"a82096a0e619e1115c08"
RECORDED_VERSION = "Ver: 3.2.0c7fdbc1aa8c5fefaa"


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> HostKey:
    return HostKey.create(tmp_path_factory.mktemp("keys") / "hdckey")


@pytest.fixture(autouse=True)
def no_thread_is_left():
    before = set(threading.enumerate())
    yield
    assert {t for t in threading.enumerate() if t not in before and t.is_alive()} == set()


def packets(connection: int) -> list[Recorded]:
    return [p for p in recorded("session-3.2.0c-auth.jsonl") if p.connection == connection]


def connect(port: int, key: HostKey, *, timeout: float = 30, consent: Consent | None = None):
    return Session.connect(
        "127.0.0.1",
        port,
        timeout=timeout,
        find_key=lambda: key,
        consent=consent or Consent(),
    )


def ask_for_key(peer: RawPeer, wish: bytes = encode_tlv({"authtype": "1"})) -> SessionHandShake:
    """Play a board up to the host's public key."""
    peer.receive()
    ask = SessionHandShake(auth_type=AuthType.PUBLICKEY, buf=wish)
    peer.send(0, Command.HANDSHAKE, ask.encode())
    return SessionHandShake.decode(peer.receive()[2])


def ask_for_signature(peer: RawPeer, token: bytes = TOKEN) -> SessionHandShake:
    ask = SessionHandShake(auth_type=AuthType.SIGNATURE, buf=token)
    peer.send(0, Command.HANDSHAKE, ask.encode())
    return SessionHandShake.decode(peer.receive()[2])


def answer(peer: RawPeer, words: str = "") -> None:
    entries = {
        "emgmsg": words,
        "devname": "safe",
        "daemonauthstatus": "DAEMON_UNAUTH" if words else "SUCCESS",
        "supportfeatures": "heartbeat",
    }
    last = SessionHandShake(
        auth_type=AuthType.OK, buf=encode_tlv(entries), version=handshake.HOST_VERSION
    )
    peer.send(0, Command.HANDSHAKE, last.encode())


def test_the_recorded_board_gets_the_packets_it_got(
    key: HostKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second connection of the recording: asked for a key, a signature, then in."""
    monkeypatch.setattr(handshake, "HOST_VERSION", RECORDED_VERSION)
    monkeypatch.setattr(handshake.socket, "gethostname", lambda: "vm")
    pending = packets(2)
    theirs = [p for p in pending if p.sender == "host" and p.command != Command.CHANNEL_CLOSE]
    ours: list[bytes] = []

    def board(peer: RawPeer) -> None:
        channel = 0
        for packet in pending:
            if packet.sender == "board":
                peer.send(channel if packet.channel else 0, packet.command, packet.data)
            elif packet.command != Command.CHANNEL_CLOSE:
                while True:  # closes are as many as the reference's only where they must be
                    number, command, data = peer.receive()
                    if command != Command.CHANNEL_CLOSE:
                        break
                channel = channel or number
                ours.append(data)
        while True:  # until the host leaves: bytes that nobody read would reset the connection
            peer.receive()

    with scripted_board(board) as port, connect(port, key) as session:
        assert session.handshake.name == "vm"
        assert session.handshake.is_3_2
        assert b"".join(shell(session, "echo hi", timeout=30)) == b"hi\n"

    hello, shown, signed, command = ours
    _, pem, _ = (SessionHandShake.decode(packet.data).buf for packet in theirs[:3])
    assert SessionHandShake.decode(hello).buf == SessionHandShake.decode(theirs[0].data).buf
    public = b"vm\x0c" + key.public_pem.encode()
    assert shown == theirs[1].data.replace(pem, public)
    signature = SessionHandShake.decode(signed).buf
    assert signed == theirs[2].data.replace(SessionHandShake.decode(theirs[2].data).buf, signature)
    assert verify(key.public_pem, TOKEN, signature, Scheme.PSS)
    assert command == theirs[3].data


def test_the_recorded_refusal_is_told_with_what_to_do(key: HostKey) -> None:
    """The first connection: the dialog is refused by the time the host looks."""
    answers = [p.raw for p in packets(1) if p.sender == "board"]
    closes: list[tuple[int, int, bytes]] = []

    def board(peer: RawPeer) -> None:
        peer.receive()
        peer.socket.sendall(answers[0])
        peer.receive()
        peer.socket.sendall(b"".join(answers[1:]))
        while True:
            closes.append(peer.receive())

    waited: list[str] = []
    consent = Consent(timeout=30, on_waiting=waited.append)
    with scripted_board(board) as port, pytest.raises(NotAuthorised) as refused:
        connect(port, key, consent=consent)
    assert "somebody denied" in refused.value.message
    assert key.fingerprint in refused.value.message
    assert "press Allow" in (refused.value.hint or "")
    assert "E000003" in (refused.value.details or "")
    assert key.fingerprint in waited[0]
    # The official host answers the close and the words before the refusal, each with a close on
    # channel 0. labctl does not: to hdcd such a close ends every task of the session.
    assert closes == []


@pytest.mark.parametrize(
    ("wish", "scheme"),
    [
        (encode_tlv({"authtype": "1"}), Scheme.PSS),
        (encode_tlv({"authtype": "0"}), Scheme.PKCS1),
        (b"", Scheme.PKCS1),
        (b"no tlv at all", Scheme.PKCS1),
    ],
)
def test_the_board_chooses_the_scheme(key: HostKey, wish: bytes, scheme: Scheme) -> None:
    def board(peer: RawPeer) -> None:
        shown = ask_for_key(peer, wish)
        name, _, pem = shown.buf.partition(b"\x0c")
        assert name
        assert verify(pem.decode(), TOKEN, ask_for_signature(peer).buf, scheme)
        answer(peer)
        peer.receive()

    with scripted_board(board) as port, connect(port, key) as session:
        assert session.handshake.name == "safe"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("[E000002]:The device unauthorized.", "asks on its screen"),
        ("[E000003]:The device unauthorized.", "somebody denied"),
        ("[E000010]:Auth failed, cannt login the device.", "signature"),
        ("go away", "does not accept"),
    ],
)
def test_refusals_say_whose_key_and_what_to_do(key: HostKey, words: str, says: str) -> None:
    def board(peer: RawPeer) -> None:
        ask_for_key(peer)
        answer(peer, words)
        peer.receive()

    with scripted_board(board) as port, pytest.raises(NotAuthorised, match=says) as refused:
        connect(port, key)
    assert key.fingerprint in refused.value.message
    assert refused.value.hint
    assert refused.value.details == words


def test_someone_allows_this_host_while_we_wait(key: HostKey) -> None:
    pressed = threading.Event()
    told: list[str] = []

    def board(peer: RawPeer) -> None:
        ask_for_key(peer)
        answer(peer, "[E000002]:The device unauthorized.")
        peer.send(0, Command.CHANNEL_CLOSE, b"\x01")
        assert pressed.wait(30)
        assert verify(key.public_pem, TOKEN, ask_for_signature(peer).buf, Scheme.PSS)
        answer(peer)
        peer.receive()

    def wait(what: str) -> None:
        told.append(what)
        threading.Timer(1.5, pressed.set).start()

    with (
        scripted_board(board) as port,
        # The user has time, however short the patience with the board itself is.
        connect(port, key, timeout=1, consent=Consent(60, wait)) as session,
    ):
        assert session.handshake.name == "safe"
    assert len(told) == 1
    assert key.fingerprint in told[0]
    assert "press Allow" in told[0]


@pytest.mark.parametrize("goes", [False, True])
def test_nobody_allows_this_host(key: HostKey, goes: bool) -> None:
    def board(peer: RawPeer) -> None:
        ask_for_key(peer)
        answer(peer, "[E000002]:The device unauthorized.")
        if not goes:
            peer.receive()

    began = time.monotonic()
    with (
        scripted_board(board) as port,
        pytest.raises(NotAuthorised, match="asks on its screen"),
    ):
        connect(port, key, consent=Consent(0.3))
    assert time.monotonic() - began < 20


@pytest.mark.parametrize(
    "token", [b"", b"\x30\x31\x30\x0d\x06\x09" + bytes(45), b"a" * 300, "tök".encode()]
)
def test_nothing_but_tokens_is_signed(key: HostKey, token: bytes) -> None:
    def board(peer: RawPeer) -> None:
        ask_for_key(peer)
        ask_for_signature(peer, token)

    with scripted_board(board) as port, pytest.raises(ProtocolError, match="not a token"):
        connect(port, key)


def test_a_board_that_asks_for_ever_is_timed_out(key: HostKey) -> None:
    def board(peer: RawPeer) -> None:
        ask_for_key(peer)
        while True:
            ask_for_signature(peer)

    with scripted_board(board) as port, pytest.raises(CommandTimeout):
        connect(port, key, timeout=0.5)


def test_an_open_board_needs_no_key() -> None:
    def no_key() -> HostKey:
        raise LookupError("the key was looked for")

    with (
        scripted_board(lambda peer: peer.accept_hands() and peer.ended()) as port,
        Session.connect("127.0.0.1", port, timeout=30, find_key=no_key) as session,
    ):
        assert session.handshake.name == "scripted"


def test_a_slow_key_is_not_the_boards_fault(key: HostKey) -> None:
    def slowly() -> HostKey:
        time.sleep(1.5)  # longer than the board has
        return key

    def board(peer: RawPeer) -> None:
        ask_for_key(peer)
        ask_for_signature(peer)
        answer(peer)
        peer.receive()

    with (
        scripted_board(board) as port,
        Session.connect("127.0.0.1", port, timeout=1, find_key=slowly) as session,
    ):
        assert session.handshake.name == "safe"


def test_the_users_key_is_shown_unless_another_is_given(
    key: HostKey, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    theirs = HostKey.create(tmp_path / ".harmony" / "hdckey")
    shown: list[bytes] = []

    def board(peer: RawPeer) -> None:
        shown.append(ask_for_key(peer).buf)

    with scripted_board(board) as port, pytest.raises(DeviceLost):
        Session.connect("127.0.0.1", port, timeout=30)
    assert shown[0].partition(b"\x0c")[2].decode() == theirs.public_pem


@pytest.mark.parametrize("auth_type", [AuthType.TOKEN, AuthType.FAIL, AuthType.SSL_TLS_PSK, 99])
def test_other_kinds_of_authentication_are_unknown(key: HostKey, auth_type: int) -> None:
    def board(peer: RawPeer) -> None:
        peer.receive()
        peer.send(0, Command.HANDSHAKE, SessionHandShake(auth_type=auth_type).encode())
        peer.receive()

    wanted: type[LabctlError] = ProtocolError
    with scripted_board(board) as port, pytest.raises(wanted, match="unknown kind"):
        connect(port, key)
