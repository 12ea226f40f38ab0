"""State of a lab, kept and backed up: what people decided, and who has which board.

Nothing else can make it again.
"""

from typing import TYPE_CHECKING

from labctl.lazy import lazy_names

if TYPE_CHECKING:
    from labctl.state.baselines import Baseline, Baselines
    from labctl.state.leases import BoardLeases, StateLease
    from labctl.state.state import LabState, lab_state
else:
    __getattr__ = lazy_names(
        __name__,
        {
            "baselines": "Baseline Baselines",
            "leases": "BoardLeases StateLease",
            "state": "LabState lab_state",
        },
    )

__all__ = ["Baseline", "Baselines", "BoardLeases", "LabState", "StateLease", "lab_state"]
