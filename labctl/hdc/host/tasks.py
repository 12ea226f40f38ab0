"""Requests to a board over any link, except files: commands, a shell, a reboot, its log."""

import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Literal

from labctl.errors import CommandTimeout, DeviceLost
from labctl.hdc.host.link import HostChannel, HostLink, raise_echo
from labctl.hdc.wire import Command

#: What a board is asked to become: itself again, its bootloader, or off.
RebootTarget = Literal["", "bootloader", "recovery", "flashd", "shutdown"]
_REBOOT_TEXTS = {
    "": "target boot",
    "bootloader": "target boot -bootloader",
    "recovery": "target boot -recovery",
    "flashd": "target boot -flashd",
    "shutdown": "target boot shutdown",
}


def shell(link: HostLink, command: str, *, timeout: float) -> Generator[bytes, None, None]:
    """Run ``command`` in the board's shell; its output, piece by piece, until it ends.

    Close the iterator to end the command early. The protocol carries no exit status, and the end
    of the output proves nothing by itself. ``timeout`` (s) bounds the whole command.
    Raises LinkError, BoardError.
    """
    raw = command.encode(errors="surrogateescape")
    with link.open_task(
        Command.UNITY_EXECUTE, raw, text=f"shell {command}", timeout=timeout
    ) as channel:
        yield from _output(channel, timeout)


def hilog(link: HostLink, arguments: str = "", *, timeout: float) -> Generator[bytes, None, None]:
    """Yield the board's log, piece by piece, until ``timeout`` seconds are over or the iterator
    closes.

    hdc itself passes no arguments on: with ``arguments``, text for the board's shell, its ``hilog``
    is run as any command. It ends by itself with ``-x`` only. Raises LinkError, BoardError.
    """
    command = f"hilog {arguments}" if arguments else ""
    with link.open_task(
        Command.UNITY_EXECUTE if command else Command.UNITY_HILOG,
        command.encode(errors="surrogateescape"),
        text=f"shell {command}" if command else "hilog",
        timeout=timeout,
    ) as channel:
        yield from _output(channel, timeout)


def reboot(link: HostLink, how: RebootTarget = "", *, timeout: float) -> None:
    """Have the board restart; returns when it has taken the request, or is gone already.

    Nothing tells here whether it comes back, or went at all: compare its boot id later.
    Raises LinkError, BoardError.
    """
    with link.open_task(
        Command.UNITY_REBOOT, how.encode(), text=_REBOOT_TEXTS[how], timeout=timeout
    ) as channel:
        try:
            for _ in _output(channel, timeout):
                pass
        except DeviceLost:
            return  # as was asked


def remount(link: HostLink, *, timeout: float) -> str:
    """Make the board's system partitions writable (``target mount``); what it says to that.

    Raises LinkError, BoardError when it cannot.
    """
    return _answer(link, Command.UNITY_REMOUNT, b"", "target mount", timeout)


def set_mode(link: HostLink, mode: str, *, timeout: float) -> str:
    """Change how the board's hdcd listens (``tmode port 5555``, ``tmode usb``); what it says.

    Raises LinkError, BoardError when it cannot.
    """
    return _answer(link, Command.UNITY_RUNMODE, mode.encode(), f"tmode {mode}", timeout)


def _answer(link: HostLink, command: Command, data: bytes, text: str, timeout: float) -> str:
    with link.open_task(command, data, text=text, timeout=timeout) as channel:
        words: list[bytes] = []
        for _ in _output(channel, timeout, words):
            pass
    return b"\n".join(words).decode(errors="replace")


class InteractiveShell:
    """A shell on a terminal of the board's. Sending and receiving may be done by two threads."""

    def __init__(self, channel: HostChannel):
        self._channel = channel
        self._ended = False

    def send(self, data: bytes) -> None:
        """Type ``data``; a byte 4 on an empty line ends the shell. Raises LinkError."""
        self._channel.send(Command.SHELL_DATA, data)

    def receive(self, timeout: float) -> bytes | None:
        """Return the shell's next output; empty (``b""``) after ``timeout`` seconds; None once it
        ended.

        Raises LinkError, BoardError.
        """
        deadline = time.monotonic() + timeout
        while not self._ended:
            try:
                command, data = self._channel.receive(deadline - time.monotonic())
            except CommandTimeout:
                return b""
            if command == Command.CHANNEL_CLOSE:
                self._ended = True
            elif command == Command.ECHO:
                raise_echo(data)
            elif command == Command.ECHO_RAW and data:
                return data
        return None


@contextmanager
def interactive_shell(link: HostLink, *, timeout: float) -> Iterator[InteractiveShell]:
    """Open an interactive shell, ended with the context. ``timeout`` (s) bounds each wait to
    send.
    """
    with link.open_task(Command.SHELL_INIT, b"", text="shell", timeout=timeout) as channel:
        yield InteractiveShell(channel)


def _output(
    channel: HostChannel, timeout: float, words: list[bytes] | None = None
) -> Generator[bytes, None, None]:
    """Output of a task until it ends, within ``timeout`` seconds. ``words`` collects its
    messages."""
    deadline = time.monotonic() + timeout
    while True:
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            raise CommandTimeout(f"the command did not end within {timeout:g} s")
        kind, data = channel.receive(remaining)
        if kind == Command.CHANNEL_CLOSE:
            return
        if kind == Command.ECHO:
            raise_echo(data)
            if words is not None:
                words.append(data[1:].strip())
        elif kind == Command.ECHO_RAW:
            yield data
