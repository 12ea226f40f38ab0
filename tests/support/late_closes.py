"""Boards whose word that the handshake is over comes when it comes: at once, late, or not at all.

hdcd ends the handshake with CHANNEL_CLOSE on channel 0, from another thread than the one that takes
the first command.
"""

import asyncio
import random
from collections.abc import Callable

from labctl.daemon.hooks import Interference, Line, Wire
from labctl.hdc.messages import Buffer
from labctl.hdc.wire import Command

#: When the CHANNEL_CLOSE comes: seconds after the handshake, with the first command, or never.
When = float | str
WITH_THE_FIRST_COMMAND = "with the first command"
NEVER = "never"


class _LateClose(Wire):
    def __init__(self, line: Line, when: When):
        super().__init__(line)
        self._when = when
        self._kept = False

    def outgoing(self, channel: int, command: int, *data: Buffer) -> None:
        ends_handshake = (channel, command, data) == (0, Command.CHANNEL_CLOSE, (b"\x01",))
        if not ends_handshake or self._when == 0:
            super().outgoing(channel, command, *data)
        elif isinstance(self._when, float):
            asyncio.get_running_loop().call_later(self._when, self._say)
        else:
            self._kept = self._when == WITH_THE_FIRST_COMMAND

    def incoming(self, channel: int, command: int, data: memoryview) -> None:
        super().incoming(channel, command, data)
        if self._kept and channel:
            self._kept = False
            self._say()

    def _say(self) -> None:
        super().outgoing(0, Command.CHANNEL_CLOSE, b"\x01")


class LateCloses(Interference):
    """Makes one CHANNEL_CLOSE late for each connection."""

    def __init__(self, when: Callable[[], When]):
        self._when = when

    def wire(self, line: Line) -> Wire:
        return _LateClose(line, self._when())


def as_it_comes(seed: int) -> LateCloses:
    """At once, within 3 ms, with the first command or never, by chance."""
    chance = random.Random(seed)
    return LateCloses(
        lambda: chance.choice((0.0, chance.uniform(0, 0.003), WITH_THE_FIRST_COMMAND, NEVER))
    )
