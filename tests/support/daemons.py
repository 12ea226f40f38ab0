"""Daemons that answer from a thread of the test."""

import asyncio
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from labctl.hdc.daemon.board import Board
from labctl.hdc.daemon.daemon import Daemon


def board(directory: Path, **options: object) -> Board:
    """A board named as the recorded one."""
    environment = {"PATH": os.environ["PATH"], "PS1": "# "}
    return Board("vm", directory, environment=environment, **options)  # type: ignore[arg-type]


class Serving(NamedTuple):
    """Daemons that answer now, and the event loop that they are on."""

    addresses: list[str]
    loop: asyncio.AbstractEventLoop


@contextmanager
def daemons(*boards: Board) -> Iterator[Serving]:
    """One daemon a board, all on one event loop."""
    ready = threading.Event()
    addresses: list[str] = []
    stopped = asyncio.Event()

    async def serve() -> None:
        served = [Daemon(board) for board in boards]
        addresses.extend([f"127.0.0.1:{await one.start()}" for one in served])
        ready.set()
        await stopped.wait()
        for one in served:
            await one.stop()

    loop = asyncio.new_event_loop()

    def run() -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(serve())

    thread = threading.Thread(target=run)
    thread.start()
    assert ready.wait(30)
    try:
        yield Serving(addresses, loop)
    finally:
        loop.call_soon_threadsafe(stopped.set)
        thread.join()


@contextmanager
def daemon(directory: Path, **options: object) -> Iterator[str]:
    """One daemon; its address."""
    with daemons(board(directory, **options)) as serving:
        yield serving.addresses[0]
