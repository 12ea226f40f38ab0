"""A virtual board's own log of its changes, independent of labctl.

One JSON object per line: ``ns`` (monotonic), ``board``, ``what``, and

    began, ended      an operation of a host: ``operation``, ``connection``, ``kind``, ``epoch``,
                      ``text`` of the command, or path of the file sent
    created, written, changed, moved away, moved here, removed
                      a ``path`` below the workdir; ``by``: connection and epoch of all possible
                      authors; ``fenced``, if one of them named its epoch
    lease             the epoch on the board from now on
    started           a program: the ``path`` of its job, its ``epoch``
    reboot            ``by`` as above

Files are reported in the kernel's order; all changes of an operation come before its end. Possible
authors are the job or transfer that owns the file, and every running operation that names an epoch
in its command or in the path sent. Without these, all running operations are possible authors, with
the last epoch named on their connection. The content that a new directory has when first seen
counts as created.
"""

import asyncio
import json
import os
import re
import time
from dataclasses import dataclass
from pathlib import Path

from labctl.daemon.hooks import Interference, Line, Storage, Wire
from labctl.errors import HostError
from labctl.hdc.messages import Buffer
from labctl.virtual.inotify import Change, FolderWatch
from labctl.virtual.packets import PACKETS

_EPOCH = re.compile(r"--epoch '?(\d+)|/incoming/(\d+)(?:/|$)")
#: Path that an agent's command changes even after the command has ended.
_CLAIM = re.compile(r"(?:run --dir|receive --file|--target) ('[^']*'|\S+)")
_MOST_TEXT = 4000


@dataclass(frozen=True)
class Actor:
    """A possible author of a change."""

    connection: int
    epoch: int | None


@dataclass(frozen=True)
class _Operation:
    actor: Actor
    is_fenced: bool


class EffectsLog(Interference):
    """Logs the operations of all hosts, and the changes below the workdir during them.

    Use it on the board's event loop only. ``inner`` also observes each connection.
    """

    def __init__(self, board: str, workdir: Path, file: Path, inner: Interference):
        self._board = board
        self._workdir = workdir
        self._inner = inner
        self._under_way: dict[int, _Operation] = {}
        self._claims: dict[str, Actor] = {}
        self._last: dict[str, object] = {}
        self._connections = self._operations = 0
        self._file = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._watch = FolderWatch(workdir)
        self.failure: HostError | None = None
        asyncio.get_running_loop().add_reader(self._watch.descriptor, self.look)

    def close(self) -> None:
        """Write the remaining entries and stop. Idempotent."""
        if self._file < 0:
            return
        self.look()
        asyncio.get_running_loop().remove_reader(self._watch.descriptor)
        self._watch.close()
        os.close(self._file)
        self._file = -1

    def wire(self, line: Line) -> Wire:
        """Return the observer of a new connection."""
        self._connections += 1
        return _LoggedWire(line, self._inner.wire(line), self, self._connections)

    def begin(self, connection: int, kind: str, text: str, last: int | None) -> tuple[int, Actor]:
        """Note an operation; ``last`` is the epoch of its connection so far."""
        self.look()
        found = _EPOCH.search(text)
        actor = Actor(connection, int(found[1] or found[2]) if found else last)
        self._operations += 1
        self._under_way[self._operations] = _Operation(actor, bool(found))
        for path in _CLAIM.findall(text) if found else ():
            if path.strip("'").startswith(prefix := f"{self._workdir}/"):
                self._claims[path.strip("'").removeprefix(prefix)] = actor
        self._write(
            "began",
            operation=self._operations,
            connection=connection,
            kind=kind,
            epoch=int(found[1] or found[2]) if found else None,
            text=text[:_MOST_TEXT],
        )
        if kind == "reboot":
            self._write("reboot", by=[vars(actor)])
        return self._operations, actor

    def end(self, operation: int) -> None:
        """Note the end of an operation."""
        self.look()
        if self._under_way.pop(operation, None) is not None:
            self._write("ended", operation=operation)

    def look(self) -> None:
        """Log the changes since the last call."""
        if self._file < 0 or self.failure:
            return
        try:
            for change in self._watch.changes():
                self._changed(change)
        except HostError as error:
            self.failure = error
            self._write("failed", text=error.message)

    def _changed(self, change: Change) -> None:
        path = change.path
        owners = [
            actor
            for claimed, actor in self._claims.items()
            if path.startswith((f"{claimed}/", f"{claimed}.")) or path == claimed
        ]
        fenced = {*owners, *(one.actor for one in self._under_way.values() if one.is_fenced)}
        who = fenced or {one.actor for one in self._under_way.values()}
        by = sorted((vars(actor) for actor in who), key=str)
        self._write(change.what, path=path, by=by, fenced=bool(fenced))
        if change.what not in ("moved here", "created"):
            return
        if path == "lease":
            self._write("lease", epoch=_epoch_in(self._workdir / path))
        elif path.endswith("/started.json"):
            folder = path.rpartition("/")[0]
            self._write("started", path=folder, epoch=_epoch_in(self._workdir / path))

    def _write(self, what: str, **facts: object) -> None:
        if (entry := {"what": what, **facts}) == self._last:
            return  # a file written in pieces
        self._last = entry
        line = {"ns": time.monotonic_ns(), "board": self._board, **entry}
        os.write(self._file, json.dumps(line).encode() + b"\n")


class _LoggedWire(Wire):
    """Logs the operations of one connection."""

    def __init__(self, line: Line, inner: Wire, log: EffectsLog, connection: int):
        super().__init__(line)
        self._inner = inner
        self._packets = PACKETS[line.protocol]
        self._log = log
        self._connection = connection
        self._epoch: int | None = None
        self._operations: dict[int, int] = {}

    def incoming(self, channel: int, command: int, data: memoryview) -> None:
        if channel not in self._operations and (begun := self._packets.begun_by(command, data)):
            kind, text = begun
            if kind != "handshake":
                number, actor = self._log.begin(self._connection, kind, text, self._epoch)
                self._operations[channel], self._epoch = number, actor.epoch
        self._inner.incoming(channel, command, data)
        if command == self._packets.end:
            self._end(channel)

    def outgoing(self, channel: int, command: int, *data: Buffer) -> None:
        if command == self._packets.end:
            self._end(channel)
        self._inner.outgoing(channel, command, *data)

    def storage(self, channel: int) -> Storage:
        return self._inner.storage(channel)

    async def drained(self) -> None:
        await self._inner.drained()

    def lost(self) -> None:
        self._inner.lost()
        for channel in list(self._operations):
            self._end(channel)

    def _end(self, channel: int) -> None:
        if (number := self._operations.pop(channel, None)) is not None:
            self._log.end(number)


def _epoch_in(path: Path) -> int | None:
    """Return the epoch in a file just written; None if the file is gone or names no epoch."""
    try:
        epoch = json.loads(path.read_text(encoding="utf-8"))["epoch"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return epoch if isinstance(epoch, int) else None
