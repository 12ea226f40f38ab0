"""Retries while a lab's database is away: it restarts, or cannot be reached for some minutes."""

from collections.abc import Callable
from threading import Event
from typing import TypeVar

from labctl.database import DatabaseAway
from labctl.errors import InfraError
from labctl.retry import retry_infra

#: A database that is away for longer is an error.
DATABASE_AWAY_SECONDS = 600.0
#: The first pause; later ones are longer. Most restarts of a database take a short time.
_AGAIN_SECONDS = 0.1
T = TypeVar("T")


def retry_database(
    operation: Callable[[], T], note: Callable[[str], None], stopping: Event | None = None
) -> T:
    """Repeat an operation until the database answers. ``note`` gets one line, at the first failure.

    Raises DatabaseAway after DATABASE_AWAY_SECONDS, KeyboardInterrupt caused by DatabaseAway when
    ``stopping`` is set, and any other error at once.
    """
    is_first = True

    def on_retry(error: InfraError) -> None:
        nonlocal is_first
        if is_first:
            hint = f" ({error.hint})" if error.hint else ""
            note(f"{error.message}; retrying{hint}")
        is_first = False
        if stopping is not None and stopping.is_set():
            raise KeyboardInterrupt from error

    return retry_infra(
        operation,
        on=(DatabaseAway,),
        timeout=DATABASE_AWAY_SECONDS,
        interval=_AGAIN_SECONDS,
        on_retry=on_retry,
    )
