"""Ctrl-C while many jobs run."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def on_interrupt(tell: Callable[[], None]) -> Iterator[None]:
    """Call ``tell`` on the first Ctrl-C, or signal that means the same, instead of raising.

    KeyboardInterrupt comes between any two steps: a job that has ended there may never be noted, a
    lock never be freed. ``tell`` is called there too: it may do no more than set an event or put
    something into a SimpleQueue. The second Ctrl-C raises as ever. Other threads than the main one
    get no signals; nothing changes there.
    """
    numbers: list[signal.Signals] = []
    if threading.current_thread() is threading.main_thread():
        asked = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        numbers = [one for one in asked if signal.getsignal(one) is signal.default_int_handler]

    def handle(_number: int, _frame: object) -> None:
        restore()
        tell()

    def restore() -> None:
        for number in numbers:
            signal.signal(number, signal.default_int_handler)

    try:
        for number in numbers:
            signal.signal(number, handle)
        yield
    finally:
        restore()
