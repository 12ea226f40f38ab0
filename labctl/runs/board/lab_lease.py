"""The lease of a board in the lab's state, and its renewal.

The lab's state decides between controllers of all hosts that share it. A thread renews the leases
of a process. A process that cannot renew them in time (the database is gone, or the process was
suspended) stops sending to its boards and stops recording, before anybody else can have the boards.
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from weakref import WeakValueDictionary

from labctl import interrupts
from labctl.board.lease import Lease
from labctl.config.lab import Board, LabFile
from labctl.database.base import patience
from labctl.errors import BoardBusy, ConfigError, HostError, LeaseLost
from labctl.records.board import BoardFacts, Execution
from labctl.runs.board.own_tokens import is_own_token
from labctl.state.events import this_user
from labctl.state.lease import StateLease, steady_seconds
from labctl.state.lease_wish import Wish
from labctl.state.leases import BoardLeases
from labctl.state.reservations import Reservation, other_keeps
from labctl.state.state import LabState, lab_state
from labctl.state.uses import UseKind

#: Time (s) to wait for a database that does not answer while a board is released.
_LEAVE_SECONDS = 10.0
_RENEWALS = 3


@dataclass(frozen=True)
class BoardUse:
    """Reason for which a board is taken; others see it."""

    purpose: str = ""
    #: Maximum time (s) of the use: a board kept for somebody else within this time is not taken.
    max_seconds: float = 0.0
    #: ``USER@HOST`` for whom the board is taken; None: the user of this process.
    holder: str | None = None
    #: Id of the job that claimed the board, and its attempt; None: the use begins a new job.
    job: str | None = None
    attempt: int | None = None
    kind: UseKind = "run"
    #: The run of this use.
    run: str | None = None


#: The use of a board by a run outside jobs, for the user of this process.
RUN = BoardUse()
#: The use of a board by a server outside jobs and runs.
SERVE = BoardUse("serve", kind="serve")


class LeaseRenewer:
    """Renews its leases; the thread lives as long as there are leases.

    A lease is renewed ``renewals`` times within its duration.
    """

    def __init__(self, leases: BoardLeases, *, renewals: int = _RENEWALS):
        self._leases = leases
        self._renewals = renewals
        self._kept: list[LabLease] = []
        self._changed = threading.Condition()
        #: Held during a transaction, and until all leases have its result.
        self._renewing = threading.Lock()
        self._thread: threading.Thread | None = None

    def add(self, lease: "LabLease") -> None:
        """Renew a lease that was just taken."""
        with self._changed:
            self._kept.append(lease)
            if self._thread is None:
                self._thread = threading.Thread(target=self._keep, name="leases", daemon=True)
                self._thread.start()

    def remove(self, lease: "LabLease") -> None:
        """Stop renewing a lease; wait for a renewal under way."""
        self._forget(lease)
        if self._renewing.acquire(timeout=_LEAVE_SECONDS):
            self._renewing.release()

    def _keep(self) -> None:
        while True:
            with self._changed:
                period = self._leases.seconds / self._renewals
                self._changed.wait_for(lambda: not self._kept, timeout=period)
                if not self._kept:
                    self._thread = None
                    return
            with self._renewing, patience(0.0):  # the next renewal comes soon
                with self._changed:
                    kept = list(self._kept)
                self._renew(kept)

    def _renew(self, kept: Sequence["LabLease"]) -> None:
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

    def _forget(self, lease: "LabLease") -> None:
        with self._changed:
            if lease in self._kept:
                self._kept.remove(lease)
            self._changed.notify()


_renewers: WeakValueDictionary[tuple[str, str], LeaseRenewer] = WeakValueDictionary()
_making = threading.Lock()


def lease_renewer(lab: LabFile, *, renewals: int = _RENEWALS) -> LeaseRenewer:
    """Return this process's renewer for a lab; it ends with its last user. Raises ConfigError."""
    key = (str(lab.root.absolute()), lab.database or "")
    with _making:
        renewer = _renewers.get(key)
        if renewer is None:
            renewer = _renewers[key] = LeaseRenewer(lab_state(lab).leases, renewals=renewals)
        return renewer


