"""Jobs running on a board, started by any controller, and the stored files that they use.

The agent finds and ends processes that survived their job's supervisor; this module names them.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from labctl.board.agent import BoardAgent
from labctl.board.job import Survivor
from labctl.config.lab import Board, LabFile
from labctl.errors import SurvivingProcess
from labctl.state.health import BY_PEOPLE, Health
from labctl.state.state import lab_state
from labctl.suggestions import listed
from labctl.transport.base import Transport, remote_words, require

_TIMEOUT_SECONDS = 120.0
#: A finished job no longer needs the files in its started.json. A job of unknown state counts as
#: running.
_SCRIPT = """\
cd {workdir} 2>/dev/null || exit 0
for job in jobs/*; do
  [ -f "$job/started.json" ] || continue
  case $({agent} wait --dir "$job" --seconds 0) in
    *'"state":"running"'*) ;;
    *'"state":"'*) continue;;
  esac
  printf '%s\\n' "running $job"
  grep -o '[0-9a-f]\\{{64\\}}' "$job/started.json"
done
:
"""


@dataclass(frozen=True)
class Running:
    """Folders of running jobs, relative to the workdir, and the SHA-256s in their commands."""

    jobs: frozenset[str]
    hashes: frozenset[str]


def running_jobs(transport: Transport, workdir: str, agent: BoardAgent) -> Running:
    """Ask the agent for all started jobs. Raises LinkError, BoardError."""
    script = _SCRIPT.format(workdir=remote_words(workdir), agent=remote_words(agent.path))
    answer = require(
        transport.run(script, timeout=_TIMEOUT_SECONDS), "cannot ask the board for running jobs"
    )
    lines = [line.strip() for line in answer.text.split("\n")]
    return Running(
        frozenset(line.removeprefix("running ") for line in lines if line.startswith("running ")),
        frozenset(line for line in lines if re.fullmatch(r"[0-9a-f]{64}", line)),
    )


class Survivors:
    """Survivors on one held board. ``note`` reports a line for users."""

    def __init__(self, lab: LabFile, board: Board):
        self._lab = lab
        self._board = board.name
        self.note: Callable[[str], None] = lambda _text: None
        #: One sentence each time that processes were ended.
        self.named: list[str] = []

    def name(self, ended: Sequence[Survivor]) -> None:
        """Record which processes were ended."""
        if ended:
            names = listed([str(one) for one in ended], joiner="and")
            self.named.append(f"processes of earlier jobs were ended on the board: {names}")
            self.note(f"note: {self.named[-1]}")

    @contextmanager
    def noticed(self) -> Iterator[None]:
        """Put the board aside if a process cannot be ended while the context is open."""
        try:
            yield
        except SurvivingProcess as error:
            self.put_board_aside(error)
            raise

    def put_board_aside(self, error: SurvivingProcess) -> None:
        """Keep other users' jobs off the board until a health check or a person allows them."""
        if not self._lab.path.is_file() or self._board not in self._lab.lab.boards:
            return
        healths = lab_state(self._lab).health
        evidence = healths.get(self._board).evidence  # keeps evidence about an untrusted recipe
        healths.set(
            self._board,
            Health.BAD,
            reason=error.message,
            by="labctl",
            evidence=evidence,
            unless=BY_PEOPLE,
        )
