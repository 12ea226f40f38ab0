"""Ctrl-C while many jobs run."""

import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue


@contextmanager
def on_interrupt(callback: Callable[[], None]) -> Iterator[None]:
    """Call ``callback`` on the first Ctrl-C or signal with the same meaning, instead of raising.

    KeyboardInterrupt can come between any two steps: then the end of a job is never recorded, or a
    lock never released. ``callback`` runs in its own thread and has returned when the context ends.
    The second Ctrl-C raises as usual. Only the main thread gets signals: in other threads
    ``callback`` is never called.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    asked = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    numbers = [one for one in asked if signal.getsignal(one) is signal.default_int_handler]
    next_step: SimpleQueue[Callable[[], None]] = SimpleQueue()

    def watch() -> None:
        next_step.get()()

    def handle(_number: int, _frame: object) -> None:
        restore()
        next_step.put(callback)  # not called here: it may need a lock that this thread holds

    def restore() -> None:
        for number in numbers:
            signal.signal(number, signal.default_int_handler)

    watcher = threading.Thread(target=watch, name="interrupts", daemon=True)
    watcher.start()
    try:
        for number in numbers:
            signal.signal(number, handle)
        yield
    finally:
        restore()
        next_step.put(lambda: None)
        watcher.join()


def raise_first(errors: Iterable[BaseException]) -> None:
    """Raise the first error if there is any; KeyboardInterrupt only if there is no other."""
    for first in sorted(errors, key=lambda error: isinstance(error, KeyboardInterrupt)):
        raise first
