"""``hdc shell COMMAND`` on the board's side."""

import asyncio
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from labctl import process
from labctl.errors import HostError
from labctl.hdc.daemon.task import Link, Task
from labctl.hdc.messages import EchoLevel
from labctl.hdc.wire import Command

#: The largest piece of output that hdcd sends at once.
PIECE_BYTES = 65_536


class ShellHost(Protocol):
    """Where and how commands run."""

    @property
    def shell(self) -> tuple[str, ...]:
        """The program and its options; the command's text follows."""

    @property
    def environment(self) -> Mapping[str, str]:
        """The whole environment of a command."""

    @property
    def directory(self) -> Path:
        """Where a command starts."""


class ShellTask(Task):
    """Runs one command: ``sh`` leads a session of its own, standard error joins standard output,
    standard input is a pipe that stays open. The end of the output is the end of the command.
    """

    def __init__(self, link: Link, channel: int, host: ShellHost, command: bytes):
        super().__init__(link, channel)
        self._host = host
        # One outer pair of double quotes is the client's, not the user's.
        if len(command) >= 2 and command[:1] == b'"' == command[-1:]:
            command = command[1:-1]
        self._command = command.split(b"\0")[0]
        self._process: subprocess.Popen[bytes] | None = None
        self._pump: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the shell and forward what it prints."""
        if not self._command:
            self._finish()
            return
        try:
            self._process = process.start(
                [*self._host.shell, os.fsdecode(self._command)],
                cwd=self._host.directory,
                env=self._host.environment,
                stdin=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
        except HostError as error:
            self._echo(EchoLevel.FAIL, error.message)
            self._finish()
            return
        self._pump = self._link.spawn(self._forward(self._process))

    def packet(self, command: int, data: memoryview) -> None:
        """Nothing is expected: input goes to interactive shells only."""

    def stop(self) -> None:
        """TERM to ``sh``, to it alone, and no more output."""
        if self._pump is not None and self._pump is not asyncio.current_task():
            self._pump.cancel()
        if self._process is not None:
            running, self._process = self._process, None
            self._link.spawn(_reap(running, self._pump))

    async def _forward(self, running: subprocess.Popen[bytes]) -> None:
        assert running.stdout is not None
        descriptor = running.stdout.fileno()
        os.set_blocking(descriptor, False)
        while True:
            try:
                piece = os.read(descriptor, PIECE_BYTES)
            except BlockingIOError:
                await _readable(descriptor)
                continue
            if not piece:
                break
            self._send(Command.ECHO_RAW, piece)
            await self._link.drained()
        self._finish()


async def _reap(running: subprocess.Popen[bytes], pump: asyncio.Task[None] | None) -> None:
    """End ``sh`` politely and wait for it; not politely when the daemon ends before it."""
    try:
        if pump is not None:
            await asyncio.wait([pump])  # it still watches the pipe
        watch = os.pidfd_open(running.pid)  # before anything that may collect the process
        try:
            running.terminate()
            await _readable(watch)
        finally:
            os.close(watch)
    finally:
        for pipe in (running.stdin, running.stdout):
            if pipe:
                pipe.close()
        running.kill()
        running.wait()


async def _readable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(descriptor, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(descriptor)
