"""A channel whose user and whose link meet in the same moment."""

import threading
from collections import deque
from collections.abc import Iterator

from labctl.errors import LinkError
from labctl.hdc.host.channel import Channel
from labctl.hdc.wire import Command


class Link:
    """Takes what a channel says."""

    label = "a board"
    failure: LinkError | None = None

    def __init__(self) -> None:
        self.sent: list[tuple[int, bytes]] = []

    def check(self) -> None:
        """Nothing is wrong."""

    def send(self, channel: int, command: int, *data: bytes, timeout: float) -> None:
        del channel, timeout
        self.sent.append((command, b"".join(data)))

    def forget(self, channel: Channel) -> None:
        del channel


class Watched(deque[tuple[int, bytes]]):
    """Packets that come while others are looked at."""

    def __init__(self, arrive: threading.Thread):
        super().__init__([(Command.ECHO_RAW, b"seen"), (Command.ECHO_RAW, b"unseen")])
        self._arrive = arrive

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        for packet in super().__iter__():
            if self._arrive.ident is None:
                self._arrive.start()
                self._arrive.join(0.2)  # it waits for the lock, or does its harm at once
            yield packet


def test_a_packet_may_come_while_a_channel_is_closed() -> None:
    link = Link()
    channel = Channel(link, 1, 5.0)
    arrive = threading.Thread(target=channel.deliver, args=(Command.ECHO_RAW, b"late", 5.0))
    channel._arrived = Watched(arrive)
    channel.close()
    arrive.join()
    channel.close()
    assert link.sent == [(Command.CHANNEL_CLOSE, b"\x01")]
    assert channel.deliver(Command.ECHO_RAW, bytes(1000), 5.0)
    assert sum(len(data) for _, data in channel._arrived) == len(b"seen" + b"unseen")
