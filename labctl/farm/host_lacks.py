"""Things missing on a host for jobs: the host leaves those jobs to other hosts until then."""

import shutil
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from labctl.farm.job import JobResult

#: This host retries a job that lacks something here after this time (s). Other jobs of the same
#: board may lack it too: they are retried after a pause. All are retried when something was built
#: here, or when the missing program appears.
_JOB_SECONDS = 600.0
_BOARD_SECONDS = 60.0


@dataclass(frozen=True)
class _Lack:
    """An attempt that found something missing on this host."""

    #: Time of the retry in any case, by the monotonic clock.
    until: float
    #: Builds on this host when the attempt began.
    builds: object
    #: The missing program; None: it exists, or something else was missing.
    program: str | None

    def is_over(self, builds: object) -> bool:
        """Return True if another attempt is due."""
        is_here = self.program is not None and shutil.which(self.program) is not None
        return is_here or builds != self.builds or time.monotonic() >= self.until


class HostLacks:
    """Things missing on a host. ``builds`` returns a value that changes with each build there."""

    def __init__(self, builds: Callable[[], object]):
        self.builds = builds
        #: Job -> what was missing here.
        self._of_jobs: dict[str, _Lack] = {}
        #: Board -> what its last job lacked here.
        self._of_boards: dict[str, _Lack] = {}

    def note(self, job: str, board: str, result: JobResult, builds: object) -> None:
        """Record that something was missing for an attempt; ``builds``: the value at its start."""
        name, now = result.lacks_program, time.monotonic()
        # The program exists: something else is missing, such as its interpreter.
        program = None if name is None or shutil.which(name) else name
        self._of_jobs[job] = _Lack(now + _JOB_SECONDS, builds, program)
        self._of_boards[board] = _Lack(now + _BOARD_SECONDS, builds, program)

    def jobs(self, names: Iterable[str]) -> set[str]:
        """Return which of these jobs are left to other hosts."""
        return self._still(self._of_jobs, names)

    @property
    def left(self) -> set[str]:
        """All jobs that are left to other hosts."""
        return self._still(self._of_jobs, [*self._of_jobs])

    def pauses(self, board: str) -> bool:
        """Return True if this host tries no job of a board for now."""
        return bool(self._still(self._of_boards, [board]))

    def _still(self, lacks: Mapping[str, _Lack], names: Iterable[str]) -> set[str]:
        known = {name: lacks[name] for name in names if name in lacks}
        builds = self.builds() if known else None
        return {name for name, one in known.items() if not one.is_over(builds)}
