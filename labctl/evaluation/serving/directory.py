"""The run directory of a load test: ``serving.json``, ``stages.jsonl`` and ``requests.jsonl``.

A thread writes requests shortly after their end, in the order of their ends, so that a slow disk
does not delay requests.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from functools import cached_property

from labctl.errors import ConfigError
from labctl.files import append_line, write_atomic
from labctl.records.base import FileRecord, RecordT, read_record
from labctl.records.serving import RequestRecord, ServingRecord, StageRecord
from labctl.runs.record.directory import RECIPE, SERVING, RunDirectory

STAGES = "stages.jsonl"
REQUESTS = "requests.jsonl"
_FLUSH_SECONDS = 1.0


class LoadTestDirectory(RunDirectory):
    """One load test on disk."""

    def open_test(self, record: ServingRecord, recipe: str | None) -> None:
        """Write ``serving.json``, which makes this a load test. ``recipe``: as written."""
        if recipe is not None:
            write_atomic(self.path / RECIPE, recipe)
        self.open(SERVING, record)

    def append(self, name: str, records: Sequence[FileRecord]) -> None:
        """Append records to a file, one per line. Raises HostError."""
        if records:
            append_line(self.path / name, "\n".join(one.model_dump_json() for one in records))

    @cached_property
    def stages(self) -> list[StageRecord]:
        """Return the finished stages in order. Raises ConfigError."""
        return self._lines(STAGES, StageRecord)

    @cached_property
    def requests(self) -> list[RequestRecord]:
        """Return the finished requests in the order of their ends. Raises ConfigError."""
        return self._lines(REQUESTS, RequestRecord)

    def _lines(self, name: str, kind: type[RecordT]) -> list[RecordT]:
        path = self.path / name
        try:
            lines = path.read_bytes().splitlines(keepends=True)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise ConfigError(f"cannot read {path}: {error.strerror}") from error
        if lines and not lines[-1].endswith(b"\n"):  # incomplete after a power cut
            lines.pop()
        found = []
        for number, line in enumerate(lines, 1):
            try:
                found.append(read_record(kind, line, path))
            except ValueError as error:
                raise ConfigError(f"{path}:{number}: not a {kind.__name__}: {error}") from error
        return found


class RequestLog:
    """Writes requests as they end; :meth:`open` is the context manager of one test."""

    def __init__(self, directory: LoadTestDirectory):
        self._directory = directory
        self._waiting: list[RequestRecord] = []

    def keep(self, row: RequestRecord) -> None:
        """Take a request; it is written about a second later."""
        self._waiting.append(row)

    def flush(self) -> None:
        """Write all requests taken so far. Raises HostError."""
        rows, self._waiting = self._waiting, []
        self._directory.append(REQUESTS, rows)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Write while the block runs; write the rest at its end. Raises HostError."""
        writer = asyncio.create_task(self._write())
        try:
            yield
        finally:
            writer.cancel()
            with suppress(asyncio.CancelledError):
                await writer
            self.flush()

    async def _write(self) -> None:
        while True:
            await asyncio.sleep(_FLUSH_SECONDS)
            writing = asyncio.to_thread(self.flush)
            await asyncio.shield(asyncio.ensure_future(writing))
