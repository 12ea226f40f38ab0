"""Bringing failing boards back, from the mildest means to the strongest."""

from typing import TYPE_CHECKING

from labctl.lazy import lazy_names

if TYPE_CHECKING:
    from labctl.farm.recovery.ladder import Climb, Step, recover
else:
    __getattr__ = lazy_names(__name__, {"ladder": "Climb Step recover"})

__all__ = ["Climb", "Step", "recover"]