class LabLease:
    """The lease of one board in a lab's state."""

    def __init__(
        self, state: LabState, renewer: LeaseRenewer, board: Board, use: BoardUse, hardware: str
    ):
        self._state = state
        self._hardware = hardware
        self._renewer = renewer
        self._board = board.name
        self._use = use
        self._lease: StateLease | None = None
        self._lost: LeaseLost | None = None
        self._unanswered: HostError | None = None
        self._kept_for_another: Reservation | None = None
        #: Held while the lease is changed: an older answer never replaces a newer one.
        self._changing = threading.Lock()
        #: True if no program of the last holder runs on the board.
        self._is_idle = False

    @property
    def leases(self) -> BoardLeases:
        """All leases of the lab."""
        return self._state.leases

    @property
    def identity(self) -> str | None:
        """Name of the lab's state on its boards."""
        return self._state.identity

    @property
    def is_taken(self) -> bool:
        """True once this process took the board, also after it lost the board."""
        return self._lease is not None

    @property
    def now(self) -> StateLease:
        """The lease as it is now. Raises LeaseLost."""
        self.check()
        return self.held

    def refuse_if_taken(self) -> None:
        """Raise the error of :meth:`take`, as far as known without contact to the board."""
        self.leases.refuse_if_taken(self._wish(""))

    def left_run(self, lease: Lease | None) -> BoardBusy | None:
        """Return the error if the run of a dead process may be on the board with this ``lease``.

        None: no such run, or it belongs to this use.
        """
        left = None
        if lease is not None and lease.state == self.identity:
            left = self.leases.left_run(self._wish(lease.token))
        self._is_idle = left is None
        return left

    def saw_idle(self) -> None:
        """Note that no program of the last holder runs on the board."""
        self._is_idle = True

    def _wish(self, token: str) -> Wish:
        use = self._use
        return Wish(
            self._board,
            use.purpose,
            use.kind,
            use.holder or this_user(),
            planned_seconds=use.max_seconds,
            job=use.job,
            attempt=use.attempt,
            run=use.run,
            hardware=self._hardware,
            is_dead=is_own_token,
            is_idle=self._is_idle,
            token=token,
        )

    def gave(self, lease: Lease) -> bool:
        """Return True if this state gave a board's own lease to a holder that has died.

        The caller has the board in the lab, or knows that nobody has it. Raises BoardBusy if the
        holder is alive and has the board under another name.
        """
        if lease.state != self.identity:
            return False
        self.leases.refuse_other_name(self._board, lease.token)
        return True

    def take(self, token: str, *, minimum_epoch: int = 0, keep_epoch: int = 0) -> int:
        """Take the board, or raise the epoch of this process's lease; return that epoch.

        ``token`` is a token of this host. With ``keep_epoch`` the epoch of a lease on the board is
        kept, unless another lease had a greater epoch. Raises BoardBusy, LeaseLost, HostError.
        """
        if self._lease is not None:
            if not keep_epoch:
                self.raise_epoch(max(minimum_epoch, self.now.epoch + 1))
            return self.now.epoch
        self._lease = self.leases.take(
            self._wish(token), minimum_epoch=minimum_epoch, keep_epoch=keep_epoch
        )
        self._keep()
        return self._lease.epoch

    def raise_epoch(self, epoch: int) -> None:
        """Raise the epoch if the board's own epoch is higher. Raises LeaseLost, HostError."""
        with self._changing:
            if epoch > self.now.epoch:
                self._lease = self.leases.raise_epoch(self.now, epoch)

    def check(self) -> None:
        """Raise LeaseLost once the lease has ended, or may end soon."""
        if self._lost is not None:
            raise self._lost.again()
        if self._lease is not None and steady_seconds() >= self._lease.stop_before:
            because = f": {self._unanswered.message}" if self._unanswered else ""
            what = f"the lease of board {self._board} was not renewed in time{because}"
            hint = "finished trials are kept; continue when the lab's database answers"
            late = LeaseLost(what, hint=hint)
            raise late.of_host() if self._unanswered else late

    def refuse_if_kept_for_another(self) -> None:
        """Raise BoardBusy if the board is now kept for somebody else: nothing new begins.

        Raises LeaseLost as :meth:`check` does.
        """
        self.check()
        if self._kept_for_another is not None:
            raise other_keeps(self._kept_for_another)

    def release(self) -> None:
        """Release the board. Raises HostError; then the lease ends by itself."""
        if self._lease is None:
            return
        with interrupts.finishing() as signals:
            signals.hold()  # a lease left behind keeps the board from others until it expires
            self._renewer.remove(self)
            if self._lost is None:
                with patience(_LEAVE_SECONDS):
                    self.leases.release(self._lease)

    @property
    def held(self) -> StateLease:
        """The last known lease."""
        assert self._lease is not None
        return self._lease

    def renewed(self, now: StateLease | LeaseLost) -> None:
        """Note the present lease; keep an epoch that was raised meanwhile."""
        if isinstance(now, LeaseLost):
            self._lost = now.of_host() if self._unanswered else now
            return
        with self._changing:
            self._lease = replace(now, epoch=max(now.epoch, self.held.epoch))
        self._unanswered = None

    def kept_for_another(self, by: Reservation | None) -> None:
        """Note the reservation that keeps the board for somebody else now."""
        self._kept_for_another = by

    def unanswered(self, error: HostError | ConfigError) -> None:
        """Note that the lease was not renewed; the database may answer before the lease ends."""
        self._unanswered = error if isinstance(error, HostError) else None

    def _keep(self) -> None:
        """Renew the lease until it is released or lost."""
        self._renewer.add(self)


def hardware_of(board: Board, facts: BoardFacts) -> str:
    """Return a name of the board itself in this boot, for all its names in devices.yaml.

    Vendors give one serial number to all their boards; a restarted board is recognised by its
    lease. Virtual boards of one host differ in their workdirs.
    """
    where = "" if facts.execution is Execution.BOARD else f" {board.workdir}"
    return f"boot {facts.boot_id}{where}"


def lab_lease(
    lab: LabFile, board: Board, use: BoardUse | None, hardware: str = ""
) -> LabLease | None:
    """Return the lease to take in the lab's state; None for a board outside labs, or without a use.

    Raises ConfigError for an impossible database.
    """
    if use is None or not lab.path.is_file():
        return None
    return LabLease(lab_state(lab), lease_renewer(lab), board, use, hardware)
