"""A board's storage for file transfers, with faults."""

import errno
import os

from labctl.daemon.hooks import Storage
from labctl.hdc.messages import Buffer
from labctl.virtual.fault_script import Corrupt, Lie, NoSpace, PermissionDenied, ReadOnly, Truncate
from labctl.virtual.operation import Operation


class FaultyStorage(Storage):
    """The storage of one transfer, with its faults."""

    def __init__(self, operation: Operation):
        self._operation = operation

    def open(self, path: str, flags: int, mode: int = 0) -> int:
        """Open the file; a fault may refuse it or replace it."""
        writing = bool(flags & (os.O_WRONLY | os.O_RDWR))
        for match, _ in self._operation.all(PermissionDenied):
            match.apply()
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        for match, _ in self._operation.all(ReadOnly) if writing else ():
            match.apply()
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        for match, _ in self._operation.all(Lie) if writing else ():
            match.apply()
            return os.memfd_create("lie")  # an unnamed file that is lost
        return super().open(path, flags, mode)

    def size(self, descriptor: int) -> int:
        """Return the file's size; smaller if a fault drops the rest."""
        size = super().size(descriptor)
        for match, fault in self._operation.all(Truncate):
            if size > fault.after_bytes:
                match.apply()
                size = fault.after_bytes
        return size

    def read(self, descriptor: int, count: int, offset: int) -> bytes:
        """Read bytes; a fault may change one bit or return fewer bytes."""
        for match, fault in self._operation.all(Truncate):
            if super().size(descriptor) > fault.after_bytes:
                match.apply()
                count = min(count, max(fault.after_bytes - offset, 0))
        return self._corrupted(super().read(descriptor, count, offset), offset)

    def write(self, descriptor: int, data: Buffer, offset: int) -> int:
        """Write all bytes; a fault may write only a part, changed bytes, or nothing."""
        size = kept = len(data)
        for match, full in self._operation.all(NoSpace):
            room = full.after_bytes - offset
            if room <= 0 < size:
                match.apply()
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            size = kept = min(size, room)
        for match, lost in self._operation.all(Truncate):
            if offset + size > lost.after_bytes:
                match.apply()
                kept = min(kept, max(lost.after_bytes - offset, 0))
        body = memoryview(self._corrupted(bytes(data[:kept]), offset))
        while body:
            count = super().write(descriptor, body, offset)
            body, offset = body[count:], offset + count
        return size

    def _corrupted(self, data: bytes, offset: int) -> bytes:
        for match, fault in self._operation.all(Corrupt):
            index = fault.after_bytes - offset
            if 0 <= index < len(data):
                match.apply()
                bit = 1 << match.injected.random.randrange(8)
                data = data[:index] + bytes([data[index] ^ bit]) + data[index + 1 :]
        return data
