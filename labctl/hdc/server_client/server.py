"""An hdc server, and the requests to it that need no board.

The server (``hdc`` runs it, on TCP port 8710 of loopback) owns the cables of USB and UART boards,
and the key that boards authorise. Written from recorded traffic of 3.2.0c.
"""

import ipaddress
import re
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from labctl.errors import CommandTimeout, DeviceLost, LinkError, LinkRefused, ProtocolError
from labctl.hdc.server_client.frames import Frames
from labctl.hdc.server_client.tunnel import Connection, Tunnel
from labctl.tcp import dial

_BANNER = b"OHOS HDC"
_BANNER_BYTES = 12
_KEY_BYTES = 32
#: A handshake: banner and channel id. A server that compares versions (hdc_version_check) appends
#: 64 bytes with its version, and needs the last byte of the key for a NUL.
_HANDSHAKE_SIZES = (44, 108)
_LARGE_BUFFERS = ord("H")
_CHECK_SERVER = b"\x0d\x00"
#: Maximum size. A server's reply has any number of frames; a longer reply is not a list of boards.
_MAX_ANSWER_BYTES = 1 << 20
#: A line of `fport ls`: KEY, the two nodes of a rule, and which side listens.
_RULE = re.compile(r"(\S+) {4}(\S+) (\S+) {4}\[(Forward|Reverse)\]")
_NOTHING = "[Empty]"
_INFORMATION = "[Info]"
#: Time for a working server to report its version.
_QUESTION_SECONDS = 2.0
_NOT_RUNNING_HINT = (
    "start it with `hdc start`; hdc is part of the OpenHarmony SDK's toolchains (for x86_64)."
    " A board on TCP needs neither: `link: tcp`"
)


@dataclass(frozen=True)
class Target:
    """A board as a server lists it."""

    key: str
    connection: str  # USB, UART, TCP
    state: str  # Connected, Offline, Unauthorized, Unknown
    name: str


@dataclass(frozen=True)
class Rule:
    """A forwarding rule that a server keeps: the node that listens, and the node it connects to.

    The server listens; in a reverse rule, the board listens.
    """

    key: str
    listen: str
    connect: str
    is_reverse: bool


