"""The single place that waits and tries again."""

from collections.abc import Callable
from typing import TypeVar

import tenacity

from labctl.errors import InfraError

T = TypeVar("T")


def wait_until(
    condition: Callable[[], bool],
    *,
    timeout: float,
    interval: float,
) -> bool:
    """Ask ``condition`` every ``interval`` seconds until it holds; False after ``timeout`` seconds.

    The condition is asked at least once.
    """
    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_result(lambda held: not held),
        wait=tenacity.wait_fixed(interval),
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
) -> T:
    """Repeat an operation that can safely be repeated, on the named infra errors only.

    Waits ``interval`` seconds, doubled each time up to 10 s, and gives up after ``timeout`` seconds
    with the last error.
    """

    def note(state: tenacity.RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        if on_retry and isinstance(error, InfraError):
            on_retry(error)

    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(on),
        wait=tenacity.wait_exponential(multiplier=interval, max=10),
        stop=tenacity.stop_after_delay(timeout),
        before_sleep=note,
        reraise=True,
    )
    return retrying(operation)
