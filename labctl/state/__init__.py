"""State of a lab, kept and backed up: what people decided, and who has which board.

Nothing else can make it again.
"""

from typing import TYPE_CHECKING

from labctl.lazy import lazy_names

if TYPE_CHECKING:
    from labctl.state.baselines import Baseline, Baselines
    from labctl.state.events import BoardEvent, BoardEvents
    from labctl.state.health import BoardHealth, Health, Healths
    from labctl.state.job import Job, NewJob
    from labctl.state.jobs import Jobs
    from labctl.state.leases import BoardLeases, StateLease
    from labctl.state.state import LabState, lab_state
    from labctl.state.tokens import AccessToken, AccessTokens
else:
    __getattr__ = lazy_names(
        __name__,
        {
            "baselines": "Baseline Baselines",
            "events": "BoardEvent BoardEvents",
            "health": "BoardHealth Health Healths",
            "job": "Job NewJob",
            "jobs": "Jobs",
            "leases": "BoardLeases StateLease",
            "state": "LabState lab_state",
            "tokens": "AccessToken AccessTokens",
        },
    )

__all__ = [
    "AccessToken",
    "AccessTokens",
    "Baseline",
    "Baselines",
    "BoardEvent",
    "BoardEvents",
    "BoardHealth",
    "BoardLeases",
    "Health",
    "Healths",
    "Job",
    "Jobs",
    "LabState",
    "NewJob",
    "StateLease",
    "lab_state",
]
