"""News of a lab for its webhooks, from its state: boards in quarantine, a stalled queue."""

from collections.abc import Sequence

from labctl.farm.webhooks import LabEvent
from labctl.state.events import EventKind
from labctl.state.health import NOT_LOOKED_THROUGH, Health
from labctl.state.job import Job
from labctl.state.state import LabState

#: A queue has stalled if jobs wait and nothing runs, starts or ends for this time (s).
STUCK_SECONDS = 1800.0
_MOST_EVENTS = 100
_KINDS: tuple[EventKind, ...] = ("health",)


class LabNews:
    """News since this object was made; each is reported once."""

    def __init__(self, state: LabState, *, stuck_seconds: float = STUCK_SECONDS):
        self._state = state
        self._stuck_seconds = stuck_seconds
        known = state.events.list(kinds=_KINDS, limit=1)
        self._last = known[-1].id if known else 0
        self._is_stuck = False

    def look(self) -> list[LabEvent]:
        """Return what is new since the last look. Raises HostError, ConfigError."""
        return [*self._quarantines(), *self._queue()]

    def _quarantines(self) -> list[LabEvent]:
        events = self._state.events.list(kinds=_KINDS, limit=_MOST_EVENTS)
        new = [event for event in events if event.id > self._last]
        if new:
            self._last = new[-1].id
        return [
            LabEvent(
                "board-quarantined",
                f"board {event.board} is in quarantine",
                event.reason or "",
                {"by": event.made_by},
                at=event.at,
            )
            for event in new
            # The board of a running untrusted recipe is inspected at its end: the result is news.
            if event.value == Health.BAD and event.reason != NOT_LOOKED_THROUGH
        ]

    def _queue(self) -> list[LabEvent]:
        rows = self._state.ask(f"SELECT {self._state.now}", {})
        jobs = self._state.jobs.list(ended=1)
        was = self._is_stuck
        self._is_stuck = bool(rows) and is_stuck(jobs, rows[0][0], self._stuck_seconds)
        if was or not self._is_stuck:
            return []
        waiting = [job for job in jobs if job.waits]
        oldest = min(waiting, key=lambda job: job.submitted_at)
        return [
            LabEvent(
                "queue-stuck",
                "the queue stands still",
                f"nothing has run for {self._stuck_seconds / 60:.0f} minutes while jobs wait",
                {"waiting jobs": str(len(waiting)), "oldest": f"{oldest.id} {oldest.name}"},
            )
        ]


def is_stuck(jobs: Sequence[Job], now: float, seconds: float) -> bool:
    """Return True if a queue has stalled for that time, by the clock of its jobs (s since 1970)."""
    waiting = [job.submitted_at for job in jobs if job.waits]
    if not waiting or any(job.state == "running" for job in jobs):
        return False
    ended = [job.ended_at for job in jobs if job.ended_at is not None]
    return now - max(min(waiting), *ended, 0.0) >= seconds
