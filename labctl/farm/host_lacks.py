"""Things that a host lacked for jobs: it leaves those to other hosts until it has them."""

import shutil
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from labctl.farm.job import JobResult

#: A job that needs what this host lacks is tried again from here after this, other jobs of the same
#: board after a pause: they may lack it too. All of them are once something was built here, or the
#: program that was not found is.
_JOB_SECONDS = 600.0
_BOARD_SECONDS = 60.0


@dataclass(frozen=True)
class _Lack:
    """An attempt that lacked something of this host."""

    #: By the monotonic clock; it is tried again then in any case.
    until: float
    #: What was built here when the attempt began.
    builds: object
    #: The program that was not found; None: it is here, or that was no program.
    program: str | None

    def is_over(self, builds: object) -> bool:
        """Tell whether another attempt is due."""
        is_here = self.program is not None and shutil.which(self.program) is not None
        return is_here or builds != self.builds or time.monotonic() >= self.until


class HostLacks:
    """The lacks of a host. ``builds`` returns what changes when something was built on it."""

    def __init__(self, builds: Callable[[], object]):
        self.builds = builds
        #: Job -> what it lacked here.
        self._of_jobs: dict[str, _Lack] = {}
        #: Board -> what its last job lacked here.
        self._of_boards: dict[str, _Lack] = {}

    def note(self, job: str, board: str, result: JobResult, builds: object) -> None:
        """Keep that an attempt lacked something; ``builds`` are those when it began."""
        name, now = result.lacks_program, time.monotonic()
        # Of a program that is here, something else is missing, such as its interpreter.
        program = None if name is None or shutil.which(name) else name
        self._of_jobs[job] = _Lack(now + _JOB_SECONDS, builds, program)
        self._of_boards[board] = _Lack(now + _BOARD_SECONDS, builds, program)

    def jobs(self, names: Iterable[str]) -> set[str]:
        """Return which of these jobs are left to other hosts."""
        return self._still(self._of_jobs, names)

    def pauses(self, board: str) -> bool:
        """Tell whether no job of a board is tried for now."""
        return bool(self._still(self._of_boards, [board]))

    def _still(self, lacks: Mapping[str, _Lack], names: Iterable[str]) -> set[str]:
        known = {name: lacks[name] for name in names if name in lacks}
        builds = self.builds() if known else None
        return {name for name, one in known.items() if not one.is_over(builds)}
