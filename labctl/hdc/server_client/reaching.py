"""Make a board behind a server ready for use: connected, allowed, answering.

A server's report about a board proves nothing. It reports ``Connect OK`` for a board that refuses
it, and ``Connected`` for a board that was switched off minutes ago. It never reconnects to a board
on TCP that it has lost. So labctl reads the state, and sends a probe to a board on TCP that the
server lists as connected.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass

from labctl.errors import (
    AccessDenied,
    CommandTimeout,
    DeviceLost,
    LinkError,
    LinkRefused,
    NotAuthorised,
)
from labctl.hdc.server_client.connect_key import address_of, is_tcp_key
from labctl.hdc.server_client.frames import Frames
from labctl.hdc.server_client.server import HdcServer, Target
from labctl.hdc.server_client.tunnel import Tunnel
from labctl.retry import wait_until

#: Maximum number of boards of a server, in any state.
MAX_TARGETS = 128

#: States that change only by a user or a request.
_SETTLED = ("Connected", "Unauthorized")
_INTERVAL_SECONDS = 0.1
#: Minimum time for a short request.
_QUESTION_SECONDS = 2.0
#: Longer output cannot be the echo of a word.
_MAX_ECHO_BYTES = 4096


@dataclass(frozen=True)
class Timeouts:
    """Limits (s) of single waits for a server and a board, within the total time-out."""

    #: Wait for a final state. A server that first makes its key (2-3 s) reports that a connection
    #: failed although it then succeeds.
    settle: float = 5.0
    #: Wait for the answer to a probe; and for the first probe after a later probe was answered.
    probe: float = 4.0
    grace: float = 1.0
    #: Wait for the end of a probe's conversation: usually 45 ms.
    end: float = 5.0


_DEFAULT_TIMEOUTS = Timeouts()


def reach(
    server: HdcServer,
    key: str,
    *,
    timeout: float,
    timeouts: Timeouts = _DEFAULT_TIMEOUTS,
    is_asking: bool = False,
) -> Target:
    """Return the board once the server has it ready for commands, within about ``timeout`` seconds.

    The server connects again to a board on TCP that it lost, never had, or holds by a dead
    connection. With ``is_asking``, a dialog on the board waits for its user: a new connection would
    ask again. Raises LinkRefused (board unknown or offline), NotAuthorised, CommandTimeout (it is
    connected but does not answer, or accepts connections and stays silent), another LinkError.
    """
    return _Reaching(server, key, time.monotonic() + timeout, timeouts, is_asking).reach()


class _Reaching:
    def __init__(
        self, server: HdcServer, key: str, deadline: float, timeouts: Timeouts, is_asking: bool
    ):
        self._server = server
        self._key = key
        self._deadline = deadline
        self._timeouts = timeouts
        self._is_asking = is_asking
        self._said = ""  # text from the server when it connected to the board

    def reach(self) -> Target:
        target = self._look()
        if is_tcp_key(self._key):
            target = self._on_tcp(target)
        elif target is not None and target.state not in (*_SETTLED, "Offline"):
            target = self._settled()
        return self._usable(target)

    def _on_tcp(self, target: Target | None) -> Target | None:
        if target is not None and target.state == "Connected":
            target = self._alive(target)
        if target is not None and target.state == "Unknown":
            target = self._settled()  # another client is connecting
        if target is None or target.state == "Offline":
            return self._dial()
        if target.state == "Connected" or (self._is_asking and target.state == "Unauthorized"):
            return target
        # Stuck halfway, or refused before a user allowed the server's key: no commands run there.
        return self._dial_again()

    def _alive(self, target: Target) -> Target | None:
        """Return the board after a probe; replace a dead connection.

        Dropping a connection ends other users' work on it. So labctl drops it only if the board
        answers a later command on another link: then the board is not merely slow.
        """
        with self._probing() as probe:
            if probe.answered(min(self._timeouts.probe, self._left() / 2)):
                probe.wait_for_end(min(self._timeouts.end, self._left()))
                return target
            now = self._look()
            if now is None or now.state != "Connected":
                return now  # this request made the server notice the loss
            if not self._answers_on_its_own() or probe.answered(self._timeouts.grace):
                raise CommandTimeout(
                    f"the board {self._key} is connected, says {self._server.label}, but it does"
                    " not answer",
                    hint="it may be frozen, overloaded or off; if it works, let the server drop"
                    f" its connection: `hdc tconn {self._key} -remove`",
                )
        import logging

        logging.getLogger("labctl.hdc").warning(
            "%s holds a dead connection to %s: replaced", self._server.label, self._key
        )
        return self._dial_again()

    def _answers_on_its_own(self) -> bool:
        from labctl.hdc.host.link import shell
        from labctl.hdc.host.session import Session

        host, port = address_of(self._key)
        seconds = min(self._timeouts.probe, self._left() / 2)
        try:
            if self._server.tunnel is not None:
                return self._handshakes_through(self._server.tunnel, host, port, seconds)
            with Session.connect(host, port, timeout=seconds) as session:
                return any(shell(session, "echo alive", timeout=seconds))
        except NotAuthorised:  # hdcd itself works
            return True
        except LinkError:
            return False

    @staticmethod
    def _handshakes_through(tunnel: Tunnel, host: str, port: int, seconds: float) -> bool:
        """Do the handshake with the board from the server's host: only it may reach the board.

        Raises LinkError, NotAuthorised.
        """
        from labctl.hdc.host.handshake import Consent, Handshake
        from labctl.hdc.keys import HostKey
        from labctl.hdc.wire import PacketDecoder

        deadline = time.monotonic() + seconds
        with closing(tunnel.connect(host, port, timeout=seconds)) as sock:
            Handshake(
                sock,
                PacketDecoder(),
                f"{host}:{port}",
                deadline=deadline,
                find_key=HostKey.of_this_user,
                consent=Consent(),
            ).shake()
        return True

    def _dial(self) -> Target | None:
        try:
            self._said = self._server.connect_target(self._key, timeout=self._left())
        except CommandTimeout as error:
            if error.is_of_host:
                raise
            with suppress(LinkError):  # otherwise the server waits for the board forever
                self._server.remove_target(self._key, timeout=_QUESTION_SECONDS)
            raise CommandTimeout(
                f"{self._server.label} gets no answer from the board {self._key}",
                hint="it accepts connections but does not speak hdc, or packets to it get lost;"
                " restart its hdcd or the board",
            ) from error
        if self._look() is None:  # it lists even unreachable boards: it refused this one
            return None
        return self._settled()

    def _dial_again(self) -> Target | None:
        self._server.remove_target(self._key, timeout=self._left())

        def gone() -> bool:
            target = self._look()
            return target is None or target.state == "Offline"

        wait_until(gone, timeout=_QUESTION_SECONDS, interval=_INTERVAL_SECONDS)
        return self._dial()

    def _settled(self) -> Target | None:
        """Return the board once its state is final, or its last state after a time-out."""
        seen: list[Target | None] = []

        def settled() -> bool:
            seen.append(self._look())
            return seen[-1] is not None and seen[-1].state in _SETTLED

        seconds = min(self._timeouts.settle, self._deadline - time.monotonic())
        wait_until(settled, timeout=seconds, interval=_INTERVAL_SECONDS)
        return seen[-1]

    def _usable(self, target: Target | None) -> Target:
        server, key = self._server, self._key
        if target is None:
            raise self._unknown()
        if target.state == "Unauthorized":
            if denied := self._denied():
                raise denied
            raise NotAuthorised(
                f"the board {key} does not accept the key of {server.label}",
                hint="allow this host in the dialog on the board's screen, then try again",
            )
        if target.state != "Connected":
            raise LinkRefused(
                f"the board {key} is {target.state.lower()}, says {server.label}",
                hint="check power and cable; `hdc list targets -v` shows what it knows",
                details=self._said or None,
            )
        return target

    def _denied(self) -> LinkError | None:
        """Return the error if a user denied the server's key: the server itself reports that."""
        from labctl.hdc.server_client.channel import refusal

        with suppress(LinkError), self._probing() as probe:
            probe.wait_for_end(min(self._timeouts.probe, self._left()))
            error = refusal(probe.heard.removeprefix(b"[Fail]"), f"the board {self._key}")
            return error if isinstance(error, AccessDenied) else None
        return None

    def _unknown(self) -> LinkRefused:
        known = [target.key for target in self._server.list_targets(timeout=self._left())]
        if len(known) >= MAX_TARGETS:
            hint = (
                f"it has {len(known)} boards, and takes at most {MAX_TARGETS}: use another"
                " server, or none (`link: tcp`)"
            )
        elif known:
            hint = f"it knows {', '.join(known)}"
        else:
            hint = "it knows none: is one on and plugged in?"
        return LinkRefused(
            f"{self._server.label} knows no board {self._key}",
            hint=hint,
            details=self._said or None,
        )

    def _look(self) -> Target | None:
        return self._server.find(self._key, timeout=self._left())

    def _left(self) -> float:
        """Return the time (s) for a request: at least the time that a working server needs."""
        return max(self._deadline - time.monotonic(), _QUESTION_SECONDS)

    @contextmanager
    def _probing(self) -> Iterator["_Probe"]:
        word = os.urandom(16).hex().encode()
        frames, _ = self._server.open(
            self._key,
            b"shell echo " + word,
            label=f"the board {self._key}",
            timeout=self._left(),
        )
        try:
            yield _Probe(frames, word)
        finally:
            frames.close()


class _Probe:
    """A random word that a board is asked to print."""

    def __init__(self, frames: Frames, word: bytes):
        self._frames = frames
        self._word = word
        self.heard = b""
        self._over = False

    def answered(self, timeout: float) -> bool:
        """Wait for the word; return False if it does not arrive within ``timeout`` seconds."""
        self._hear(timeout, lambda: self._word in self.heard)
        return self._word in self.heard

    def wait_for_end(self, timeout: float) -> None:
        """Let the server end the conversation, as its own client does.

        Otherwise the board is still ending it while the next command starts. With hdcd 3.1.0e
        behind a server 3.2.0c, 3 of 150 such commands printed their output and never ended; with
        the official client, which always waits, none did. This cause is not proven: the fault
        cannot be reproduced reliably.
        """
        self._hear(timeout, lambda: False)

    def _hear(self, timeout: float, enough: Callable[[], bool]) -> None:
        deadline = time.monotonic() + timeout
        while not self._over and not enough():
            try:
                frame = self._frames.read(deadline - time.monotonic())
            except CommandTimeout:
                return
            except DeviceLost:
                frame = None
            self.heard += frame or b""
            self._over = frame is None or len(self.heard) > _MAX_ECHO_BYTES
