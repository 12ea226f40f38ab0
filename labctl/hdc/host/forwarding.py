"""Forwarding rules of a session: one channel each, for all connections of the rule."""

import secrets
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

from labctl.errors import ConfigError, DeviceLost
from labctl.hdc.host.channel import Channel
from labctl.hdc.host.link import Forwarding, expect
from labctl.hdc.host.mux import Mux
from labctl.hdc.host.nodes import Listener, check_local_node, check_node, dial_node, port_of
from labctl.hdc.messages import ID_BYTES, naming
from labctl.hdc.wire import Command

#: The counter in the CHANNEL_CLOSE that removes a rule: 0 asks for no answer.
PARTING = 0
#: Packets of a connection that comes early: it is opened, and may have ended again.
_OF_EARLY_CONNECTIONS = (Command.FORWARD_ACTIVE_SLAVE, Command.FORWARD_FREE_CONTEXT)


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
        # A refusal comes in two packets: one frees the rule's context, one has the reason.
        expect(
            channel,
            Command.FORWARD_CHECK_RESULT,
            also=lambda command, _: command == Command.FORWARD_FREE_CONTEXT,
        )
        with _forwarding(Mux(channel, node=connect), listener):
            yield Forwarding(listener.node, connect)


@contextmanager
def reverse(open_channel: Callable[[], Channel], listen: str, connect: str) -> Iterator[Forwarding]:
    """``rport``: connections to ``listen`` on the board go to ``connect`` here.

    Connections that the board reports before the rule is ready are held until then. Raises
    ConfigError, LinkError, BoardError.
    """
    check_local_node(connect)
    if port_of(listen) == 0:
        raise ConfigError(
            f"a board cannot be asked to choose a port: {listen}", hint="name a free port of it"
        )

    def dial(timeout: float) -> socket.socket:
        return dial_node(connect, timeout=timeout)

    with open_channel() as channel, closing(Mux(channel, dial=dial)) as mux:
        held = _Held(listen, 2 * channel.limits.connections)
        channel.send(Command.FORWARD_INIT, f"{listen} {connect}".encode(errors="surrogateescape"))
        expect(channel, Command.WAKEUP_SLAVETASK, also=held.take)
        rule = expect(channel, Command.FORWARD_CHECK, also=held.take)[:ID_BYTES]
        channel.send(Command.FORWARD_CHECK_RESULT, rule, b"\0")
        expect(channel, Command.FORWARD_SUCCESS, also=held.take)
        for command, data in held.packets:
            mux.take(command, data)
        with _forwarding(mux):
            yield Forwarding(listen, connect)


def ended_early(who: str, listen: str) -> DeviceLost:
    """Return the error for a rule that ended without a message while it was set up."""
    return DeviceLost(
        f"{who} ended the forwarding of {listen} without a reason",
        hint="hdcd ends a forwarding if a connection comes before it is ready: try again",
    )


class _Held:
    """Connections that came before the rule is ready."""

    def __init__(self, listen: str, most: int):
        self.packets: list[tuple[int, bytes]] = []
        self._listen = listen
        self._most = most

    def take(self, command: int, data: bytes) -> bool:
        """Keep a packet of a connection; see :func:`expect`. Raises DeviceLost."""
        if command == Command.CHANNEL_CLOSE:
            raise ended_early("the board", self._listen)
        if command not in _OF_EARLY_CONNECTIONS or len(self.packets) >= self._most:
            return False
        self.packets.append((command, data))
        return True


@contextmanager
def _forwarding(mux: Mux, listener: Listener | None = None) -> Iterator[None]:
    def take() -> None:
        mux.run()
        if listener is not None:
            listener.stop()  # nobody shall connect to a rule that is gone

    def accept(source: Listener) -> None:
        while (sock := source.accept()) is not None:
            mux.attach(sock)

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
        mux.close()
        for thread in threads:
            thread.join()
        mux.close()  # the last accepted connection
