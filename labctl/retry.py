"""The single place for waits and retries, and for work that Ctrl-C must not break off.

``board.agent.LINK_LOSSES`` names the losses of a board to retry; ``transport.linked`` opens a link
again.
"""

import time
from collections.abc import Awaitable, Callable, Iterable
from threading import Event
from typing import TYPE_CHECKING, TypeVar

from labctl import interrupts
from labctl.errors import InfraError

if TYPE_CHECKING:
    import tenacity

T = TypeVar("T")
S = TypeVar("S")

#: Time (s) to retry a lost link or server without progress. A restart of a board takes about a
#: minute.
RETRY_SECONDS = 120.0


def wait_until(
    condition: Callable[[], bool],
    *,
    timeout: float,
    interval: float,
) -> bool:
    """Ask ``condition`` every ``interval`` seconds until it holds; False after ``timeout`` seconds.

    The condition is asked at least once, and a last time when the time is over.
    """
    import tenacity  # slow to import, and most operations need no second attempt

    def wait(state: "tenacity.RetryCallState") -> float:
        return max(0.0, min(interval, timeout - (state.seconds_since_start or 0.0)))

    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_result(lambda held: not held),
        wait=wait,
        stop=tenacity.stop_after_delay(timeout),
        retry_error_callback=lambda _state: False,
    )
    return bool(retrying(condition))


def retry_infra(
    operation: Callable[[], T],
    *,
    on: tuple[type[InfraError], ...],
    timeout: float,
    interval: float = 0.5,
    on_retry: Callable[[InfraError], None] | None = None,
    stopping: Event | None = None,
    but: tuple[type[InfraError], ...] = (),
) -> T:
    """Repeat an operation that can safely be repeated, on the named infra errors only.

    Errors of the types ``but`` are raised at once. Waits ``interval`` seconds, doubled each time up
    to 5 s. Raises the last error ``timeout``
    seconds after the first failure; the time before that failure does not count. The last wait ends
    with that time. A wait also ends when ``stopping`` is set.
    """
    try:
        return operation()
    except on as error:
        if isinstance(error, but):
            raise
        failures = [error]
    import tenacity  # slow to import, and most operations need no second attempt

    end = time.monotonic() + timeout
    growing = tenacity.wait_exponential(multiplier=interval, max=5)

    def attempt() -> T:
        """Fail as the first attempt did, then try again."""
        if failures:
            raise failures.pop()
        return operation()

    def note(state: "tenacity.RetryCallState") -> None:
        error = state.outcome.exception() if state.outcome else None
        if on_retry and isinstance(error, InfraError):
            on_retry(error)

    def wait(state: "tenacity.RetryCallState") -> float:
        return max(0.0, min(growing(state), end - time.monotonic()))

    def pause(seconds: float) -> None:
        if stopping is None:
            interrupts.sleep(seconds)
        else:
            interrupts.wait(stopping, seconds)

    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_exception(
            lambda error: isinstance(error, on) and not isinstance(error, but)
        ),
        wait=wait,
        stop=lambda _state: time.monotonic() >= end,
        before_sleep=note,
        sleep=pause,
        reraise=True,
    )
    return retrying(attempt)


async def retry_async(
    operation: Callable[[], Awaitable[T]],
    *,
    on: tuple[type[InfraError], ...],
    attempts: int,
    wait_s: Callable[[int, InfraError], float],
) -> T:
    """Repeat an operation on the named infra errors, at most ``attempts`` times in all.

    ``wait_s`` returns the time (s) to wait after the attempt of that number and its error. The last
    error is raised.
    """
    import tenacity  # slow to import, and most operations need no second attempt

    def wait(state: "tenacity.RetryCallState") -> float:
        error = state.outcome.exception() if state.outcome else None
        return wait_s(state.attempt_number, error) if isinstance(error, InfraError) else 0.0

    retrying = tenacity.AsyncRetrying(
        retry=tenacity.retry_if_exception_type(on),
        wait=wait,
        stop=tenacity.stop_after_attempt(attempts),
        reraise=True,
    )
    return await retrying(operation)


def in_threads(work: Callable[[S], T], items: Iterable[S], *, at_once: int) -> list[T]:
    """Do work for all items in threads; return the results in their order.

    Raises the first error when all have ended. After Ctrl-C nobody waits for the threads: their own
    waits end them.
    """
    from concurrent.futures import ThreadPoolExecutor  # slow to import, and seldom needed

    stop = Event()

    pool = ThreadPoolExecutor(at_once, initializer=interrupts.follow, initargs=(stop,))
    try:
        done = [interrupts.result(future) for future in [pool.submit(work, item) for item in items]]
    except KeyboardInterrupt:
        stop.set()
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    except BaseException:
        pool.shutdown(cancel_futures=True)
        raise
    pool.shutdown()
    return done
