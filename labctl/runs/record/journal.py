"""The journal of a run: every step is on disk before it happens, so a run survives any crash.

``plan.json`` holds the plan, ``journal.jsonl`` a line for each step, and ``record.json`` of each
trial the trial's end. A trial with a start and no end is *open*: its job may still run on the
board.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Generic, TypeVar

from labctl.board.lease import Lease
from labctl.errors import ConfigError, HostError, LabctlError, LinkError
from labctl.files import append_line, write_atomic
from labctl.folders import user_home
from labctl.records.base import FileRecord, read_record
from labctl.records.run import JournalEntry
from labctl.records.trial import Failure
from labctl.user import user_name

E = TypeVar("E", bound=FileRecord)


class JournalLines(Generic[E]):
    """The lines of a journal. ``entries`` are all its lines, oldest first."""

    def __init__(self, path: Path, model: type[E]):
        self._path = path
        self._model = model
        #: Content without a torn last line; None: nothing is torn.
        self._whole: bytes | None = None
        self.entries = self._read()

    def add(self, entry: E) -> None:
        """Add a line durably. Raises HostError."""
        if self._whole is not None:
            # Only the process that continues the journal repairs it: others may read during a
            # write.
            write_atomic(self._path, self._whole)
            self._whole = None
        append_line(self._path, entry.model_dump_json(exclude_none=True))
        self.entries.append(entry)

    def _read(self) -> list[E]:
        """Read all lines. A power cut may tear the last line; then its step did not happen."""
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


FILE_NAME = "journal.jsonl"


@dataclass(frozen=True)
class Attempt:
    """One attempt at a trial.

    ``directory`` is the job's name on the board. ``open``: an earlier controller began it, and the
    job may be there. ``failures`` ended earlier attempts.
    """

    number: int
    directory: str
    open: bool = False
    failures: tuple[Failure, ...] = ()


class Journal:
    """The journal in a run directory."""

    def __init__(self, directory: Path, run_id: str):
        self._path = directory / FILE_NAME
        self._run_id = run_id
        self._lines = JournalLines(self._path, JournalEntry)

    @property
    def _entries(self) -> list[JournalEntry]:
        return self._lines.entries

    def _note(self, entry: JournalEntry) -> None:
        self._lines.add(entry)

    @property
    def resumptions(self) -> int:
        """Number of times that the run was resumed."""
        return sum(entry.event == "resumed" for entry in self._entries)

    def resumed(self, board: str | None = None, *, max_time_again: bool = False) -> None:
        """Record that another controller continues the run, on this board; None: an evaluation."""
        again = max_time_again or None
        self._note(JournalEntry(event="resumed", board=board, max_time_again=again))

    def sessions(self, started: datetime) -> tuple[datetime, ...]:
        """Return the times at which controllers began or resumed a run, within its ``max_time``."""
        found = [started]
        for entry in self._entries:
            if entry.event == "resumed":
                found = [entry.utc] if entry.max_time_again else [*found, entry.utc]
        return tuple(found)

    @property
    def board(self) -> str | None:
        """The board of the last resume; None: it was not resumed."""
        boards = [entry.board for entry in self._entries if entry.event == "resumed"]
        return boards[-1] if boards else None

    def leased(self, lease: Lease) -> None:
        """Record the lease of the board and its user; a bundle leaves these names out."""
        lab = str(self._path.absolute().parents[2])
        home = str(user_home() or "") or None
        who = JournalEntry(event="lease", user=user_name(), home=home, lab=lab)
        self._note(who.model_copy(update={"lease": asdict(lease)}))

    @property
    def leases(self) -> list[JournalEntry]:
        """All leases that the run had, oldest first."""
        return [entry for entry in self._entries if entry.event == "lease"]

    @property
    def lease(self) -> Mapping[str, object] | None:
        """The last lease that the run had."""
        return self.leases[-1].lease if self.leases else None

    def holds(self, lease: Lease | None) -> bool:
        """Return True if a lease, as read from the board, is the run's last one."""
        return lease is not None and asdict(lease) == self.lease

    def attempt(self, number: int) -> Attempt:
        """Return the open attempt at a trial, or else the next attempt."""
        of_trial = [entry for entry in self._entries if entry.number == number]
        cuts = tuple(e.failure for e in of_trial if e.event == "cut" and e.failure)
        tried = len(cuts) + 1
        name = f"{self._run_id}-{number}" + (f"-{tried}" if tried > 1 else "")
        is_open = bool(of_trial) and of_trial[-1].event == "started"
        return Attempt(tried, name, is_open, cuts)

    def started(self, number: int, attempt: Attempt, boot_id: str) -> None:
        """Record that a job is about to be started."""
        self._note(
            JournalEntry(
                event="started",
                number=number,
                attempt=attempt.number,
                directory=attempt.directory,
                boot_id=boot_id,
            )
        )

    def cut(self, number: int, attempt: Attempt, error: Exception) -> None:
        """Record that an attempt ended without a result."""
        self._note(
            JournalEntry(
                event="cut", number=number, attempt=attempt.number, failure=Failure.of(error)
            )
        )


def stays_open(error: Exception) -> bool:
    """Return True if the job of an attempt with this error may still be good: only the link failed.

    True also for a bug in labctl: a fixed labctl can read the job again.
    """
    return isinstance(error, LinkError | HostError) or not isinstance(error, LabctlError)
