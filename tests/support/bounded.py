"""A limit on what a reader may take of this host while it reads a stranger's file."""

import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def _data_bytes() -> int:
    """Writable memory of this process, as RLIMIT_DATA counts it."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmData:")[2].split()[0]) << 10


@contextmanager
def bounded(*, megabytes: int, cpu_seconds: float) -> Iterator[None]:
    """Let the block have so much more memory, and then check the processor time that it took.

    What takes more memory gets a MemoryError. The time is this process's own: a busy machine does
    not matter.
    """
    limits = resource.getrlimit(resource.RLIMIT_DATA)
    began = time.process_time()
    resource.setrlimit(resource.RLIMIT_DATA, (_data_bytes() + (megabytes << 20), limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, limits)
    took = time.process_time() - began
    assert took <= cpu_seconds, f"{took:.1f} s of processor time"
