"""The board's side of opening a session: handshake and authorisation.

Recorded conversations are in ``tests/fixtures/hdc/session-3.2.0c-auth.jsonl``. The reply to a wrong
signature follows hdcd's source.
"""

import secrets
from enum import Enum
from typing import Protocol

from labctl.errors import ProtocolError
from labctl.hdc.daemon.authorisation import Authorisation
from labctl.hdc.daemon.board import Board
from labctl.hdc.keys import Scheme, fingerprint, verify
from labctl.hdc.messages import AuthType, EchoLevel, SessionHandShake, decode_tlv, encode_tlv
from labctl.hdc.wire import Command

NOT_YET = (
    "[E000002]:The device unauthorized.\r\nThis server's public key is not set.\r\n"
    "Please check for a confirmation dialog on your device.\r\n"
    "Otherwise try 'hdc kill' if that seems wrong."
)
DENIED = (
    "[E000003]:The device unauthorized.\r\nThe user denied the access for the device.\r\n"
    "Please execute 'hdc kill' and redo your command,\r\n"
    "then check for a confirmation dialog on your device."
)
WRONG_SIGNATURE = "[E000010]:Auth failed, cannt login the device."

#: Number of each scheme in a handshake's ``authtype``.
_SCHEMES = {Scheme.PKCS1: "0", Scheme.PSS: "1"}
_TOKEN_BYTES = 10
#: Separates the host's name from its key.
_SEPARATOR = "\x0c"


class _Step(Enum):
    """The packet that the host must send next."""

    HELLO = "its first handshake packet"
    KEY = "its public key"
    DECISION = "nothing: its key is not accepted yet"
    SIGNATURE = "the signature of the token"
    NOTHING = "nothing: the decision is made"


class Sender(Protocol):
    """Sends packets to the host."""

    def __call__(self, channel: int, command: Command, *data: bytes) -> None:
        """Send one packet."""


class Handshake:
    """The handshake with one host.

    ``has_begun`` is True after the first packet. ``refusal`` is the reason why the host may run no
    commands now; None if it may.
    """

    def __init__(self, board: Board, send: Sender):
        self._board = board
        self._send = send
        self._hello = SessionHandShake()
        self._step = _Step.HELLO
        self._key = ""  # PEM
        self._fingerprint = ""
        self._token = b""
        self.has_begun = False
        self.refusal: str | None = NOT_YET

    @property
    def wants_heartbeats(self) -> bool:
        """True if both ends send heartbeats."""
        try:
            features = decode_tlv(self._hello.buf).get("supportfeatures", "").split(",")
        except ProtocolError:  # an empty or invalid text names no features
            return False
        return "heartbeat" in features and "heartbeat" in self._board.profile.features

    def packet(self, packet: SessionHandShake) -> None:
        """Handle the next packet. Raises ProtocolError for an unexpected one."""
        authorisation = self._board.authorisation
        if packet.auth_type == AuthType.NONE:
            self.leave()
            self.has_begun = True
            self._hello = packet
            if authorisation is None:
                self._let_in()
            else:
                self._ask_for_key(authorisation)
        elif authorisation and packet.auth_type == AuthType.PUBLICKEY and self._step is _Step.KEY:
            self._take_key(authorisation, packet.buf)
        elif (
            authorisation
            and packet.auth_type == AuthType.SIGNATURE
            and self._step is _Step.SIGNATURE
        ):
            if verify(self._key, self._token, packet.buf.rstrip(b"\0"), authorisation.scheme):
                self._let_in()
            else:
                self._step = _Step.NOTHING
                self._refuse(WRONG_SIGNATURE)
        else:
            raise ProtocolError(
                f"unexpected handshake of type {packet.auth_type}; expected {self._step.value}"
            )

    def leave(self) -> None:
        """Note that the host left or starts again. Idempotent."""
        if self._step is _Step.DECISION and self._board.authorisation:
            self._board.authorisation.withdraw(self._fingerprint, self._decided)
        self._step = _Step.HELLO
        self.refusal = NOT_YET

    def _ask_for_key(self, authorisation: Authorisation) -> None:
        self._step = _Step.KEY
        self._say(AuthType.PUBLICKEY, encode_tlv({"authtype": _SCHEMES[authorisation.scheme]}))

    def _take_key(self, authorisation: Authorisation, shown: bytes) -> None:
        self._key = shown.decode(errors="replace").rpartition(_SEPARATOR)[2].rstrip("\0")
        try:
            self._fingerprint = fingerprint(self._key)
        except ValueError:
            raise ProtocolError("the host shows no public key") from None
        decision = authorisation.consider(self._fingerprint)
        if decision:
            self._ask_for_signature()
            return
        if decision is None:  # before the reply: a decision may come at once
            self._step = _Step.DECISION
            authorisation.wait(self._fingerprint, self._decided)
        else:
            self._step = _Step.NOTHING
        # hdcd asks its user before it denies the host, and reports that at once.
        self._refuse(NOT_YET)
        if decision is False:
            self._refuse(DENIED)

    def _decided(self, allowed: bool) -> None:
        if allowed:
            self._ask_for_signature()
        else:
            self._step = _Step.NOTHING
            self._refuse(DENIED)

    def _ask_for_signature(self) -> None:
        self._step = _Step.SIGNATURE
        self._token = secrets.token_hex(_TOKEN_BYTES).encode()
        self._say(AuthType.SIGNATURE, self._token)

    def _let_in(self) -> None:
        self._step = _Step.NOTHING
        self.refusal = None
        self._say(AuthType.OK, self._about("", "SUCCESS"))
        self._send(0, Command.CHANNEL_CLOSE, b"\x01")

    def _refuse(self, reason: str) -> None:
        self.refusal = reason
        # The type is OK for refusals too; the message and the status show the refusal.
        self._say(AuthType.OK, self._about(reason, "DAEMON_UNAUTH"))
        self._send(0, Command.CHANNEL_CLOSE, b"\x01")
        self._send(0, Command.ECHO, bytes([EchoLevel.FAIL]) + reason.encode())

    def _about(self, message: str, status: str) -> bytes:
        entries = {
            "emgmsg": message,
            "devname": self._board.name,
            "daemonauthstatus": status,
            "1200": "enable",
        }
        if self._board.profile.features:
            entries["supportfeatures"] = self._board.profile.features
        return encode_tlv(entries)

    def _say(self, kind: AuthType, buf: bytes) -> None:
        # The version field repeats the host's text, as the real daemon does.
        answer = SessionHandShake(auth_type=kind, buf=buf, version=self._hello.version)
        self._send(0, Command.HANDSHAKE, answer.encode())
