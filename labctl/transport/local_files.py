"""Files of this host at the ends of a transfer."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO

from labctl.errors import ConfigError
from labctl.files import appearing, host_writes

__all__ = ["appearing", "new_file", "open_source", "set_aside"]


@contextmanager
def open_source(path: Path) -> Iterator[BinaryIO]:
    """Open a regular file for reading. Raises ConfigError if it is not one or cannot be read."""
    try:
        if not path.is_file():
            raise ConfigError(f"not a file on this host: {path}")
        file = path.open("rb", buffering=0)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    with file:
        yield file


@contextmanager
def set_aside(raw: bytes) -> Iterator[Path]:
    """Create a temporary file of this host with that content. Raises HostError."""
    with ExitStack() as held:
        with host_writes(Path(tempfile.gettempdir())):
            file = held.enter_context(tempfile.NamedTemporaryFile(prefix="labctl-"))
            file.write(raw)
            file.flush()
        yield Path(file.name)


@contextmanager
def new_file(path: Path) -> Iterator[BinaryIO]:
    """Create a file for writing, in a directory of this process. Raises HostError."""
    with host_writes(path), path.open("xb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())
