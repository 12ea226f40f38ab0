"""Operations of a host on a board, and the faults that affect them."""

from dataclasses import dataclass, field
from typing import TypeVar

from labctl.virtual.fault_script import Fault, Injected, Kind

F = TypeVar("F", bound=Fault)


@dataclass
class FaultMatch:
    """One fault that may affect one operation."""

    injected: Injected
    due: bool = False
    applied: bool = False

    @property
    def fault(self) -> Fault:
        """The fault."""
        return self.injected.fault

    def apply(self) -> None:
        """Count the operation once, when the fault has affected it."""
        if not self.applied:
            self.applied = True
            self.injected.fired += 1


@dataclass
class Operation:
    """One running operation: ``moved`` bytes of its packets, ``printed`` bytes of its output."""

    kind: Kind
    text: str
    matches: list[FaultMatch] = field(default_factory=list)
    moved: int = 0
    printed: int = 0
    packets: dict[str, int] = field(default_factory=lambda: {"in": 0, "out": 0})

    def move(self, direction: str, size: int) -> None:
        """Count a packet."""
        self.moved += size
        self.packets[direction] += 1

    def active(self, kind: type[F]) -> list[tuple[FaultMatch, F]]:
        """Return the faults of a class that are due: ``after_bytes`` have passed."""
        return [
            (match, match.fault)
            for match in self.matches
            if isinstance(match.fault, kind) and self.moved >= match.fault.after_bytes
        ]

    def all(self, kind: type[F]) -> list[tuple[FaultMatch, F]]:
        """Return the faults of a class."""
        return [(match, match.fault) for match in self.matches if isinstance(match.fault, kind)]
