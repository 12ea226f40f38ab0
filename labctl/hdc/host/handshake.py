"""The host's side of the handshake that opens a session, with authentication on request.

A locked board asks for the host's public key. If the board does not know the key, it asks its user
in a dialog (E000002), and the session stays open meanwhile. If the board knows the key, the host
must sign a token.
"""

import os
import re
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from labctl.errors import (
    AccessDenied,
    CommandTimeout,
    DeviceLost,
    LinkError,
    NotAuthorised,
    ProtocolError,
)
from labctl.hdc.messages import AuthType, SessionHandShake, decode_tlv, encode_tlv
from labctl.hdc.wire import Command, Packet, PacketDecoder, encode_packet

if TYPE_CHECKING:
    from labctl.hdc.keys import HostKey
    from labctl.hdc.server_client.tunnel import Connection

#: Version that this host reports: it behaves like the official server of that version.
HOST_VERSION = "Ver: 3.2.0c"
HOST_FEATURES = f"{HOST_VERSION},TCP,linux,heartbeat"
#: Below this version (string order, as in the reference) the reply's text is only the name.
_TLV_SINCE = "Ver: 3.0.0b"
#: The board requests a signature by RSASSA-PSS; any other value requests the old scheme.
_WANTS_PSS = "1"
#: A token is text (20 hex digits). The old scheme signs it unchanged, so labctl signs only such
#: tokens: otherwise a hostile board could obtain a signature for another protocol.
_TOKEN = re.compile(rb"[!-~]{1,256}")
_CODE = re.compile(r"\[(E\d{6})\]")
_PENDING, _DENIED, _BAD_SIGNATURE = "E000002", "E000003", "E000010"

#: Returns the key for a board that asks for one.
FindKey = Callable[[], "HostKey"]


@dataclass(frozen=True)
class Consent:
    """Time (s) to wait until somebody allows this host in the board's dialog.

    ``on_waiting`` is called once with instructions for the user.
    """

    timeout: float = 0.0
    on_waiting: Callable[[str], None] = lambda _what: None


@dataclass(frozen=True)
class BoardHandshake:
    """The board's part of the handshake. ``name`` is None if the board sent no name."""

    name: str | None
    features: frozenset[str]

    @property
    def heartbeat(self) -> bool:
        """True if the board wants heartbeats (3.2.0 and later)."""
        return "heartbeat" in self.features

    @property
    def is_3_2(self) -> bool:
        """True if hdcd is 3.2.0 or later: such releases send features, 3.1.0e sends none."""
        return bool(self.features)


