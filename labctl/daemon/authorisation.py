"""Hosts that a locked board accepts, and its answer to the others."""

from collections.abc import Callable, Iterable
from typing import Literal

Mode = Literal["accept-known", "accept-all", "refuse", "pending"]
#: Called with the decision on a waiting host.
Waiter = Callable[[bool], None]


class Authorisation:
    """The lock of one board, and the user's decisions on its screen.

    Hosts prove that they own the key they show. ``known`` are the fingerprints of keys that are
    admitted, except in mode ``refuse``. ``mode`` decides about other keys: ``accept-known`` and
    ``refuse`` deny them, ``accept-all`` admits them, and with ``pending`` the host waits,
    unauthorised, until :meth:`decide`. Use it on the daemon's event loop only.
    """

    def __init__(self, mode: Mode, known: Iterable[str]):
        self.mode = mode
        self._known = set(known)
        self._waiting: dict[str, list[Waiter]] = {}

    @property
    def pending(self) -> tuple[str, ...]:
        """Fingerprints of the keys that wait for :meth:`decide`."""
        return tuple(self._waiting)

    def decide(self, key: str, *, allow: bool) -> bool:
        """Allow or deny the hosts waiting with this key; return False if none waits.

        An allowed key is known from then on.
        """
        waiters = self._waiting.pop(key, None)
        if waiters is None:
            return False
        if allow:
            self._known.add(key)
        for waiter in waiters:
            waiter(allow)
        return True

    def consider(self, key: str) -> bool | None:
        """Decide if the owner of a key is admitted; None: not decided yet."""
        if self.mode == "refuse":
            return False
        if self.mode == "accept-all" or key in self._known:
            return True
        return None if self.mode == "pending" else False

    def wait(self, key: str, waiter: Waiter) -> None:
        """Call ``waiter`` later with the decision."""
        self._waiting.setdefault(key, []).append(waiter)

    def withdraw(self, key: str, waiter: Waiter) -> None:
        """Note that the host no longer waits. Idempotent."""
        waiters = self._waiting.get(key, [])
        if waiter in waiters:
            waiters.remove(waiter)
            if not waiters:
                del self._waiting[key]
