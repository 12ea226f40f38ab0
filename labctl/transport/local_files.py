"""Files of this host at the ends of a transfer."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from labctl.errors import ConfigError
from labctl.files import host_writes, sync_directory


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


@contextmanager
def appearing(path: Path) -> Iterator[BinaryIO]:
    """A file to write that takes its name ``path`` only if the block ends without an error.

    Its directory is made. Raises HostError when this host cannot write.
    """
    with host_writes(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        temporary = Path(name)
        try:
            with os.fdopen(descriptor, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            temporary.chmod(0o644)
            temporary.replace(path)
        except BaseException:
            with suppress(FileNotFoundError):
                temporary.unlink()
            raise
        sync_directory(path.parent)
