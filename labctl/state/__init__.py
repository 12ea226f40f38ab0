"""State of a lab, stored and backed up: decisions of people, and the users of boards.

It cannot be computed from other files.
"""

from typing import TYPE_CHECKING

from labctl.lazy import lazy_names

if TYPE_CHECKING:
    from labctl.state.audit import Audit, AuditEntry
    from labctl.state.baselines import Baseline, Baselines
    from labctl.state.events import BoardEvent, BoardEvents, this_user
    from labctl.state.health import BoardHealth, Health, Healths
    from labctl.state.holds import Holds
    from labctl.state.job import Job, NewJob
    from labctl.state.jobs import Jobs
    from labctl.state.leases import BoardLeases, StateLease
    from labctl.state.reservations import Reservation, Reservations
    from labctl.state.state import LabState, lab_state
    from labctl.state.tokens import AccessToken, AccessTokens
else:
    __getattr__ = lazy_names(
        __name__,
        {
            "audit": "Audit AuditEntry",
            "baselines": "Baseline Baselines",
            "events": "BoardEvent BoardEvents this_user",
            "health": "BoardHealth Health Healths",
            "job": "Job NewJob",
            "jobs": "Jobs",
            "holds": "Holds",
            "leases": "BoardLeases StateLease",
            "reservations": "Reservation Reservations",
            "state": "LabState lab_state",
            "tokens": "AccessToken AccessTokens",
        },
    )

__all__ = [
    "AccessToken",
    "AccessTokens",
    "Audit",
    "AuditEntry",
    "Baseline",
    "Baselines",
    "BoardEvent",
    "BoardEvents",
    "BoardHealth",
    "BoardLeases",
    "Health",
    "Healths",
    "Holds",
    "Job",
    "Jobs",
    "LabState",
    "NewJob",
    "Reservation",
    "Reservations",
    "StateLease",
    "lab_state",
    "this_user",
]
