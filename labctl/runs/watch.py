"""``labctl watch``: watch a run that another process drives, from its directory only."""

from collections.abc import Callable, Iterator
from pathlib import Path

from labctl import interrupts
from labctl.errors import ConfigError, ExitStatus
from labctl.records.events import AnyEvent, Contact, End, Evaluation, LoadTest
from labctl.runs.record.directory import RUN, RunDirectory, all_directories
from labctl.runs.record.event_log import EVENTS, EventReader, follow
from labctl.runs.record.lookup import find_directory
from labctl.runs.runner import Outcome


def find_watched(runs: Path, name: str | None) -> RunDirectory:
    """Return the run of a name; for None the newest run with a controller, else the newest.

    Raises ConfigError if there is no such run, or it has no events.
    """
    if name is None:
        driven = [directory for directory in all_directories(runs) if directory.is_held()]
        directory = driven[-1] if driven else find_directory(runs, "latest")
    else:
        directory = find_directory(runs, name)
    if not (directory.path / EVENTS).is_file():
        raise ConfigError(
            f"run {directory.path.name} has no {EVENTS}",
            hint=_why_no_events(directory),
        )
    return directory


def _why_no_events(directory: RunDirectory) -> str:
    if directory.is_planned:
        return (
            "an older labctl made it, or its events could not be written;"
            f" `labctl report {directory.path.name}` shows its results"
        )
    if directory.is_held():
        return "it is just starting: try again in a few seconds"
    return "it ended before the first one; `labctl run` makes a new one"


class Watch:
    """One watch of a run, from its first event until no controller drives it."""

    def __init__(
        self, directory: RunDirectory, *, wait: Callable[[float], None] = interrupts.sleep
    ):
        self._directory = directory
        self._wait = wait
        self._reader = EventReader(directory.path / EVENTS)
        self._last: AnyEvent | None = None
        self._contact: Contact | Evaluation | LoadTest | None = None

    def events(self) -> Iterator[AnyEvent | None]:
        """Yield all events, old and new; None for each look without a new event.

        Raises NewerRecord.
        """
        for event in follow(self._directory.path, self._reader, wait=self._wait):
            self._last = event or self._last
            if isinstance(event, Contact | Evaluation | LoadTest):
                self._contact = event
            yield event

    @property
    def last(self) -> AnyEvent | None:
        """The last read event."""
        return self._last

    @property
    def damaged(self) -> int:
        """Number of lines that were not events, for example after a power cut or a full disk."""
        return self._reader.damaged

    def end(self) -> End | None:
        """Return how the controller left the run; None if it died. Raises ConfigError.

        If the events ended before the run, as on a full disk, uses ``end.json``. Ignores the end of
        an earlier controller that a killed later controller had no time to remove.
        """
        logged = self._last if isinstance(self._last, End) else None
        end = self._directory.end()
        begun = logged or self._contact
        if end is None or (begun and end.finished < begun.utc):
            return logged
        if end.state == "finished" and not (self._directory.path / RUN).is_file():
            missed = any(gate.passed is False for gate in end.gates)
            status = ExitStatus.JOB if missed else ExitStatus.OK
        elif end.state == "finished":
            run, trials = self._directory.run(), tuple(self._directory.trials())
            status = Outcome(self._directory, run, trials, end.gates).exit_status
        elif end.state == "interrupted":
            status = ExitStatus.INTERRUPTED
        else:
            status = ExitStatus.INFRA
        return End(utc=end.finished, state=end.state, exit_status=status, failure=end.failure)
