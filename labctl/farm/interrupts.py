"""Ctrl-C while many jobs run."""

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue

from labctl import interrupts


@contextmanager
def on_interrupt(callback: Callable[[], None]) -> Iterator[None]:
    """Call ``callback`` on the first signal that means Ctrl-C, instead of raising.

    ``callback`` runs in its own thread and has returned when the context ends. The second signal is
    as usual. Only the main thread gets signals: in other threads ``callback`` is never called. This
    also works in a script with Python's own handlers.
    """
    if not interrupts.is_main():
        yield
        return
    next_step: SimpleQueue[Callable[[], None]] = SimpleQueue()

    def tell() -> None:
        next_step.get()()

    teller = threading.Thread(target=tell, name="interrupts", daemon=True)
    teller.start()
    try:
        # The callback may need a lock that this thread holds.
        with interrupts.handled_by(lambda *_: next_step.put(callback), once=True):
            interrupts.check()
            yield
    finally:
        next_step.put(lambda: None)
        teller.join()


def raise_first(errors: Iterable[BaseException]) -> None:
    """Raise the first error if there is any; KeyboardInterrupt only if there is no other."""
    for first in sorted(errors, key=lambda error: isinstance(error, KeyboardInterrupt)):
        raise first
