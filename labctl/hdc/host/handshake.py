"""The host's part of the dialog that opens a session."""

import secrets
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass

from labctl.errors import CommandTimeout, DeviceLost, NotAuthorised, ProtocolError
from labctl.hdc.messages import AuthType, SessionHandShake, decode_tlv, encode_tlv
from labctl.hdc.wire import Command, PacketDecoder, encode_packet

#: What this host says it is: it speaks as the official server of that version does.
HOST_VERSION = "Ver: 3.2.0c"
HOST_FEATURES = f"{HOST_VERSION},TCP,linux,heartbeat"
#: Below this version (string order, as in the reference) the answer's text is the name alone.
_TLV_SINCE = "Ver: 3.0.0b"

#: Answers a board that demands proof of who we are (``auth_type`` TOKEN to PUBLICKEY) with the
#: packet to send. May raise NotAuthorised.
Authenticator = Callable[[SessionHandShake], SessionHandShake]


@dataclass(frozen=True)
class Greeting:
    """What a board told about itself. ``name`` is None when it told none."""

    name: str | None
    features: frozenset[str]

    @property
    def heartbeat(self) -> bool:
        """Whether the board wants heartbeats (3.2.0 and later)."""
        return "heartbeat" in self.features

    @property
    def is_3_2(self) -> bool:
        """Whether its hdcd is 3.2.0 or later: those tell features, 3.1.0e tells none."""
        return bool(self.features)


def shake_hands(
    sock: socket.socket,
    decoder: PacketDecoder,
    label: str,
    deadline: float,
    authenticate: Authenticator | None,
) -> Greeting:
    """Open the session on a fresh connection before ``deadline`` (monotonic clock, s).

    Raises NotAuthorised, CommandTimeout, DeviceLost, ProtocolError.
    """
    hello = SessionHandShake(
        session_id=secrets.randbits(31),
        connect_key=label,
        buf=encode_tlv({"authtype": "1", "supportfeatures": HOST_FEATURES}),
        version=HOST_VERSION,
    )
    _send(sock, hello)
    while True:
        reply = _receive(sock, decoder, label, deadline)
        if reply.auth_type == AuthType.OK:
            return _greeting(reply, label)
        if reply.auth_type not in (AuthType.TOKEN, AuthType.SIGNATURE, AuthType.PUBLICKEY):
            raise ProtocolError(
                f"{label} asks for an unknown kind of authentication ({reply.auth_type})"
            )
        if authenticate is None:
            raise NotAuthorised(
                f"the board at {label} wants a known host key, and labctl has none to show",
                hint="use a board image without authorisation (const.hdc.secure=0)",
            )
        _send(sock, authenticate(reply))


def _greeting(reply: SessionHandShake, label: str) -> Greeting:
    if reply.version < _TLV_SINCE:
        return Greeting(reply.buf.decode(errors="replace") or None, frozenset())
    try:
        entries = decode_tlv(reply.buf)
    except ProtocolError:  # the official server lives with that too; the name is unknown then
        return Greeting(None, frozenset())
    refusal = entries.get("emgmsg", "")
    # The type is OK for refusals too: the status and the message decide.
    if refusal or entries.get("daemonauthstatus", "SUCCESS") != "SUCCESS":
        raise NotAuthorised(
            f"the board at {label} does not accept this host",
            hint="look at the board's screen and allow this host in its dialog, then try again",
            details=refusal.strip() or None,
        )
    features = frozenset(filter(None, entries.get("supportfeatures", "").split(",")))
    return Greeting(entries.get("devname") or None, features)


def _send(sock: socket.socket, packet: SessionHandShake) -> None:
    try:
        sock.sendall(encode_packet(0, Command.HANDSHAKE, packet.encode()))
    except OSError as error:
        raise DeviceLost(f"the handshake broke off: {error.strerror or error}") from error


def _receive(
    sock: socket.socket, decoder: PacketDecoder, label: str, deadline: float
) -> SessionHandShake:
    while True:
        for packet in decoder.packets():
            if packet.command == Command.HANDSHAKE:
                return SessionHandShake.decode(packet.data)
        # The clock decides, also against a peer that never stops to say something else.
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            raise _silent(label)
        try:
            sock.settimeout(remaining)
            count = sock.recv_into(decoder.room())
        except TimeoutError:
            raise _silent(label) from None
        except OSError as error:
            raise DeviceLost(
                f"{label} broke off the handshake: {error.strerror or error}"
            ) from error
        if count == 0:
            raise DeviceLost(f"{label} closed the connection during the handshake")
        decoder.received(count)


def _silent(label: str) -> CommandTimeout:
    return CommandTimeout(
        f"{label} accepts connections but does not speak hdc",
        hint="the board's hdcd may hang; restart it or the board",
    )
