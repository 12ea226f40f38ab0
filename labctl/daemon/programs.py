"""Programs of a board's shell, as a daemon starts and ends them."""

import asyncio
import os
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import IO

#: A session gets a terminal when its leader opens it. Here the leader is a shell, which then
#: becomes the interactive shell.
TAKE_TERMINAL = 'exec "$0" 0<>"$1" 1>&0 2>&0'


async def reap(
    running: subprocess.Popen[bytes],
    pumps: Sequence[asyncio.Task[None]],
    pipes: Sequence[IO[bytes]],
    end: Callable[[], object],
    grace: float | None = None,
) -> None:
    """Call ``end`` to end ``sh``, and wait for it.

    ``sh`` is killed after ``grace`` seconds, or if the daemon ends first. ``pumps`` have been
    cancelled, but still watch the ``pipes``.
    """
    try:
        await asyncio.wait(pumps)
        watch = os.pidfd_open(running.pid)  # before any code that may reap the process
        try:
            end()
            with suppress(TimeoutError):
                async with asyncio.timeout(grace):
                    await readable(watch)
        finally:
            os.close(watch)
    finally:
        for pipe in pipes:
            pipe.close()
        running.kill()
        running.wait()


async def readable(descriptor: int) -> None:
    """Wait until the descriptor can be read, or the other end is closed."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(descriptor, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(descriptor)


async def writable(descriptor: int) -> None:
    """Wait until the descriptor can be written, or the other end is closed."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_writer(descriptor, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_writer(descriptor)
