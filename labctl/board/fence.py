"""Every lasting change of a board: made by its agent, which checks the epoch in the same process.

The agent locks the lease, looks at its epoch, and becomes the shell that makes the change (``agent
guard``). A new lease is written under the same lock (``agent take``): once its epoch is on the
board, no change of an older one is under way there, and none begins.

Without an agent nothing is changed but below ``incoming/<epoch>``: that is where raw transfers go,
and nobody else looks there. The first agent publishes itself from it.

Not held by this: what a person types (``labctl shell``, ``labctl hdc``), and files in the board's
folder for temporary ones that a command makes and removes itself.
"""

import json
from dataclasses import dataclass

from labctl.board.agent_errors import refusal
from labctl.errors import LeaseLost
from labctl.transport import CommandResult, Transport, remote_words, require

LEASE_FILE = "lease"
INCOMING = "incoming"

_TIMEOUT_SECONDS = 60.0
#: Of the agent, that has ``guard`` and ``take``.
_FIRST_VERSION = 5
#: Statuses with which an agent says that it did not execute the program; see its ``failure.h``.
_REFUSALS = (2, 71, 75, 76)
#: For agents before version 5, which have no ``guard``: the same question, in the same shell, but
#: without a lock. What begins in the moment between is not kept out.
_UNLOCKED = """\
now=$(sed -n 's/.*"epoch": *\\([0-9][0-9]*\\).*/\\1/p' {lease} 2>/dev/null)
[ "${{now:-0}}" -le {epoch} ] || exit 75
"""


@dataclass
class Fence:
    """The agent that makes changes below a board's workdir, and the epoch under which it may.

    The epoch is that of the lease that is held; before that, the one that was seen on the board: 0
    for none. ``agent`` is its path on the board, None while there is none.
    """

    transport: Transport
    workdir: str
    agent: str | None = None
    epoch: int = 0
    #: The agent is older than version 5.
    is_old: bool = False

    @property
    def lease(self) -> str:
        """The lease's file on the board."""
        return f"{self.workdir}/{LEASE_FILE}"

    @property
    def incoming(self) -> str:
        """The folder on the board for raw transfers."""
        return f"{self.workdir}/{INCOMING}/{self.epoch}"

    @property
    def options(self) -> tuple[str, ...]:
        """Options by which the agent's commands check the epoch."""
        return ("--lease", self.lease, "--epoch", str(self.epoch))

    def guarded(self, script: str, *, agent: str | None = None, epoch: int | None = None) -> str:
        """Return the command that runs a script unless a newer epoch is on the board."""
        number = self.epoch if epoch is None else epoch
        if self.is_old:
            return _UNLOCKED.format(lease=remote_words(self.lease), epoch=number) + script
        program = agent or self.agent
        assert program is not None, "nothing is changed on a board before it has an agent"
        fence = ("--lease", self.lease, "--epoch", str(number))
        return remote_words(program, "guard", *fence, "--", "sh", "-c", script)

    def run(
        self,
        script: str,
        what: str,
        *,
        timeout: float = _TIMEOUT_SECONDS,
        agent: str | None = None,
        epoch: int | None = None,
    ) -> str:
        """Run a script that changes the board; what it printed.

        ``agent`` is another one than that of the board. Raises LeaseLost when a newer epoch is on
        the board, and then nothing is changed; LinkError, BoardError.
        """
        command = self.guarded(script, agent=agent, epoch=epoch)
        result = self.transport.run(command, timeout=timeout)
        refuse_stale(result, what)
        return require(result, what).text


def refuse_stale(result: CommandResult, what: str) -> None:
    """Raise what the agent gives as its reason not to act: LeaseLost, BoardError.

    Another end of the command is the caller's to judge.
    """
    if result.exit_status not in _REFUSALS:
        return
    lines = result.text.strip().splitlines()
    try:
        answer = json.loads(lines[-1]) if lines else None
    except ValueError:
        answer = None
    if isinstance(answer, dict) and "error" in answer:
        raise refusal(str(answer["error"]), str(answer.get("message")), what)
    if result.exit_status == 75 and not lines:  # the shell of an older agent
        raise LeaseLost("another controller has taken the board")


def knows_leases(transport: Transport, agent: str) -> bool:
    """Tell whether an agent that is on a board is of version 5 or later. Raises LinkError."""
    said = transport.run(remote_words(agent, "version"), timeout=_TIMEOUT_SECONDS).text.split()
    return len(said) == 2 and said[1].isdecimal() and int(said[1]) >= _FIRST_VERSION
