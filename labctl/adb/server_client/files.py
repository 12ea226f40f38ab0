"""Files of a device by adb's service ``sync:``, which has neither hashes nor resumption."""

import errno
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import BinaryIO

from labctl.adb import sync
from labctl.adb.server_client.connection import Connection, shown
from labctl.adb.server_client.device import AdbDevice
from labctl.errors import (
    BoardError,
    BoardNoSpace,
    BoardPermission,
    ConfigError,
    tells_full_disk,
    tells_refusal,
)

#: DATA blocks that are read, hashed and sent together.
_BLOCKS = 16
_FILE_MODE = stat.S_IFREG | 0o644
_MAX_TEXT_BYTES = 64 << 10

Take = Callable[[memoryview], object]


@contextmanager
def opened_sync(link: AdbDevice, *, timeout: float) -> Iterator["Sync"]:
    """Open the file service for the context; ``timeout`` (s) limits each wait. Raises LinkError."""
    with link.opened("sync:", timeout=timeout) as connection:
        yield Sync(connection, link.features, timeout)


class Sync:
    """A conversation with the file service. After an error it cannot be used again."""

    def __init__(self, connection: Connection, features: frozenset[str], timeout: float):
        self._connection = connection
        self._features = features
        self._timeout = timeout

    def send(self, source: BinaryIO, remote: str, sent: Take) -> None:
        """Write a file of the device; call ``sent`` with each piece after sending it.

        Raises BoardError, BoardNoSpace, BoardPermission, LinkError, ConfigError.
        """
        path = _path(remote)
        # The device would create missing folders; its path ends in `/`, so that links are followed.
        self._require_folder(path.rpartition(b"/")[0] + b"/")
        if "sendrecv_v2" in self._features:
            options = sync.SEND_V2_OPTIONS.pack(sync.SEND_V2, _FILE_MODE, sync.SyncFlags.NONE)
            self._request(sync.SEND_V2, path, options)
        else:
            self._request(sync.SEND, b"%s,%d" % (path, _FILE_MODE))
        block = memoryview(bytearray(_BLOCKS * sync.MAX_DATA_BYTES))
        while count := source.readinto(block):  # type: ignore[attr-defined]
            parts: list[bytes | memoryview] = []
            for start in range(0, count, sync.MAX_DATA_BYTES):
                piece = block[start : min(start + sync.MAX_DATA_BYTES, count)]
                parts += (sync.HEAD.pack(sync.DATA, len(piece)), piece)
            self._connection.send(parts, timeout=self._timeout)
            sent(block[:count])
            if self._connection.has_more:
                break  # the device already refuses, and says why
        else:
            self._connection.send(
                [sync.HEAD.pack(sync.DONE, int(time.time()))], timeout=self._timeout
            )
        identity, size = self._head()
        if identity != sync.OKAY:
            raise self._failed(identity, size)

    def receive(self, remote: str, came: Take) -> None:
        """Read a file of the device; call ``came`` with each piece. Raises as :meth:`send`."""
        path = _path(remote)
        if "sendrecv_v2" in self._features:
            options = sync.RECEIVE_V2_OPTIONS.pack(sync.RECEIVE_V2, sync.SyncFlags.NONE)
            self._request(sync.RECEIVE_V2, path, options)
        else:
            self._request(sync.RECEIVE, path)
        while True:
            identity, size = self._head()
            if identity == sync.DONE:
                return
            if identity != sync.DATA or size > sync.MAX_DATA_BYTES:
                raise self._failed(identity, size)
            came(memoryview(self._connection.read(size, self._timeout)))

    def _require_folder(self, path: bytes) -> None:
        if "stat_v2" in self._features:
            self._request(sync.STAT_V2, path)
            found = sync.FileStat.decode(self._connection.read(sync.STAT_V2_BYTES, self._timeout))
            error, mode = found.error, found.mode
        else:
            self._request(sync.STAT, path)
            answer = self._connection.read(sync.STAT_ANSWER.size, self._timeout)
            mode = sync.STAT_ANSWER.unpack(answer)[1]
            error = 0 if mode else errno.ENOENT
        if not error and not stat.S_ISDIR(mode):
            error = errno.ENOTDIR
        if error:
            raise _board_error(f"{os.strerror(error)}, path:{shown(path)}")

    def _request(self, identity: bytes, path: bytes, options: bytes = b"") -> None:
        head = sync.HEAD.pack(identity, len(path))
        self._connection.send([head, path, options], timeout=self._timeout)

    def _head(self) -> tuple[bytes, int]:
        identity, size = sync.HEAD.unpack(self._connection.read(sync.HEAD.size, self._timeout))
        return identity, size

    def _failed(self, identity: bytes, size: int) -> Exception:
        """Return the device's reason, or the error for an answer that is not allowed here."""
        if identity != sync.FAIL or size > _MAX_TEXT_BYTES:
            return self._connection.odd(sync.HEAD.pack(identity, size))
        return _board_error(shown(self._connection.read(size, self._timeout)))


def _path(remote: str) -> bytes:
    path = os.fsencode(remote)
    if len(path) > sync.MAX_PATH_BYTES:
        raise ConfigError(f"adb takes paths of at most {sync.MAX_PATH_BYTES} bytes: {remote}")
    return path


def _board_error(text: str) -> BoardError:
    if tells_full_disk(text):
        return BoardNoSpace(f"the board's storage is full: {text}")
    if tells_refusal(text):
        return BoardPermission(f"the board refuses access: {text}")
    return BoardError(f"the board answers: {text.lower()}")
