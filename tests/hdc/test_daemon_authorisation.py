"""Locked boards: who is let in, who waits, who is turned away without having run a thing."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from daemons import board, daemon, daemons
from raw_hdc import RawPeer, raw_host

from labctl.hdc.daemon.authorisation import Authorisation
from labctl.hdc.daemon.handshake import Handshake
from labctl.hdc.keys import HostKey, Scheme
from labctl.hdc.messages import AuthType, SessionHandShake, decode_tlv, encode_tlv
from labctl.hdc.wire import Command
from labctl.retry import wait_until


@pytest.fixture(scope="module")
def key() -> HostKey:
    return HostKey(rsa.generate_private_key(65537, 3072))


@pytest.fixture(scope="module")
def stranger() -> HostKey:
    return HostKey(rsa.generate_private_key(65537, 3072))


class Host:
    """A host that goes through the dialog step by step."""

    def __init__(self, peer: RawPeer):
        self.peer = peer

    def say(self, kind: AuthType, buf: bytes) -> None:
        self.peer.send(0, Command.HANDSHAKE, SessionHandShake(auth_type=kind, buf=buf).encode())

    def hear(self) -> SessionHandShake:
        channel, command, data = self.peer.receive()
        assert (channel, command) == (0, Command.HANDSHAKE)
        return SessionHandShake.decode(data)

    def show(self, key: HostKey) -> str:
        """Greet and show a key; the scheme that the board asks for."""
        self.say(AuthType.NONE, encode_tlv({"authtype": "1"}))
        asked = self.hear()
        assert asked.auth_type == AuthType.PUBLICKEY
        self.say(AuthType.PUBLICKEY, f"host\x0c{key.public_pem}".encode())
        return decode_tlv(asked.buf)["authtype"]

    def sign(self, key: HostKey, scheme: Scheme = Scheme.PSS) -> None:
        token = self.hear()
        assert token.auth_type == AuthType.SIGNATURE
        assert len(token.buf) == 20
        self.say(AuthType.SIGNATURE, key.sign_token(token.buf, scheme))

    def hears_refusal(self, code: str) -> None:
        entries = decode_tlv(self.hear().buf)
        assert entries["emgmsg"].startswith(f"[{code}]:")
        assert entries["daemonauthstatus"] == "DAEMON_UNAUTH"
        assert self.peer.receive() == (0, Command.CHANNEL_CLOSE, b"\x01")
        assert self.peer.receive() == (0, Command.ECHO, b"\0" + entries["emgmsg"].encode())

    def hears_welcome(self) -> None:
        assert decode_tlv(self.hear().buf)["daemonauthstatus"] == "SUCCESS"
        assert self.peer.receive() == (0, Command.CHANNEL_CLOSE, b"\x01")

    def runs(self, command: str) -> list[tuple[int, bytes]]:
        self.peer.send(5, Command.UNITY_EXECUTE, command.encode())
        return self.peer.until_close(5)


@contextmanager
def host(directory: Path, authorisation: Authorisation) -> Iterator[Host]:
    with daemon(directory, authorisation=authorisation) as address, raw_host(address) as peer:
        yield Host(peer)


@pytest.mark.parametrize(("scheme", "asked"), [(Scheme.PSS, "1"), (Scheme.PKCS1, "0")])
def test_a_known_host_is_let_in(tmp_path: Path, key: HostKey, scheme: Scheme, asked: str) -> None:
    with host(tmp_path, Authorisation(known=[key.public_pem], scheme=scheme)) as here:
        assert here.show(key) == asked
        here.sign(key, scheme)
        here.hears_welcome()
        assert here.runs("echo in")[0] == (Command.ECHO_RAW, b"in\n")


def test_showing_another_ones_key_is_not_enough(
    tmp_path: Path, key: HostKey, stranger: HostKey
) -> None:
    with host(tmp_path, Authorisation(known=[key.public_pem])) as here:
        here.show(key)
        here.sign(stranger)
        here.hears_refusal("E000010")
        (echo, text), _ = here.runs("touch ran")
        assert (echo, text[:9]) == (Command.ECHO, b"\0[E000010")
    assert not (tmp_path / "ran").exists()


def test_strangers_are_denied(tmp_path: Path, key: HostKey, stranger: HostKey) -> None:
    with host(tmp_path, Authorisation(known=[key.public_pem])) as here:
        here.show(stranger)
        here.hears_refusal("E000002")
        here.hears_refusal("E000003")
        for command in (Command.FILE_INIT, Command.SHELL_INIT, Command.FORWARD_INIT):
            here.peer.send(6, command, b"/etc/passwd x")
            (echo, text), _ = here.peer.until_close(6)
            assert (echo, text[:9]) == (Command.ECHO, b"\0[E000003")
        here.show(key)  # the same connection may try again
        here.sign(key)
        here.hears_welcome()


def test_a_board_may_refuse_everybody(tmp_path: Path, key: HostKey) -> None:
    with host(tmp_path, Authorisation("refuse", [key.public_pem])) as here:
        here.show(key)
        here.hears_refusal("E000002")
        here.hears_refusal("E000003")


def test_a_board_may_accept_every_key(tmp_path: Path, stranger: HostKey) -> None:
    with host(tmp_path, Authorisation("accept-all")) as here:
        here.show(stranger)
        here.sign(stranger)
        here.hears_welcome()


@pytest.mark.parametrize("allow", [True, False])
def test_somebody_decides_about_a_host_that_waits(
    tmp_path: Path, stranger: HostKey, allow: bool
) -> None:
    authorisation = Authorisation("pending")
    with (
        daemons(board(tmp_path, authorisation=authorisation)) as serving,
        raw_host(serving.addresses[0]) as peer,
    ):
        here = Host(peer)
        here.show(stranger)
        here.hears_refusal("E000002")
        assert here.runs("touch ran")[0][1][:9] == b"\0[E000002"
        assert authorisation.pending == (stranger.fingerprint,)
        decide = partial(authorisation.decide, stranger.fingerprint, allow=allow)
        serving.loop.call_soon_threadsafe(decide)
        if allow:
            here.sign(stranger)
            here.hears_welcome()
        else:
            here.hears_refusal("E000003")
        assert authorisation.pending == ()
    assert not (tmp_path / "ran").exists()


def test_whoever_is_told_to_wait_can_be_decided_about(tmp_path: Path, stranger: HostKey) -> None:
    waiting_when_told: list[tuple[str, ...]] = []
    authorisation = Authorisation("pending")

    def send(_: int, command: Command, *data: bytes) -> None:
        if command == Command.ECHO:
            waiting_when_told.append(authorisation.pending)

    handshake = Handshake(board(tmp_path, authorisation=authorisation), send)
    handshake.packet(SessionHandShake(auth_type=AuthType.NONE))
    shown = f"host\x0c{stranger.public_pem}".encode()
    handshake.packet(SessionHandShake(auth_type=AuthType.PUBLICKEY, buf=shown))
    assert waiting_when_told == [(stranger.fingerprint,)]


def test_a_host_that_leaves_waits_no_more(tmp_path: Path, stranger: HostKey) -> None:
    authorisation = Authorisation("pending")
    with host(tmp_path, authorisation) as here:
        here.show(stranger)
        here.hears_refusal("E000002")
        assert authorisation.pending
        here.peer.socket.close()
        assert wait_until(lambda: not authorisation.pending, timeout=30, interval=0.01)
    assert not authorisation.decide(stranger.fingerprint, allow=True)


@pytest.mark.parametrize(
    ("kind", "buf"),
    [
        (AuthType.SIGNATURE, b"AAAA"),  # before a token
        (AuthType.PUBLICKEY, b"host\x0cno key"),
        (AuthType.PUBLICKEY, b"\xff\0\xff"),
        (
            AuthType.PUBLICKEY,  # of an algorithm that does not exist
            b"-----BEGIN PUBLIC KEY-----\nMBIwBQYDKgMEAwkAAQEBAQEBAQE=\n-----END PUBLIC KEY-----\n",
        ),
        (AuthType.OK, b""),
        (AuthType.SSL_TLS_PSK, b""),
    ],
)
def test_hosts_that_talk_out_of_turn_are_dropped(
    tmp_path: Path, kind: AuthType, buf: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with host(tmp_path, Authorisation()) as here:
        here.say(AuthType.NONE, b"")
        here.hear()
        here.say(kind, buf)
        assert here.peer.ended()
    assert not caplog.records  # nothing that nobody expected
