"""Patience with a lab's database that is away: restarted, or not to be reached for some minutes."""

from collections.abc import Callable
from threading import Event
from typing import TypeVar

from labctl.database import DatabaseAway
from labctl.errors import InfraError
from labctl.retry import retry_infra

#: A database that is away for longer ends who needs it.
DATABASE_AWAY_SECONDS = 600.0
#: The first pause; the next ones are longer. Most restarts of a database are over soon.
_AGAIN_SECONDS = 0.1
T = TypeVar("T")


def patiently(
    operation: Callable[[], T], note: Callable[[str], None], stopping: Event | None = None
) -> T:
    """Repeat what asks the database until it answers; ``note`` gets one line in that time.

    Raises DatabaseAway after DATABASE_AWAY_SECONDS, KeyboardInterrupt, with that as its cause, once
    it is ``stopping``, and at once what waiting does not mend.
    """
    told: list[InfraError] = []

    def tell(error: InfraError) -> None:
        if not told:
            hint = f" ({error.hint})" if error.hint else ""
            note(f"{error.message}; it is asked again{hint}")
        told.append(error)
        if stopping is not None and stopping.is_set():
            raise KeyboardInterrupt from error

    return retry_infra(
        operation,
        on=(DatabaseAway,),
        timeout=DATABASE_AWAY_SECONDS,
        interval=_AGAIN_SECONDS,
        on_retry=tell,
    )
