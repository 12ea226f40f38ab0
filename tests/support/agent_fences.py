"""A board's fence with this host's own agent, wherever its workdir is."""

from contextlib import suppress
from pathlib import Path

import agent_builds

from labctl.board.lease import BoardLease, Fence
from labctl.transport.base import Transport


def native_fence(link: Transport, workdir: str, *, epoch: int = 0) -> Fence:
    """The fence of a board that runs this host's agent, from where it was built.

    On boards the agent lies in the workdir; so that is there.
    """
    with suppress(OSError):
        Path(workdir).mkdir(parents=True, exist_ok=True)
    return Fence(link, workdir, str(agent_builds.native_agent()), epoch)


def native_leases(link: Transport, workdir: str, **options: float) -> BoardLease:
    """The lease of such a board, as another controller has it."""
    return BoardLease(link, workdir, fence=native_fence(link, workdir), **options)
