"""Shells and commands on a phone: ``shell:`` with and without frames, and ``exec:``."""

import asyncio
import fcntl
import os
import re
import struct
import subprocess
import termios
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import IO

from labctl import process
from labctl.adb.daemon.phone import Phone
from labctl.adb.daemon.stream import Stream, StreamClosed
from labctl.adb.shell_frames import Frame, FrameId, FrameReader, encode_frame
from labctl.daemon.programs import TAKE_TERMINAL, readable, reap, writable

_PIECE_BYTES = 32 << 10
#: Time for a shell whose terminal is gone (s).
_GRACE_SECONDS = 2.0
_WINDOW_SIZE = re.compile(rb"(\d{1,5})x(\d{1,5}),(\d{1,5})x(\d{1,5})\0?")
_RUN_ON_TERMINAL = TAKE_TERMINAL.replace('exec "$0"', 'exec "$0" -c "$2"')


async def serve_shell(stream: Stream, phone: Phone, kind: str, command: bytes) -> None:
    """Run a command, or a shell for input, until its output ends.

    ``kind`` is ``shell`` or ``exec``, with options after commas. In frames (``v2``) both streams
    stay apart and the exit status follows; without, they are mixed and no status is told. If the
    host closes the stream, a command goes on without its pipes, and a terminal hangs up.
    Raises HostError, OSError, StreamClosed.
    """
    name, *options = kind.split(",")
    is_framed = name == "shell" and "v2" in options
    term = next((word[5:] for word in options if word.startswith("TERM=")), "dumb")
    environment = {**phone.environment, "TERM": term}
    start = _start_raw
    if "pty" in options or not (command or "raw" in options):
        start = _start_on_terminal
    running = start(phone, command, environment, is_framed)
    stream.accept()
    await running.serve(stream, is_framed=is_framed)


class _Running:
    """A started program and its pipes, or the terminal that stands for all of them."""

    def __init__(
        self,
        program: subprocess.Popen[bytes],
        stdin: IO[bytes],
        outputs: Sequence[tuple[FrameId, IO[bytes]]],
        grace: float | None,
    ):
        self._program = program
        self._stdin = stdin
        self._outputs = outputs
        self._grace = grace
        for _, pipe in outputs:
            os.set_blocking(pipe.fileno(), False)
        os.set_blocking(stdin.fileno(), False)

    async def serve(self, stream: Stream, *, is_framed: bool) -> None:
        """Carry input and output; tell the exit status if all output is sent."""
        frame: Callable[[FrameId, bytes], bytes]
        frame = encode_frame if is_framed else lambda _, data: data
        spawn = stream.carrier.spawn
        pumps = [
            spawn(_show(stream, pipe.fileno(), partial(frame, kind)))
            for kind, pipe in self._outputs
        ]
        typing = spawn(self._take(stream, FrameReader() if is_framed else None))
        watch = os.pidfd_open(self._program.pid)
        try:
            shown = asyncio.ensure_future(asyncio.wait(pumps))
            await asyncio.wait([shown, typing], return_when=asyncio.FIRST_COMPLETED)
            if shown.done() and not typing.done():
                await readable(watch)
                if is_framed:
                    status = self._program.wait()
                    code = status if status >= 0 else 128 - status
                    await stream.write(encode_frame(FrameId.EXIT, bytes([code])))
        finally:
            os.close(watch)
            tasks = [*pumps, typing]
            for task in tasks:
                task.cancel()
            spawn(self._reap(tasks))

    async def _reap(self, tasks: "Sequence[asyncio.Task[None]]") -> None:
        try:
            if self._program.returncode is None:
                await reap(self._program, tasks, [], self._close, self._grace)
            else:
                await asyncio.wait(tasks)
        finally:
            self._close()

    def _close(self) -> None:
        for pipe in (self._stdin, *(pipe for _, pipe in self._outputs)):
            with suppress(OSError):  # input that the program did not take
                pipe.close()

    async def _take(self, stream: Stream, frames: FrameReader | None) -> None:
        """Handle what the host sends, until it closes the stream."""
        while data := await stream.read():
            if frames is None:
                await self._type(data)
                continue
            for frame in frames.feed(data):
                await self._handle(frame)
        if self._is_raw:
            self._end_input()

    async def _handle(self, frame: Frame) -> None:
        if frame.id == FrameId.STDIN:
            await self._type(frame.data)
        elif frame.id == FrameId.CLOSE_STDIN and self._is_raw:
            self._end_input()
        elif frame.id == FrameId.WINDOW_SIZE and not self._is_raw:
            found = _WINDOW_SIZE.fullmatch(frame.data)
            if found and not self._stdin.closed:
                size = struct.pack("4H", *(min(int(number), 0xFFFF) for number in found.groups()))
                fcntl.ioctl(self._stdin.fileno(), termios.TIOCSWINSZ, size)

    @property
    def _is_raw(self) -> bool:
        return self._stdin is not self._outputs[0][1]

    def _end_input(self) -> None:
        with suppress(OSError):
            self._stdin.close()

    async def _type(self, data: bytes) -> None:
        while data and not self._stdin.closed:
            try:
                data = data[os.write(self._stdin.fileno(), data) :]
            except BlockingIOError:
                await writable(self._stdin.fileno())
            except OSError:  # the program takes no more
                return


async def _show(stream: Stream, descriptor: int, frame: Callable[[bytes], bytes]) -> None:
    """Send what a program writes, until it ends or the host closes the stream."""
    while True:
        try:
            piece = os.read(descriptor, _PIECE_BYTES)
        except BlockingIOError:
            await readable(descriptor)
            continue
        except OSError:  # EIO: the terminal's other end is closed everywhere
            return
        if not piece:
            return
        try:
            await stream.write(frame(piece))
        except StreamClosed:
            return


def _start_raw(
    phone: Phone, command: bytes, environment: Mapping[str, str], is_framed: bool
) -> _Running:
    program = process.start(
        [*phone.shell, os.fsdecode(command)] if command else phone.shell[:1],
        cwd=phone.directory,
        env=environment,
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE if is_framed else subprocess.STDOUT,
    )
    assert program.stdin is not None
    assert program.stdout is not None
    outputs = [(FrameId.STDOUT, program.stdout)]
    if program.stderr is not None:
        outputs.append((FrameId.STDERR, program.stderr))
    return _Running(program, program.stdin, outputs, None)


def _start_on_terminal(
    phone: Phone,
    command: bytes,
    environment: Mapping[str, str],
    is_framed: bool,  # noqa: ARG001 - a terminal has one output
) -> _Running:
    ours, theirs = os.openpty()
    terminal = os.fdopen(ours, "r+b", buffering=0)
    script = _RUN_ON_TERMINAL if command else TAKE_TERMINAL
    words = [*phone.shell, script, phone.shell[0], os.ttyname(theirs), os.fsdecode(command)]
    try:
        program = process.start(
            words,
            cwd=phone.directory,
            env=environment,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
        )
    except BaseException:
        terminal.close()
        raise
    finally:
        os.close(theirs)
    return _Running(program, terminal, [(FrameId.STDOUT, terminal)], _GRACE_SECONDS)
