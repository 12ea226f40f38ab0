"""The file of a journal: records, a line each, every one on disk before it is acted on."""

from pathlib import Path
from typing import Generic, TypeVar

from labctl.errors import ConfigError
from labctl.files import append_line, write_atomic
from labctl.records import read_record
from labctl.records.base import FileRecord

E = TypeVar("E", bound=FileRecord)


class JournalLines(Generic[E]):
    """The lines of a journal. ``entries`` are all that it has, oldest first."""

    def __init__(self, path: Path, model: type[E]):
        self._path = path
        self._model = model
        #: What was read without a torn last line; None: nothing is torn.
        self._whole: bytes | None = None
        self.entries = self._read()

    def add(self, entry: E) -> None:
        """Add a line durably. Raises HostError."""
        if self._whole is not None:
            # Only who goes on with the journal mends it: others may look while a line is written.
            write_atomic(self._path, self._whole)
            self._whole = None
        append_line(self._path, entry.model_dump_json(exclude_none=True))
        self.entries.append(entry)

    def _read(self) -> list[E]:
        """All lines. A power cut may tear the last one, which then was not acted on."""
        try:
            lines = self._path.read_bytes().splitlines(keepends=True)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise ConfigError(f"cannot read {self._path}: {error.strerror}") from error
        if lines and not lines[-1].endswith(b"\n"):
            lines.pop()
            self._whole = b"".join(lines)
        try:
            return [read_record(self._model, line, self._path) for line in lines]
        except ValueError as error:
            raise ConfigError(
                f"{self._path} is not a journal that this labctl knows",
                hint="the file is damaged",
            ) from error
