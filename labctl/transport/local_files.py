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
    """A regular file to be read. Raises ConfigError when it is none or cannot be read."""
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
    """A temporary file of this host with that content. Raises HostError."""
    with ExitStack() as held:
        with host_writes(Path(tempfile.gettempdir())):
            file = held.enter_context(tempfile.NamedTemporaryFile(prefix="labctl-"))
            file.write(raw)
            file.flush()
        yield Path(file.name)


@contextmanager
def new_file(path: Path) -> Iterator[BinaryIO]:
    """A file to write that does not exist yet, in a directory that is ours. Raises HostError."""
    with host_writes(path), path.open("xb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())