class HdcServer:
    """A running hdc server, and the requests to it that need no board.

    Errors of the server itself are attributed to its host
    (:meth:`labctl.errors.LabctlError.of_host`): the server does not listen, sends no handshake, or
    does not answer a request that needs no board.

    ``is_here`` is True if the server's address is on this host, None before the first answer. A
    server behind another program's tunnel also seems to be here. ``tunnel`` is a tunnel made by
    labctl; ``host`` and ``port`` are then an address as seen from the tunnel's host.
    """

    def __init__(self, host: str, port: int, tunnel: Tunnel | None = None):
        self.host = host
        self.port = port
        self.tunnel = tunnel
        where = f"{host}:{port}" if tunnel is None else f"port {port} of {tunnel.name}"
        self.label = f"the hdc server at {where}"
        self.is_here: bool | None = None if tunnel is None else False

    def close(self) -> None:
        """Close the tunnel to the server, if there is one. Idempotent."""
        if self.tunnel is not None:
            self.tunnel.close()

    def version(self, *, timeout: float) -> str:
        """Return the server's version, ``Ver: 3.2.0c``: the cheapest proof that a server runs.

        Raises LinkError: LinkRefused if nothing listens.
        """
        answer = self._ask("checkserver", timeout)
        if not answer.startswith(_CHECK_SERVER):
            raise ProtocolError(f"{self.label} answers checkserver with {answer[:80]!r}").of_host()
        return answer.removeprefix(_CHECK_SERVER).decode(errors="replace")

    def is_gone(self) -> bool:
        """Return True if the server does not even report its version now."""
        try:
            self.version(timeout=_QUESTION_SECONDS)
        except LinkError as error:
            return error.is_of_host
        return False

    def list_targets(self, *, timeout: float) -> list[Target]:
        """Return all boards of the server, in every state. Raises LinkError.

        A line that cannot be parsed is logged and skipped, unless there is no other line.
        """
        targets, odd = self._listed(timeout)
        if odd and not targets:
            raise self._odd(odd[0])
        for line in odd:
            self._leave_out(line)
        return targets

    def _listed(self, timeout: float) -> tuple[list[Target], list[str]]:
        """Return the boards that the server lists, and the lines that cannot be parsed."""
        targets, odd = [], []
        for line in _lines(self._ask("list targets -v", timeout)):
            # KEY, an empty column, connection, state, name; a client of 3.2.0f adds "hdc"
            columns = line.split("\t")
            if len(columns) in (5, 6):
                key, _, connection, state, name = columns[:5]
                targets.append(Target(key, connection, state, name))
            elif not line.startswith(_INFORMATION):
                odd.append(line)
        return targets, odd

    def _odd(self, line: str) -> LinkError:
        return ProtocolError(f"{self.label} lists a board as {line!r}").of_host()

    def _leave_out(self, line: str) -> None:
        import logging  # slow to import and seldom needed

        logging.getLogger("labctl.hdc").warning("%s: left out: %r", self.label, line)

    def find(self, key: str, *, timeout: float) -> Target | None:
        """Return the board with this key; None if the server has none. Raises LinkError.

        Ignores other boards' lines that cannot be parsed.
        """
        targets, odd = self._listed(timeout)
        for line in odd:
            if line.split("\t")[0] == key:
                raise self._odd(line)
        return next((target for target in targets if target.key == key), None)

    def connect_target(self, key: str, *, timeout: float) -> str:
        """Ask the server to connect to the board at ``HOST:PORT``. Its reply proves nothing.

        Raises LinkError: CommandTimeout if the board accepts and stays silent, because the server
        then waits forever.
        """
        reply = self._ask(f"tconn {key}", timeout, of_board=True)
        return reply.decode(errors="replace").strip()

    def remove_target(self, key: str, *, timeout: float) -> None:
        """Ask the server to drop its connection to a board on TCP, and then list it as Offline.

        The server does not confirm this. Raises LinkError.
        """
        self._ask(f"tconn {key} -remove", timeout)

    def rules(self, *, timeout: float) -> list[Rule]:
        """Return the forwarding rules of all boards. Raises LinkError.

        A line that cannot be parsed is logged and skipped.
        """
        rules = []
        for line in _lines(self._ask("fport ls", timeout)):
            match = _RULE.fullmatch(line)
            if match is None:
                self._leave_out(line)
                continue
            key, listen, connect, kind = match.groups()
            rules.append(Rule(key, listen, connect, kind == "Reverse"))
        return rules

    def remove_rule(self, rule: Rule, *, timeout: float) -> str:
        """Ask the server to remove a rule of any board. Its reply does not prove that it did.

        Raises LinkError.
        """
        reply = self._ask(f"fport rm {rule.listen} {rule.connect}", timeout)
        return reply.decode(errors="replace").strip()

    def open(self, key: str, command: bytes, *, label: str, timeout: float) -> tuple[Frames, bool]:
        """Send ``command`` on a new connection; return it, and True if it uses large buffers.

        ``timeout`` (s) limits the total time. Raises LinkError.
        """
        deadline = time.monotonic() + timeout
        sock = self._connect(timeout)
        with ExitStack() as undo:
            undo.callback(sock.close)
            frames = Frames(sock, self.label)
            with _of_host():
                handshake = self._read_handshake(frames, deadline)
            frames.label = label
            banner, version = handshake[:_BANNER_BYTES], handshake[min(_HANDSHAKE_SIZES) :]
            if version and len(key) >= _KEY_BYTES:
                raise LinkRefused(
                    f"{self.label} takes keys of at most {_KEY_BYTES - 1} characters; the key of"
                    f" this board has {len(key)}: {key}",
                    hint="its hdc was built with hdc_version_check; the hdc of the official SDK"
                    f" takes {_KEY_BYTES}",
                ).of_host()
            # The server accepts its own version.
            answer = banner + key.encode().ljust(_KEY_BYTES, b"\0") + version
            frames.send(answer, timeout=deadline - time.monotonic())
            frames.send(command, b"\0", timeout=deadline - time.monotonic())
            undo.pop_all()
        return frames, banner[-1] == _LARGE_BUFFERS

    def _read_handshake(self, frames: Frames, deadline: float) -> bytes:
        """Return the server's handshake, the same for every board. Raises LinkError."""
        seconds = deadline - time.monotonic()
        try:
            handshake = frames.read(seconds, at_most=max(_HANDSHAKE_SIZES))
        except CommandTimeout:
            raise CommandTimeout(
                f"no answer from {self.label} within {seconds:.3g} s: it sends no handshake",
                hint="it hangs, or its host is overloaded; `hdc kill` ends it",
            ) from None
        if handshake is None:
            raise DeviceLost(f"{self.label} closed the connection without a handshake")
        if len(handshake) not in _HANDSHAKE_SIZES or not handshake.startswith(_BANNER):
            raise ProtocolError(
                f"{self.label} sends no hdc handshake, but {handshake[:16]!r}",
                hint="is this the port of an hdc server (usually 8710)?",
            )
        return handshake

    def _connect(self, timeout: float) -> Connection:
        if self.tunnel is None:
            with _of_host():
                sock = dial(
                    self.host, self.port, timeout=timeout, peer="hdc server", hint=_NOT_RUNNING_HINT
                )
            self.is_here = _is_on_this_host(sock)
            return sock
        try:
            return self.tunnel.connect(self.host, self.port, timeout=timeout)
        except LinkRefused as error:
            raise LinkRefused(
                f"no hdc server answers: {error.message}",
                hint="start it there: `hdc start`; sshd must allow tunnels (AllowTcpForwarding)",
            ).of_host() from error

    def _ask(self, command: str, timeout: float, *, of_board: bool = False) -> bytes:
        """Return the server's reply. If ``of_board``, a missing reply is the board's fault."""
        deadline = time.monotonic() + timeout
        frames, _ = self.open("", command.encode(), label=self.label, timeout=timeout)
        try:
            with _of_host(but=CommandTimeout if of_board else None):
                answer = bytearray()
                while (frame := frames.read(deadline - time.monotonic())) is not None:
                    answer += frame
                    if len(answer) > _MAX_ANSWER_BYTES or time.monotonic() > deadline:
                        raise ProtocolError(f"{self.label} answers {command!r} without end")
                return bytes(answer)
        finally:
            frames.close()


def _lines(answer: bytes) -> list[str]:
    """Split a list into lines only at LF: names may contain Python's other line separators."""
    lines = (line.rstrip("\r") for line in answer.decode(errors="replace").split("\n"))
    return [line for line in lines if line and not line.startswith(_NOTHING)]


@contextmanager
def _of_host(but: type[LinkError] | None = None) -> Iterator[None]:
    """Attribute errors inside to the server's host, except errors of the type ``but``."""
    try:
        yield
    except LinkError as error:
        if but is None or not isinstance(error, but):
            error.of_host()
        raise


def _is_on_this_host(sock: socket.socket) -> bool:
    try:
        here, there = sock.getsockname()[0], sock.getpeername()[0]
    except OSError:  # the server has already closed it
        return False
    return bool(here == there or ipaddress.ip_address(there).is_loopback)
