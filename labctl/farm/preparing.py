"""Preparation of waiting jobs on a lab host: a job becomes claimable once its inputs are here.

They are fetched, built in and verified beside the running jobs, for a few contents at once, those
of the next jobs first. No board is used, so none idles through a download. A job whose inputs are
missing keeps its place, and lets others pass.
"""

import math
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from labctl.errors import LabctlError, lack_of_host, passes_by_itself
from labctl.state import Job

#: Number of contents to prepare at once.
AT_ONCE = 2
#: A preparation that failed is tried again after this time (s).
_AGAIN_SECONDS = 15.0
#: Kind and SHA-256 of a job's content.
Content = tuple[str, str]


@dataclass
class Preparing:
    """The contents of waiting jobs, and how far they are here.

    Args:
        is_prepared: returns True if this host has all that a job needs.
        prepare: brings it here.
        note: gets lines for people.
        on_end: called when a preparation has ended.
    """

    is_prepared: Callable[[Job], bool]
    prepare: Callable[[Job], None]
    note: Callable[[str], None]
    on_end: Callable[[], None]
    #: Contents of which nothing more is to be prepared: an attempt finds what is still missing.
    _ready: set[Content] = field(default_factory=set)
    _running: set[Content] = field(default_factory=set)
    #: Content -> when it was last found to be missing, by the monotonic clock.
    _missing: dict[Content, float] = field(default_factory=dict)
    #: Content -> when it is tried again.
    _again: dict[Content, float] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def unready(self, jobs: Iterable[tuple[Content, Job]]) -> set[Content]:
        """Return which contents, each with a job that has it, have to be prepared first."""
        found, now = set(), time.monotonic()
        for content, job in jobs:
            with self._lock:
                if content in self._ready:
                    continue
            is_new = now - self._missing.get(content, -math.inf) > _AGAIN_SECONDS
            if is_new and self.is_prepared(job):
                with self._lock:
                    self._ready.add(content)
                continue
            if is_new:
                self._missing[content] = now
            found.add(content)
        return found

    def begin(self, jobs: Iterable[tuple[Content, Job]]) -> None:
        """Prepare the first of these unready contents, in threads of their own."""
        for content, job in jobs:
            with self._lock:
                is_due = time.monotonic() >= self._again.get(content, 0.0)
                is_known = content in self._running or content in self._ready
                if is_known or not is_due or len(self._running) >= AT_ONCE:
                    continue
                self._running.add(content)
            # What it has fetched stays: nobody waits for it when the worker ends.
            work = threading.Thread(
                target=self._work, args=(content, job), name=f"inputs of {job.id}", daemon=True
            )
            work.start()

    @property
    def is_busy(self) -> bool:
        """True while something is prepared, or is to be tried again."""
        with self._lock:
            return bool(self._running or self._again)

    def _work(self, content: Content, job: Job) -> None:
        again: float | None = None
        try:
            self.prepare(job)
        except LabctlError as error:
            if lack_of_host(error) and passes_by_itself(error):
                again = time.monotonic() + _AGAIN_SECONDS
                self.note(f"the inputs of job {job.id} ({job.name}) are missing: {error.message}")
        finally:
            with self._lock:
                self._running.discard(content)
                if again is None:  # an error of another kind is the attempt's
                    self._ready.add(content)
                    self._again.pop(content, None)
                else:
                    self._again[content] = again
            self.on_end()
