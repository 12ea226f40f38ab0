"""Jobs that run on a board, started by any controller, and the stored files that they use."""

import re
from dataclasses import dataclass

from labctl.board.agent import BoardAgent
from labctl.transport import Transport, remote_words, require

_TIMEOUT_SECONDS = 120.0
#: A job that ended no longer needs the files in its started.json. A job of unknown state counts as
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
    """Ask the agent for every job that has begun. Raises LinkError, BoardError."""
    script = _SCRIPT.format(workdir=remote_words(workdir), agent=remote_words(agent.path))
    answer = require(
        transport.run(script, timeout=_TIMEOUT_SECONDS), "cannot ask the board for running jobs"
    )
    lines = [line.strip() for line in answer.text.split("\n")]
    return Running(
        frozenset(line.removeprefix("running ") for line in lines if line.startswith("running ")),
        frozenset(line for line in lines if re.fullmatch(r"[0-9a-f]{64}", line)),
    )
