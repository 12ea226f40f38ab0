"""``hdc shell COMMAND`` on the board's side."""

import asyncio
import os
import subprocess

from labctl import process
from labctl.daemon.programs import readable, reap
from labctl.errors import HostError
from labctl.hdc.daemon.board import Board
from labctl.hdc.daemon.task import Link, Task
from labctl.hdc.wire import Command


class ShellTask(Task):
    """Runs one command until its output ends.

    ``sh`` leads its own session. Standard error joins standard output. Standard input is a pipe
    that stays open.
    """

    output = Command.ECHO_RAW

    def __init__(self, link: Link, channel: int, board: Board, data: bytes):
        super().__init__(link, channel, board, data)
        command = data
        # The client added the outer pair of double quotes.
        if len(command) >= 2 and command[:1] == b'"' == command[-1:]:
            command = command[1:-1]
        self._command = command.split(b"\0")[0]
        self._process: subprocess.Popen[bytes] | None = None
        self._pump: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the shell and forward its output."""
        if not self._command:
            self._finish()
            return
        try:
            self._process = process.start(
                [*self._board.shell, os.fsdecode(self._command)],
                cwd=self._board.directory,
                env=self._board.environment,
                stdin=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
        except HostError as error:
            self._fail(error.message)
            return
        self._pump = self._link.spawn(self._forward(self._process))

    def packet(self, command: int, data: memoryview) -> None:
        """Ignore the packet: only interactive shells take input."""

    def stop(self) -> None:
        """Send TERM to ``sh`` only, and stop forwarding its output."""
        if self._pump is not None and self._pump is not asyncio.current_task():
            self._pump.cancel()
        if self._process is not None and self._pump is not None:
            running, self._process = self._process, None
            pipes = [pipe for pipe in (running.stdin, running.stdout) if pipe]
            self._link.spawn(reap(running, [self._pump], pipes, running.terminate))

    async def _forward(self, running: subprocess.Popen[bytes]) -> None:
        assert running.stdout is not None
        descriptor = running.stdout.fileno()
        os.set_blocking(descriptor, False)
        while True:
            try:
                piece = os.read(descriptor, self._board.profile.output_piece_bytes)
            except BlockingIOError:
                await readable(descriptor)
                continue
            if not piece:
                break
            self._send(self.output, piece)
            await self._link.drained()
        self._finish()


class HilogTask(ShellTask):
    """Runs the board's ``hilog``."""

    def __init__(self, link: Link, channel: int, board: Board, data: bytes):
        words = data.split(b"\0")[0].strip()
        command = b"hilog -h" if words == b"h" else b"hilog " + words
        super().__init__(link, channel, board, command)


class BugreportTask(ShellTask):
    """Runs the board's ``hidumper`` (wire format from ``daemon_unity.cpp``, not tested)."""

    output = Command.BUGREPORT_DATA

    def __init__(self, link: Link, channel: int, board: Board, data: bytes):
        del data
        super().__init__(link, channel, board, b"hidumper")
