"""Uses of a lab's boards: the rules for each kind.

Each use is a job while it lasts. docs/queue.md has the same table for people;
:mod:`labctl.state.admission` applies it.
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
#: Process that runs a job. ``worker``: any worker of its board; if the worker dies, the job waits
#: again. ``process``: the submitting process; the job ends with it. ``lease``: the process that has
#: the board at once; the job begins and ends with the lease.
Runner = Literal["worker", "process", "lease"]
RUNNERS: tuple[Runner, ...] = get_args(Runner)


@dataclass(frozen=True)
class Use:
    """The rules of one kind. All kinds respect leases, holds and reservations."""

    #: True: waits for its turn; False: gets a free board at once, or fails.
    queues: bool = False
    #: True if it counts for its user's quota and for the users' turns.
    counts: bool = True
    #: Health of a board that it may have. ``fit``: good or unknown, or the user holds the board.
    #: ``uninspected``: also if an inspection is due; the use then begins with it.
    health: Literal["fit", "uninspected", "any"] = "any"
    #: True if it waits for the shared limits of its board and counts for them.
    limits: bool = True
    #: Effect of a program left on the board by a run whose process died: the use is ``refused``
    #: until the program ends, ``continues`` a program of its own run, or ``ends`` the program.
    left_program: Literal["refused", "continues", "ends"] = "refused"
    #: True if it must be alone: no other job may even have claimed the board.
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
#: Kinds that do not count for quotas and turns.
UNCOUNTED: tuple[UseKind, ...] = tuple(kind for kind, use in USES.items() if not use.counts)
#: Kinds that workers run.
QUEUED_KINDS: tuple[UseKind, ...] = tuple(kind for kind, use in USES.items() if use.queues)
#: Kinds whose run `labctl resume` continues.
RESUMED_KINDS: tuple[UseKind, ...] = ("run", "resume")
