"""``hdc shell`` without a command: an interactive shell in a terminal."""

import asyncio
import os
import signal
import subprocess
from contextlib import suppress
from typing import IO

from labctl import process
from labctl.daemon.programs import TAKE_TERMINAL, readable, reap, writable
from labctl.errors import HostError
from labctl.hdc.daemon.board import Board
from labctl.hdc.daemon.task import Inbox, Link, Task
from labctl.hdc.wire import Command

_GRACE_SECONDS = 2.0
#: Sent by a host for Ctrl-C, as a separate packet.
_INTERRUPT = b"\x03"


class TerminalTask(Task):
    """Runs an interactive shell: passes on the host's input and the shell's output."""

    def __init__(self, link: Link, channel: int, board: Board, data: bytes):
        super().__init__(link, channel, board, data)
        self._typed = Inbox(link)
        self._running: subprocess.Popen[bytes] | None = None
        self._terminal: IO[bytes]
        self._pumps: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start the shell."""
        board = self._board
        try:
            ours, theirs = os.openpty()
        except OSError as error:
            self._fail(f"cannot open a terminal: {error.strerror}")
            return
        self._terminal = os.fdopen(ours, "r+b", buffering=0)
        os.set_blocking(ours, False)
        try:
            self._running = process.start(
                [*board.shell, TAKE_TERMINAL, board.shell[0], os.ttyname(theirs)],
                cwd=board.directory,
                env=board.environment,
                stdin=theirs,
                stdout=theirs,
                stderr=theirs,
            )
        except HostError as error:
            self._terminal.close()
            self._fail(error.message)
            return
        finally:
            os.close(theirs)
        self._pumps = [self._link.spawn(self._show(ours)), self._link.spawn(self._type(ours))]

    def packet(self, command: int, data: memoryview) -> None:
        """Handle the host's input."""
        if command == Command.SHELL_DATA:
            self._typed.put(command, bytes(data))

    def stop(self) -> None:
        """Hang up the terminal."""
        for pump in self._pumps:
            if pump is not asyncio.current_task():
                pump.cancel()
        self._typed.close()
        if self._running is not None:
            running, self._running = self._running, None
            hang_up = self._terminal.close
            # A shell that has just started a job may wait for the job, even after SIGHUP.
            self._link.spawn(reap(running, self._pumps, [self._terminal], hang_up, _GRACE_SECONDS))

    async def _show(self, terminal: int) -> None:
        while True:
            try:
                piece = os.read(terminal, self._board.profile.output_piece_bytes)
            except BlockingIOError:
                await readable(terminal)
                continue
            except OSError:  # EIO: the other end is closed everywhere
                break
            self._send(Command.ECHO_RAW, piece)
            await self._link.drained()
        self._finish()

    async def _type(self, terminal: int) -> None:
        while True:
            _, keys = await self._typed.get()
            if keys == _INTERRUPT:
                _interrupt(terminal)
                continue
            while keys:
                try:
                    keys = keys[os.write(terminal, keys) :]
                except BlockingIOError:
                    await writable(terminal)
                except OSError:  # the shell has just ended
                    return


def _interrupt(terminal: int) -> None:
    """Send SIGINT to the foreground group's leader; like hdcd, without a visible Ctrl-C."""
    with suppress(OSError):  # the terminal is closed, or the leader has ended
        group = os.tcgetpgrp(terminal)
        if group > 1:
            os.kill(group, signal.SIGINT)
