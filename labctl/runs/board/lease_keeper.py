"""One thread that renews all leases of a process in a lab, each time in one transaction."""

import threading
from collections.abc import Sequence
from typing import Protocol
from weakref import WeakValueDictionary

from labctl.config.lab import LabFile
from labctl.errors import ConfigError, HostError, LeaseLost
from labctl.state import BoardLeases, StateLease, lab_state
from labctl.state import leases as state_leases
from labctl.state.reservations import Reservation

#: A lease is renewed so often in its time.
_RENEWALS = 3
#: Patience with a database that does not answer while a board is let go.
_LEAVE_SECONDS = 10.0


class Kept(Protocol):
    """Lease that is renewed. All methods are called by the thread that renews."""

    @property
    def held(self) -> StateLease:
        """The lease as it was last known."""

    def renewed(self, now: StateLease | LeaseLost) -> None:
        """Take note of the lease as it is now."""

    def kept_for_another(self, by: Reservation | None) -> None:
        """Take note of what keeps the board for somebody else now."""

    def unanswered(self, error: HostError | ConfigError) -> None:
        """Take note that the lease was not renewed; the database may answer before it is over."""


class LeaseKeeper:
    """Renews the leases that it has; the thread lives as long as there are any."""

    def __init__(self, leases: BoardLeases):
        self._leases = leases
        self._kept: list[Kept] = []
        self._changed = threading.Condition()
        #: Held during a transaction, and until all have its result.
        self._renewing = threading.Lock()
        self._thread: threading.Thread | None = None

    def add(self, lease: Kept) -> None:
        """Renew a lease that was just taken."""
        with self._changed:
            self._kept.append(lease)
            if self._thread is None:
                self._thread = threading.Thread(target=self._keep, name="leases", daemon=True)
                self._thread.start()

    def remove(self, lease: Kept) -> None:
        """Renew a lease no more; a renewal under way is waited for."""
        self._forget(lease)
        if self._renewing.acquire(timeout=_LEAVE_SECONDS):
            self._renewing.release()

    def _keep(self) -> None:
        while True:
            with self._changed:
                period = state_leases.LEASE_SECONDS / _RENEWALS
                self._changed.wait_for(lambda: not self._kept, timeout=period)
                if not self._kept:
                    self._thread = None
                    return
            with self._renewing:
                with self._changed:
                    kept = list(self._kept)
                self._renew(kept)

    def _renew(self, kept: Sequence[Kept]) -> None:
        held = [one.held for one in kept]
        try:
            for one, now in zip(kept, self._leases.renew_all(held), strict=True):
                one.renewed(now)
                if isinstance(now, LeaseLost):
                    self._forget(one)
            others = self._leases.kept_for_others(held)
        except (HostError, ConfigError) as error:
            for one in kept:
                one.unanswered(error)
            return
        for one, lease in zip(kept, held, strict=True):
            one.kept_for_another(others.get(lease.board))

    def _forget(self, lease: Kept) -> None:
        with self._changed:
            if lease in self._kept:
                self._kept.remove(lease)
            self._changed.notify()


_keepers: WeakValueDictionary[tuple[str, str], LeaseKeeper] = WeakValueDictionary()
_making = threading.Lock()


def lease_keeper(lab: LabFile) -> LeaseKeeper:
    """Return the keeper of this process for a lab; it is let go with its last user.

    Raises ConfigError for a database that cannot be.
    """
    key = (str(lab.root.absolute()), lab.database or "")
    with _making:
        keeper = _keepers.get(key)
        if keeper is None:
            keeper = _keepers[key] = LeaseKeeper(lab_state(lab).leases)
        return keeper
