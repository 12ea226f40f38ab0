"""Boards that an ``hdc`` program on this host knows of: over USB, UART or TCP."""

import re
import shutil
from dataclasses import dataclass

from labctl import process
from labctl.errors import HostError

#: Starting its server takes the program about a second; an unreachable one, 12 s.
_TIMEOUT_SECONDS = 20.0
#: hdc mixes debug lines into standard output: ``[W][2026-11-21 08:24:43] ...``.
_DEBUG_LINE = re.compile(r"\[[DIWF]\]\[\d{4}-")


@dataclass(frozen=True)
class AttachedBoard:
    """A line of ``hdc list targets -v``."""

    key: str
    connection: str  # USB, UART, TCP
    state: str  # Connected, Offline, Unauthorized, Unknown
    name: str


def attached_boards() -> list[AttachedBoard]:
    """The boards of the ``hdc`` found on PATH; none when there is no such program.

    Raises HostError when the program does not answer or says what is not understood: its exit
    status says nothing.
    """
    if shutil.which("hdc") is None:
        return []
    said = process.run(["hdc", "list", "targets", "-v"], timeout=_TIMEOUT_SECONDS)
    lines = [line.strip("\r") for line in said.text.split("\n")]
    boards = []
    for line in lines:
        if not line or line.startswith("[Empty]") or _DEBUG_LINE.match(line):
            continue
        # KEY, an empty column, connection, state, name, and since 3.2.0f "hdc"
        columns = line.split("\t")
        if len(columns) not in (5, 6):
            raise HostError(f"`hdc list targets -v` said: {line!r}", details=said.tail())
        key, _, connection, state, name = columns[:5]
        boards.append(AttachedBoard(key, connection, state, name))
    return boards
