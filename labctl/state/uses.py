"""Uses of a lab's boards: the rules by which each kind gets a board.

Each is a job while it lasts. docs/queue-reference.md has the same table for people, and
:mod:`labctl.state.admission` decides by it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

UseKind = Literal[
    "run",
    "untrusted",
    "resume",
    "serve",
    "probe",
    "deploy",
    "store",
    "check",
    "inspection",
    "recovery",
]
USE_KINDS: tuple[UseKind, ...] = get_args(UseKind)
#: Who runs a job. ``worker``: any that serves its board; if that dies, the job waits again.
#: ``process``: the one that submitted it; the job ends with it. ``lease``: who has its board at
#: once; it begins and ends with the lease.
Runner = Literal["worker", "process", "lease"]
RUNNERS: tuple[Runner, ...] = get_args(Runner)


@dataclass(frozen=True)
class Use:
    """The rules of one kind. All respect leases, holds and reservations."""

    #: True: it waits for its turn; False: it has a free board at once, or fails.
    queues: bool = False
    #: True if it counts for its user's quota, and in the turns of users.
    counts: bool = True
    #: Health of a board that it may have. ``fit``: good or unknown, or the user holds the board.
    #: ``uninspected``: also if an inspection is due, with which it begins.
    health: Literal["fit", "uninspected", "any"] = "any"
    #: True if it waits for the shared limits of its board, and counts for them.
    limits: bool = True
    #: What a program on the board means to it whose run's process died: it is ``refused`` until the
    #: program ends, ``continues`` it if it is its own run's, or ``ends`` it.
    left_program: Literal["refused", "continues", "ends"] = "refused"
    #: True if it needs nobody beside it: not even a job that has claimed the board and gets ready.
    alone: bool = False


USES: Mapping[UseKind, Use] = {
    "run": Use(queues=True, health="fit"),
    "untrusted": Use(queues=True, health="uninspected"),
    "resume": Use(health="fit", left_program="continues"),
    "serve": Use(health="fit"),
    "probe": Use(),
    "deploy": Use(),
    "store": Use(),
    "check": Use(counts=False),
    "inspection": Use(counts=False, left_program="ends"),
    "recovery": Use(counts=False, limits=False, alone=True),
}
#: Kinds that do not count.
UNCOUNTED: tuple[UseKind, ...] = tuple(kind for kind, use in USES.items() if not use.counts)
#: Kinds that workers run.
QUEUED_KINDS: tuple[UseKind, ...] = tuple(kind for kind, use in USES.items() if use.queues)
#: Kinds whose run `labctl resume` continues.
RESUMED_KINDS: tuple[UseKind, ...] = ("run", "resume")
