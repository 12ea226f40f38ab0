"""State of a lab: what people decided, kept and backed up; nothing else can make it again."""

from typing import TYPE_CHECKING

from labctl.lazy import lazy_names

if TYPE_CHECKING:
    from labctl.state.baselines import Baseline, Baselines
    from labctl.state.state import LabState, lab_state
else:
    __getattr__ = lazy_names(
        __name__, {"baselines": "Baseline Baselines", "state": "LabState lab_state"}
    )

__all__ = ["Baseline", "Baselines", "LabState", "lab_state"]
