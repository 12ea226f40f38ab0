"""Packets in one direction of a slow, delayed or stopped link."""

import asyncio
from collections import deque
from collections.abc import Callable


class DelayQueue:
    """Runs actions in order, each at its time; runs nothing while the queue is held.

    ``on_empty`` is called after the last waiting action.
    """

    def __init__(self, on_empty: Callable[[], None]):
        self._loop = asyncio.get_running_loop()
        self._on_empty = on_empty
        self._waiting: deque[tuple[float, int, Callable[[], None]]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._last_due = 0.0
        self._held = False
        self.waiting_bytes = 0

    @property
    def idle(self) -> bool:
        """Return True if the next packet would pass at once."""
        return not self._held and not self._waiting and self._last_due <= self._loop.time()

    def put(
        self,
        size: int,
        action: Callable[[], None],
        *,
        delay: float = 0.0,
        rate: int | None = None,
    ) -> None:
        """Run ``action`` (``size`` bytes) after ``delay`` seconds, or at ``rate`` bytes per second.

        It never overtakes earlier actions.
        """
        due = max(self._loop.time() + delay, self._last_due) + (size / rate if rate else 0.0)
        self._last_due = due
        self._waiting.append((due, size, action))
        self.waiting_bytes += size
        self._pass()

    def hold(self) -> None:
        """Hold all actions."""
        self._held = True

    def release(self) -> None:
        """Release all actions."""
        self._held = False
        self._pass()

    def clear(self) -> None:
        """Drop waiting actions."""
        self._waiting.clear()
        self.waiting_bytes = 0
        if self._timer:
            self._timer.cancel()

    def _pass(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None
        while self._waiting and not self._held:
            due, size, action = self._waiting[0]
            if due > self._loop.time():
                self._timer = self._loop.call_at(due, self._pass)
                return
            self._waiting.popleft()
            self.waiting_bytes -= size
            action()
        if not self._waiting:
            self._on_empty()
