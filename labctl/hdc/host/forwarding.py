"""Forwarding rules of a session: one channel each, which carries all connections of the rule."""

import secrets
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import TypeVar

from labctl.errors import ConfigError, DeviceLost
from labctl.hdc.host.channel import Channel
from labctl.hdc.host.link import Forwarding, expect
from labctl.hdc.host.nodes import Listener, check_local_node, check_node, dial_node, port_of
from labctl.hdc.host.relay import ID_BYTES, MAX_CONNECTIONS, Relay, naming
from labctl.hdc.wire import Command
from labctl.retry import retry_infra

T = TypeVar("T")

#: The counter in the CHANNEL_CLOSE that removes a rule: 0 asks for no answer.
PARTING = 0
#: A connection that comes early is opened, and may be gone again.
_OF_EARLY_CONNECTIONS = (Command.FORWARD_ACTIVE_SLAVE, Command.FORWARD_FREE_CONTEXT)
_MAX_HELD = 2 * MAX_CONNECTIONS
_INTERVAL_SECONDS = 0.05


@contextmanager
def forward(open_channel: Callable[[], Channel], listen: str, connect: str) -> Iterator[Forwarding]:
    """``fport``: connections to ``listen`` here go to ``connect`` on the board.

    Raises ConfigError, HostError, LinkError, BoardError.
    """
    check_node(connect)
    with closing(Listener(listen)) as listener, open_channel() as channel:
        rule = secrets.token_bytes(ID_BYTES)
        channel.send(Command.WAKEUP_SLAVETASK)
        channel.send(Command.FORWARD_CHECK, rule, naming(connect))
        # A refusal comes in two packets: the rule's context is freed, then words say why.
        expect(
            channel,
            Command.FORWARD_CHECK_RESULT,
            also=lambda command, _: command == Command.FORWARD_FREE_CONTEXT,
        )
        with _carrying(Relay(channel, node=connect), listener):
            yield Forwarding(listener.node, connect)


@contextmanager
def reverse(
    open_channel: Callable[[], Channel], listen: str, connect: str, *, timeout: float
) -> Iterator[Forwarding]:
    """``rport``: connections to ``listen`` on the board go to ``connect`` here.

    Connections that meet its start are held until it stands; hdcd itself ends a rule that one meets
    before this host has agreed, and the rule is made again then, within ``timeout`` seconds. Raises
    ConfigError, LinkError, BoardError.
    """
    check_local_node(connect)
    if port_of(listen) == 0:
        raise ConfigError(
            f"a board cannot be asked to choose a port: {listen}", hint="name a free port of it"
        )

    def dial(timeout: float) -> socket.socket:
        return dial_node(connect, timeout=timeout)

    def make() -> tuple[ExitStack, Relay]:
        with ExitStack() as undo:
            channel = undo.enter_context(open_channel())
            relay = undo.enter_context(closing(Relay(channel, dial=dial)))
            held = _Held(listen)
            request = f"{listen} {connect}".encode(errors="surrogateescape")
            channel.send(Command.FORWARD_INIT, request)
            expect(channel, Command.WAKEUP_SLAVETASK, also=held.take)
            rule = expect(channel, Command.FORWARD_CHECK, also=held.take)[:ID_BYTES]
            channel.send(Command.FORWARD_CHECK_RESULT, rule, b"\0")
            expect(channel, Command.FORWARD_SUCCESS, also=held.take)
            for command, data in held.packets:
                relay.take(command, data)
            standing = undo.pop_all()
        return standing, relay

    rule, relay = until_it_stands(make, timeout)
    with rule, _carrying(relay):
        yield Forwarding(listen, connect)


class RuleEnded(DeviceLost):
    """A rule was ended without a word while it was set up: a connection met it too early."""


def until_it_stands(make: Callable[[], T], timeout: float) -> T:
    """Set up a rule, again when it is ended without a word, within ``timeout`` seconds."""
    try:
        return retry_infra(make, on=(RuleEnded,), timeout=timeout, interval=_INTERVAL_SECONDS)
    except RuleEnded as error:
        raise DeviceLost(error.message, hint=error.hint) from error


class _Held:
    """Connections that came before the rule stands."""

    def __init__(self, listen: str):
        self.packets: list[tuple[int, bytes]] = []
        self._listen = listen

    def take(self, command: int, data: bytes) -> bool:
        """Keep a packet of a connection; see :func:`expect`. Raises RuleEnded."""
        if command == Command.CHANNEL_CLOSE:
            raise RuleEnded(f"the board ended the forwarding of {self._listen} without a word")
        if command not in _OF_EARLY_CONNECTIONS or len(self.packets) >= _MAX_HELD:
            return False
        self.packets.append((command, data))
        return True


@contextmanager
def _carrying(relay: Relay, listener: Listener | None = None) -> Iterator[None]:
    def take() -> None:
        relay.run()
        if listener is not None:
            listener.stop()  # nobody shall connect to what is gone

    def accept(source: Listener) -> None:
        while (sock := source.accept()) is not None:
            relay.adopt(sock)

    threads = [threading.Thread(target=take, name="hdc forward", daemon=True)]
    if listener is not None:
        threads.append(
            threading.Thread(target=accept, args=(listener,), name="hdc forward", daemon=True)
        )
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        if listener is not None:
            listener.stop()
        relay.close()
        for thread in threads:
            thread.join()
        relay.close()  # what was accepted last
