"""Ports forwarded by a server: rules that the server keeps, made and removed by text commands.

The server itself listens (or connects, in a reverse rule), on its own host.
"""

import logging
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress

from labctl.errors import (
    BoardError,
    CommandTimeout,
    ConfigError,
    HostError,
    LabctlError,
    LinkError,
    ProtocolError,
)
from labctl.hdc.host.forwarding import ended_early
from labctl.hdc.host.link import Forwarding
from labctl.hdc.host.nodes import Listener, check_local_node, port_of
from labctl.hdc.messages import EchoLevel
from labctl.hdc.server_client.channel import ServerChannel
from labctl.hdc.server_client.server import HdcServer, Rule
from labctl.hdc.wire import Command
from labctl.retry import retry_infra, wait_until

_SYSTEM_CHOOSES = "tcp:0"
_LOOPBACK = "127.0.0.1"
_MADE = "Forwardport result:OK"
#: A server closes a rule's listener 45 ms after it confirmed the removal.
_ENDING_SECONDS = 5.0
_INTERVAL_SECONDS = 0.05
_MAX_WORDS_BYTES = 4096

#: Sends a text to the server for the board; the channel returns the reply.
Say = Callable[[str], AbstractContextManager[ServerChannel]]

_log = logging.getLogger("labctl.hdc")


@contextmanager
def forwarded(server: HdcServer, say: Say, wanted: Rule, *, timeout: float) -> Iterator[Forwarding]:
    """Make the server keep the rule ``wanted`` within the context.

    Early connections are held until the rule is ready. In a forward rule, labctl listens at the
    port of ``wanted``, and the server at a free port of this host (at the next one if the port is
    in use on the server's host). With ``tcp:0``, only the server listens: nobody knows that port in
    advance. ``timeout`` (s) limits the start and each request.

    Raises ConfigError (no such node; a server on another host), HostError (the port is in use),
    BoardError, LinkError.
    """
    _check(server, wanted, timeout)
    with ExitStack() as stack:
        listener: Listener | None = None
        if not wanted.is_reverse and wanted.listen != _SYSTEM_CHOOSES:
            listener = stack.enter_context(closing(Listener(wanted.listen)))
        if wanted.is_reverse:
            rule = _make(server, say, wanted, timeout)
        else:
            rule = retry_infra(
                lambda: _make(server, say, _at_free_port(wanted), timeout),
                on=(HostError,),  # the free port has been taken since
                timeout=timeout,
                interval=_INTERVAL_SECONDS,
            )
        stack.callback(_end, server, rule, timeout)
        if listener is not None:
            # asyncio is slow to load
            from labctl.hdc.server_client.holding import forward_connections

            port = Forwarding(rule.listen, rule.connect).port
            stack.enter_context(forward_connections(listener, port))
        yield Forwarding(rule.listen if listener is None else listener.node, rule.connect)


def _check(server: HdcServer, wanted: Rule, timeout: float) -> None:
    here, there = wanted.listen, wanted.connect
    if wanted.is_reverse:
        here, there = there, here
    check_local_node(here)
    if port_of(there) == 0:
        raise ConfigError(f"not a port of a board: {there}", hint="name the port")
    if server.is_here is None:
        server.version(timeout=timeout)
    if not server.is_here and server.tunnel is None:
        raise elsewhere(server)


def elsewhere(server: HdcServer) -> ConfigError:
    """Return the error for a port that would be on another host."""
    return ConfigError(
        f"{server.label} is on another host, and ports are forwarded to and from that host",
        hint="run labctl there, or go to the board itself (`link: tcp`)",
    )


def _at_free_port(wanted: Rule) -> Rule:
    with socket.create_server((_LOOPBACK, 0)) as taken:
        port = taken.getsockname()[1]
    return Rule(wanted.key, f"tcp:{port}", wanted.connect, wanted.is_reverse)


