"""The gaps between single tokens of a trial, and their first and last quarter."""

from collections.abc import Sequence
from dataclasses import dataclass

from labctl.records import TimingRecord
from labctl.stats import median


@dataclass(frozen=True)
class Gap:
    """The time before the token at a position; the first token has none."""

    position: int
    ns: int


@dataclass(frozen=True)
class Quarter:
    """Consecutive gaps."""

    gaps: Sequence[Gap]

    @property
    def median_ns(self) -> float:
        """The middle gap's time."""
        return median([gap.ns for gap in self.gaps])

    @property
    def position(self) -> int:
        """The position of the token in the middle."""
        return self.gaps[len(self.gaps) // 2].position


def single_gaps(timing: TimingRecord) -> list[Gap]:
    """Return the gaps of one token each; those that hold several tokens tell no token's time."""
    merged = set(timing.merged_chunks)
    gaps = enumerate(timing.token_ns, 1)
    return [Gap(n, ns) for n, ns in gaps if ns > 0 and n - 1 not in merged]


def quarters(gaps: Sequence[Gap]) -> tuple[Quarter, Quarter] | None:
    """Return the first quarter and the last; None for fewer than four gaps."""
    size = len(gaps) // 4
    return (Quarter(gaps[:size]), Quarter(gaps[-size:])) if size else None
