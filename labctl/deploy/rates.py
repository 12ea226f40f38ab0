"""Transfer rates of the links to boards, remembered on this host."""

import json
import time
from dataclasses import dataclass, field
from pathlib import Path

from labctl.files import write_atomic

#: Less says more about the start of a transfer than about the link.
LEAST_BYTES = 16 << 20


def known_rate(path: Path) -> float | None:
    """Bytes per second of the last delivery that was noted in a file; None when there was none."""
    try:
        rate = json.loads(path.read_text())["bytes_per_second"]
    except (OSError, ValueError, KeyError, TypeError):
        return None  # a note that cannot be read is as good as none
    return float(rate) if isinstance(rate, int | float) and rate > 0 else None


@dataclass
class Stopwatch:
    """Bytes that crossed a link, and the time that they took. Told before bytes are sent."""

    sent_bytes: int = 0
    _began: float = field(default_factory=time.monotonic)

    def __call__(self, count: int) -> None:
        """So many bytes are about to be sent."""
        self.sent_bytes += count

    @property
    def seconds(self) -> float:
        """Since it was made."""
        return time.monotonic() - self._began

    @property
    def bytes_per_second(self) -> float | None:
        """The rate; None where too few bytes were sent to tell."""
        return self.sent_bytes / self.seconds if self.sent_bytes >= LEAST_BYTES else None

    def note(self, path: Path) -> None:
        """Remember the rate, if there is one, for :func:`known_rate`. Raises HostError."""
        if (rate := self.bytes_per_second) is not None:
            write_atomic(path, json.dumps({"bytes_per_second": round(rate)}) + "\n")
