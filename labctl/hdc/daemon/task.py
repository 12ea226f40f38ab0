"""What a task on a daemon's channel is, and what it may use of its connection."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Coroutine

from labctl.hdc.daemon.interference import Storage
from labctl.hdc.messages import EchoLevel
from labctl.hdc.wire import Command


class Link(ABC):
    """The connection as its tasks see it."""

    @abstractmethod
    def send(self, channel: int, command: Command, *data: bytes) -> None:
        """Queue one packet, its data in parts; nothing happens when the host is gone."""

    @abstractmethod
    def storage(self, channel: int) -> Storage:
        """The files of a channel's transfer."""

    @abstractmethod
    async def drained(self) -> None:
        """Wait until the host has taken most of what was queued, or is gone."""

    @abstractmethod
    def spawn(self, work: Coroutine[None, None, None]) -> "asyncio.Task[None]":
        """Run ``work`` beside; it may outlive the connection, but not the daemon."""

    @abstractmethod
    def finish(self, channel: int) -> None:
        """The task of this channel is done: stop it and close the channel."""


class Task(ABC):
    """The work on one channel."""

    def __init__(self, link: Link, channel: int):
        self._link = link
        self._channel = channel

    @abstractmethod
    def start(self) -> None:
        """Begin; the task is registered now."""

    @abstractmethod
    def packet(self, command: int, data: memoryview) -> None:
        """Take a packet of this channel; ``data`` is good during the call only."""

    @abstractmethod
    def stop(self) -> None:
        """Give everything back; nothing is sent any more. Idempotent."""

    @property
    def _storage(self) -> Storage:
        return self._link.storage(self._channel)

    def _send(self, command: Command, *data: bytes) -> None:
        self._link.send(self._channel, command, *data)

    def _echo(self, level: EchoLevel, text: str) -> None:
        self._send(Command.ECHO, bytes([level]) + text.encode(errors="surrogateescape"))

    def _finish(self) -> None:
        self._link.finish(self._channel)
