"""Patience with a lab's database that is away: restarted, or not to be reached for some minutes."""

from collections.abc import Callable
from typing import TypeVar

from labctl.errors import HostError, InfraError
from labctl.retry import retry_infra

#: A database that is away for longer ends who needs it.
DATABASE_AWAY_SECONDS = 600.0
T = TypeVar("T")


def patiently(operation: Callable[[], T], note: Callable[[str], None]) -> T:
    """Repeat what asks the database until it answers; ``note`` gets one line in that time.

    Raises HostError after DATABASE_AWAY_SECONDS.
    """
    told: list[InfraError] = []

    def tell(error: InfraError) -> None:
        if not told:
            note(f"{error.message}; it is asked again")
        told.append(error)

    return retry_infra(operation, on=(HostError,), timeout=DATABASE_AWAY_SECONDS, on_retry=tell)
