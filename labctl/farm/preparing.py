"""Preparation of waiting jobs on a lab host: a job becomes claimable once its inputs are here.

The inputs are fetched, built and verified beside the running jobs: a few contents at once, the next
jobs' contents first. No board is used, so none idles through a download. A job whose inputs are
missing keeps its place, and lets other jobs pass.
"""

import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from labctl.errors import LabctlError, lack_of_host, passes_by_itself
from labctl.state.job import Job

#: Number of contents to prepare at once.
AT_ONCE = 2
#: A failed preparation is retried after this time (s).
_AGAIN_SECONDS = 15.0
#: Interval (s) between two looks for a missing input.
_LOOK_SECONDS = 15.0
#: Kind and SHA-256 of a job's content.
Content = tuple[str, str]
#: Name of each input -> returns True if it is here. Equal names are one input.
Inputs = Mapping[str, Callable[[], bool]]


@dataclass
class Preparing:
    """The inputs of waiting jobs, and which of them are here.

    Args:
        inputs: returns what a job needs on this host.
        prepare: brings these inputs here.
        note: gets lines for people.
        on_end: called when a preparation has ended.
    """

    inputs: Callable[[Job], Inputs]
    prepare: Callable[[Job], None]
    note: Callable[[str], None]
    on_end: Callable[[], None]
    #: Waiting content -> its inputs.
    _needs: dict[Content, Inputs] = field(default_factory=dict)
    #: Inputs that were found or brought here. If one is gone later, an attempt notices it.
    _here: set[str] = field(default_factory=set)
    #: Input -> time of the last look that did not find it, by the monotonic clock.
    _missing: dict[str, float] = field(default_factory=dict)
    #: Contents that cannot be prepared: their attempts report why.
    _wrong: set[Content] = field(default_factory=set)
    #: Content under preparation -> its missing inputs.
    _running: dict[Content, set[str]] = field(default_factory=dict)
    #: Content -> time of its retry.
    _again: dict[Content, float] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def unready(self, jobs: Mapping[Content, Job]) -> set[Content]:
        """Return the contents that lack an input; ``jobs``: all waiting contents, each with a job.

        Each input is looked for once: jobs that lack the same input become ready together, in
        order.
        """
        known = self._needs
        self._needs = {
            content: known[content] if content in known else self.inputs(job)
            for content, job in jobs.items()
        }
        with self._lock:
            here, wrong = set(self._here), set(self._wrong)
            for content in self._again.keys() - jobs.keys():
                del self._again[content]
        now = time.monotonic()
        for needs in self._needs.values():
            for name in needs.keys() - here:
                if now - self._missing.get(name, -math.inf) < _LOOK_SECONDS:
                    continue
                if needs[name]():
                    here.add(name)
                else:
                    self._missing[name] = now
        with self._lock:
            self._here |= here
        return {
            one
            for one, needs in self._needs.items()
            if not needs.keys() <= here and one not in wrong
        }

    def begin(self, jobs: Iterable[tuple[Content, Job]]) -> None:
        """Prepare the first of these unready contents, in threads of their own."""
        for content, job in jobs:
            with self._lock:
                missing = self._needs[content].keys() - self._here
                is_due = time.monotonic() >= self._again.get(content, 0.0)
                is_known = any(missing & others for others in self._running.values())
                is_over = not missing or content in self._wrong
                if is_known or is_over or not is_due or len(self._running) >= AT_ONCE:
                    continue
                self._running[content] = missing
            # Fetched inputs stay, so nothing waits for this thread when the worker ends.
            work = threading.Thread(
                target=self._work, args=(content, job), name=f"inputs of {job.id}", daemon=True
            )
            work.start()

    @property
    def is_busy(self) -> bool:
        """True while a preparation is running or will be retried."""
        with self._lock:
            return bool(self._running or self._again)

    def _work(self, content: Content, job: Job) -> None:
        again, is_brought = False, False
        try:
            self.prepare(job)
            is_brought = True
        except LabctlError as error:
            again = lack_of_host(error) is not None and passes_by_itself(error)
            if again:
                self.note(f"the inputs of job {job.id} ({job.name}) are missing: {error.message}")
        finally:
            with self._lock:
                missing = self._running.pop(content)
                self._again.pop(content, None)
                if again:
                    self._again[content] = time.monotonic() + _AGAIN_SECONDS
                elif is_brought:
                    self._here |= missing
                else:
                    self._wrong.add(content)
            self.on_end()
