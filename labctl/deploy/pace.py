"""A rate that sending keeps, however many boards share it."""

import threading
import time

from labctl.errors import ConfigError
from labctl.retry import wait_until
from labctl.units import counted, size

#: Below this, for each board, a single piece would take longer than boards wait for it.
LEAST_BYTES_PER_SECOND = 100_000
#: What may be sent at once after a pause, in seconds of the rate.
_BURST_SECONDS = 0.1
_LONGEST_WAIT_SECONDS = 3600.0


class Pace:
    """A token bucket. Safe to use from several threads: they share the rate.

    Raises ConfigError for a rate below ``LEAST_BYTES_PER_SECOND`` for each of ``boards``.
    """

    def __init__(self, bytes_per_second: int, boards: int = 1):
        least = LEAST_BYTES_PER_SECOND * boards
        if bytes_per_second < least:
            raise ConfigError(
                f"a limit of {size(bytes_per_second)}/s is too slow for {counted(boards, 'board')}",
                hint=f"the least is {size(least)}/s; serve fewer boards at once",
            )
        self._rate = bytes_per_second
        self._lock = threading.Lock()
        self._due = 0.0

    def __call__(self, count: int) -> None:
        """Wait until so many bytes may be sent."""
        with self._lock:
            now = time.monotonic()
            # Bytes are paid for by the time after them; an idle link saves up a little only.
            start = max(self._due, now - _BURST_SECONDS)
            self._due = start + count / self._rate
        if start > now:
            wait_until(
                lambda: time.monotonic() >= start,
                timeout=_LONGEST_WAIT_SECONDS,
                interval=start - now,
            )
