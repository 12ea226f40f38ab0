"""A fault on a board, and its counts."""

import random
from dataclasses import dataclass

from labctl.virtual.fault_script import Fault, Kind


@dataclass(frozen=True)
class FaultState:
    """Number of operations that a fault matched, and that it affected."""

    number: int
    name: str
    fault: dict[str, object]
    matched: int
    fired: int


class Injected:
    """A fault that waits for its operations. ``fired`` counts those that it affected."""

    def __init__(self, number: int, fault: Fault, seed: int):
        self.number = number
        self.fault = fault
        self.matched = 0
        self.fired = 0
        #: Random choices of this fault, independent of others.
        self.random = random.Random(f"{seed}:{number}")  # noqa: S311 - to be reproduced
        self._chosen = 0

    def chooses(self, kind: Kind, text: str) -> bool:
        """Decide if the fault affects this operation, which is about to begin."""
        fault = self.fault
        if not fault.concerns(kind, text):
            return False
        self.matched += 1
        used_up = fault.times is not None and self._chosen >= fault.times
        if self.matched < fault.nth or used_up or self.random.random() >= fault.probability:
            return False
        self._chosen += 1
        return True

    @property
    def state(self) -> FaultState:
        """Counters of the fault so far."""
        return FaultState(
            self.number,
            self.fault.name,
            self.fault.model_dump(mode="json", exclude_defaults=True),
            self.matched,
            self.fired,
        )