def _make(server: HdcServer, say: Say, rule: Rule, timeout: float) -> Rule:
    # `fport rm` does not name the board: if two rules are equal, it might remove another board's.
    for known in server.rules(timeout=timeout):
        if (known.listen, known.connect) == (rule.listen, rule.connect):
            raise HostError(
                f"{server.label} already forwards {rule.listen} to {rule.connect}, for {known.key}",
                hint=f"take another port, or end it: `hdc fport rm {rule.listen} {rule.connect}`",
            )
    kind = "rport" if rule.is_reverse else "fport"
    try:
        with say(f"{kind} {rule.listen} {rule.connect}") as channel:
            answer = _whole_answer(server, channel, timeout)
        if answer == (EchoLevel.OK, _MADE):
            _verify(server, rule, timeout)
            return rule
    except BaseException:
        _end(server, rule, timeout)
        raise
    level, words = answer
    if level == EchoLevel.FAIL:
        raise _refusal(rule, words)
    if not words:
        raise ended_early(server.label, rule.listen)
    raise ProtocolError(f"{server.label} answers to a forwarding: {words[:80]!r}")


def _whole_answer(server: HdcServer, channel: ServerChannel, timeout: float) -> tuple[int, str]:
    """Return the server's whole reply until it ends the connection; raise a refusal at once.

    A server confirms a rule at once, but ends the conversation 45 to 200 ms later, when the board
    has agreed. If the client closes it earlier, its reverse rule is removed.
    """
    deadline = time.monotonic() + timeout
    level, answer = int(EchoLevel.OK), b""
    while True:
        try:
            command, data = channel.receive(deadline - time.monotonic())
        except CommandTimeout as error:
            raise CommandTimeout(
                f"{server.label} did not confirm a forwarding within {timeout:g} s",
                hint="the board may be frozen or overloaded",
                details=answer.decode(errors="replace") or None,
            ) from error
        if command == Command.CHANNEL_CLOSE:
            return level, answer.decode(errors="replace")
        level, answer = data[0], answer + data[1:]
        if level == EchoLevel.FAIL or len(answer) > _MAX_WORDS_BYTES:
            return level, answer.decode(errors="replace")


def _verify(server: HdcServer, rule: Rule, timeout: float) -> None:
    def listed() -> bool:
        return rule in server.rules(timeout=timeout)

    # A reverse rule is listed only after the board's reply to the server, a moment later.
    seconds = min(_ENDING_SECONDS, timeout)
    if not wait_until(listed, timeout=seconds, interval=_INTERVAL_SECONDS):
        raise ProtocolError(f"{server.label} confirms {rule.listen}, but does not list it")
    if not rule.is_reverse and server.tunnel is None and not _listens_here(rule):
        raise elsewhere(server)


def _refusal(rule: Rule, words: str) -> LabctlError:
    if "listen failed" in words:
        if rule.is_reverse:
            return BoardError(f"the board cannot listen at {rule.listen}: {words}")
        return HostError(
            f"the hdc server cannot listen at {rule.listen}: {words}",
            hint="another program listens there: take another port",
        )
    if "parament" in words or "Incorrect forward command" in words:
        return ConfigError(f"hdc cannot forward {rule.listen} to {rule.connect}: {words}")
    return BoardError(f"the board answers: {words}")


def _listens_here(rule: Rule) -> bool:
    """Return True if the rule's port is in use on this host.

    If not, the server is on another host, behind a tunnel.
    """
    port = port_of(rule.listen)
    if port is None:
        return True
    try:
        with socket.socket() as sock:
            sock.bind((_LOOPBACK, port))
    except OSError:  # in use, or only for root
        return True
    return False


def _end(server: HdcServer, rule: Rule, timeout: float) -> None:
    def ended() -> bool:
        return rule not in server.rules(timeout=timeout)

    answer = ""
    # If the server or the board is gone, so is the rule.
    with suppress(LinkError):
        if ended():
            return
        answer = server.remove_rule(rule, timeout=timeout)
        if wait_until(ended, timeout=_ENDING_SECONDS, interval=_INTERVAL_SECONDS):
            return
        _log.warning("%s still forwards %s: %s", server.label, rule.listen, answer)