class Handshake:
    """The handshake on a new connection. ``deadline`` (monotonic clock, s) limits it."""

    def __init__(
        self,
        sock: "Connection",
        decoder: PacketDecoder,
        label: str,
        *,
        deadline: float,
        find_key: FindKey,
        consent: Consent,
    ):
        self._socket = sock
        self._decoder = decoder
        self._label = label
        self._deadline = deadline
        self._find_key = find_key
        self._consent = consent
        self._key: HostKey | None = None
        self._wants_pss = True
        self._pending: NotAuthorised | None = None

    def shake(self) -> BoardHandshake:
        """Open the session. Raises NotAuthorised, CommandTimeout, DeviceLost, ProtocolError."""
        hello = SessionHandShake(
            session_id=int.from_bytes(os.urandom(4)) >> 1,
            connect_key=self._label,
            buf=encode_tlv({"authtype": "1", "supportfeatures": HOST_FEATURES}),
            version=HOST_VERSION,
        )
        self._send(hello)
        try:
            while (handshake := self._react(self._receive())) is None:
                pass
        except (CommandTimeout, DeviceLost) as error:
            if self._pending is None:
                raise
            raise self._pending.again() from error  # no user has allowed the host
        return handshake

    def _react(self, reply: SessionHandShake) -> BoardHandshake | None:
        if reply.auth_type == AuthType.OK:
            return self._accepted(reply)
        if reply.auth_type == AuthType.PUBLICKEY:
            self._show_key(reply.buf)
        elif reply.auth_type == AuthType.SIGNATURE:
            self._sign(reply.buf)
        else:
            raise ProtocolError(
                f"{self._label} asks for an unknown kind of authentication ({reply.auth_type})"
            )
        return None

    def _host_key(self) -> "HostKey":
        if self._key is None:
            began = time.monotonic()
            self._key = self._find_key()
            self._deadline += time.monotonic() - began  # a slow host may need seconds to make one
        return self._key

    def _show_key(self, wish: bytes) -> None:
        try:
            self._wants_pss = decode_tlv(wish).get("authtype") == _WANTS_PSS
        except ProtocolError:
            self._wants_pss = False
        text = f"{socket.gethostname()}\x0c{self._host_key().public_pem}"
        self._answer(AuthType.PUBLICKEY, text.encode())

    def _sign(self, token: bytes) -> None:
        from labctl.hdc.keys import Scheme

        if _TOKEN.fullmatch(token) is None:
            raise ProtocolError(f"{self._label} asks to sign what is not a token: {token!r}")
        scheme = Scheme.PSS if self._wants_pss else Scheme.PKCS1
        self._answer(AuthType.SIGNATURE, self._host_key().sign_token(token, scheme))

    def _accepted(self, reply: SessionHandShake) -> BoardHandshake | None:
        if reply.version < _TLV_SINCE:
            return BoardHandshake(reply.buf.decode(errors="replace") or None, frozenset())
        try:
            entries = decode_tlv(reply.buf)
        except ProtocolError:  # the official server accepts that too; the name is then unknown
            return BoardHandshake(None, frozenset())
        words = entries.get("emgmsg", "")
        # The type is OK for refusals too; the status and the message decide.
        if words or entries.get("daemonauthstatus", "SUCCESS") != "SUCCESS":
            self._refused(words.strip())
            return None
        features = frozenset(filter(None, entries.get("supportfeatures", "").split(",")))
        return BoardHandshake(entries.get("devname") or None, features)

    def _refused(self, words: str) -> None:
        """Wait for consent if requested; otherwise raise the error for the board's refusal."""
        code = found[1] if (found := _CODE.match(words)) else None
        whose = "this host's key" if self._key is None else f"the key {self._key.fingerprint}"
        what, hint = {
            _PENDING: (
                f"the board at {self._label} asks on its screen whether to trust {whose}",
                "press Allow (for ever) in the dialog on the board's screen, then try again",
            ),
            _DENIED: (
                f"on the board at {self._label} somebody denied access to {whose}",
                "try again, and press Allow in the dialog on the board's screen",
            ),
            _BAD_SIGNATURE: (
                f"the board at {self._label} rejected the signature of {whose}",
                "remove this host from the board's trusted hosts, and allow it again",
            ),
        }.get(
            code or "",
            (
                f"the board at {self._label} does not accept {whose}",
                "allow this host in the dialog on the board's screen, then try again",
            ),
        )
        kind = AccessDenied if code == _DENIED else NotAuthorised
        refusal = kind(what, hint=hint, details=words or None)
        if code != _PENDING or self._consent.timeout <= 0:
            raise refusal
        if self._pending is None:
            self._pending = refusal
            self._deadline = time.monotonic() + self._consent.timeout
            self._consent.on_waiting(f"{what}: press Allow there")

    def _answer(self, auth_type: AuthType, buf: bytes) -> None:
        # In the board's packets, session id and key are empty; they are copied, as in the
        # reference.
        self._send(SessionHandShake(auth_type=auth_type, buf=buf, version=HOST_VERSION))

    def _send(self, packet: SessionHandShake) -> None:
        self._send_raw(encode_packet(0, Command.HANDSHAKE, packet.encode()))

    def _send_raw(self, raw: bytes) -> None:
        try:
            self._socket.settimeout(self._left())
            self._socket.sendall(raw)
        except TimeoutError:
            raise self._silent() from None
        except OSError as error:
            raise DeviceLost(f"the handshake broke off: {error.strerror or error}") from error

    def _receive(self) -> SessionHandShake:
        while True:
            for packet in self._packets():
                if packet.command == Command.HANDSHAKE:
                    return SessionHandShake.decode(packet.data)
                # Other packets of the board on channel 0 get no reply, see Session._dispatch.
            try:
                self._socket.settimeout(self._left())
                count = self._socket.recv_into(self._decoder.room())
            except TimeoutError:
                raise self._silent() from None
            except OSError as error:
                raise DeviceLost(
                    f"{self._label} broke off the handshake: {error.strerror or error}"
                ) from error
            if count == 0:
                raise DeviceLost(f"{self._label} closed the connection during the handshake")
            self._decoder.received(count)

    def _packets(self) -> Iterator[Packet]:
        try:
            yield from self._decoder.packets()
        except ProtocolError as error:
            raise ProtocolError(
                f"{self._label} does not speak hdc: {error.message}", hint=error.hint
            ) from error

    def _left(self) -> float:
        """Seconds until the deadline. The deadline also stops a peer that never ends sending."""
        remaining = self._deadline - time.monotonic()
        if remaining <= 0:
            raise self._silent()
        return remaining

    def _silent(self) -> LinkError:
        return CommandTimeout(
            f"{self._label} accepts connections but does not speak hdc",
            hint="the board's hdcd may hang; restart it or the board",
        )
