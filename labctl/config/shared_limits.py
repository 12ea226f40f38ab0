"""Shared limits: number of running jobs of a lab that may use one thing at once.

Examples: a USB bus, or a host's CPU. A job uses the shared things of its board, and its own.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class SharedLimits:
    """The limits of a lab."""

    #: Limit -> number of jobs that may use it at once.
    most: Mapping[str, int] = field(default_factory=dict)
    #: Board -> its limits.
    of_board: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def of(self, board: str, uses: Sequence[str]) -> Iterator[str]:
        """Yield each limit that a job on a board uses; ``uses``: the job's own limits."""
        for limit in dict.fromkeys((*self.of_board.get(board, ()), *uses)):
            if limit in self.most:
                yield limit
