"""A claim to one board: the lock of this host, the lease of the lab, the lease on the board.

One method releases all three. A living controller of another host keeps its board; controllers of
this host are recognised by the tokens of their leases. Other users see the user of a board, the
run, and its progress.
"""

import hashlib
import json
import os
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Self

from labctl.board.agent import BoardAgent
from labctl.board.lease import ALIVE_SECONDS, BoardLease, Fence, Lease, LeaseStatus
from labctl.board.running_jobs import running_jobs
from labctl.board.store import BoardStore
from labctl.config.lab import Board, LabFile
from labctl.deploy.plan import agents_in
from labctl.errors import BoardBusy, HostTimeout, InfraError
from labctl.files import write_atomic
from labctl.folders import state_dir
from labctl.locks import locked
from labctl.records.board import BoardFacts
from labctl.runs.board.lab_lease import BoardUse, LabLease, hardware_of, lab_lease
from labctl.runs.board.own_tokens import is_own_token, new_own_token
from labctl.runs.record.under_way import run_under_way
from labctl.state.events import this_user
from labctl.state.lease import StateLease
from labctl.state.state import lab_state
from labctl.state.tables import short_line
from labctl.transport.base import CommandResult, Transport
from labctl.units import local_time

#: Far longer than any note.
_MOST_BYTES = 16_000


def board_state(way: str, board: Board) -> Path:
    """Return this host's folder for a workdir, by its address or by the board's boot."""
    key = hashlib.sha256(f"{way}\n{board.workdir}".encode()).hexdigest()[:16]
    return state_dir() / "boards" / key


def note_of_use(lab: LabFile, board: Board, use: BoardUse | None) -> str:
    """Return the note that tells :func:`locked_by_another` how this process uses a board.

    Without a ``use`` the process recovers the board.
    """
    holder, purpose = (use.holder, use.purpose) if use else (None, "recovery")
    note = {"holder": holder or this_user(), "purpose": purpose, "since": time.time()}
    run = {"runs": str(lab.root.absolute() / "runs"), "board": board.name, "pid": os.getpid()}
    return json.dumps(note | run)


def locked_by_another(lock: Path, board: str) -> BoardBusy:
    """Return the error for a board whose lock another process of this host has."""
    try:
        with lock.open("rb") as file:
            told = json.loads(file.read(_MOST_BYTES))
        run = run_under_way(Path(told["runs"]), told["board"], told["pid"])
        return _in_use(board, told["holder"], told["since"], told["purpose"], run)
    except (OSError, ValueError, TypeError, KeyError):  # the lock may be new, without a note
        return BoardBusy(f"board {board} is in use by another labctl of this host")


@contextmanager
def naming_run(lab: LabFile, board: str) -> Iterator[None]:
    """Add the run to a BoardBusy of the lab's state, raised because somebody else has the board.

    Only its own host knows the progress of a run.
    """
    try:
        yield
    except BoardBusy as error:
        lease = lab_state(lab).leases.get(board)
        named = None if lease is None else in_use_by(lab, board, lease)
        if named is None:
            raise
        named.hint = error.hint
        raise named from error


def in_use_by(lab: LabFile, board: str, lease: StateLease) -> BoardBusy | None:
    """Return the error for a board of the lab that somebody else has; it names the run.

    None: the lease is damaged, or its process on this host has no run.
    """
    if lease.damaged:
        return None
    if lease.host == socket.gethostname():
        run = run_under_way(lab.root / "runs", board, lease.pid)
        if run is None:
            return None
    else:
        job = lab_state(lab).jobs.get(lease.job) if lease.job else None
        run = job.run if job else None
    return _in_use(board, lease.holder, lease.since, f"{lease.purpose} on {lease.host}", run)


def _in_use(board: str, holder: str, since: float, purpose: str, run: str | None) -> BoardBusy:
    told = f"{holder} since {local_time(since)}: {purpose}" + (f" ({run})" if run else "")
    return BoardBusy(f"board {board} is in use by {short_line(told)}")


@contextmanager
def lock_board(board: Board, lock: Path, note: str) -> Iterator[None]:
    """Lock a board against other processes of this host. Raises BoardBusy.

    ``note`` is the result of :func:`note_of_use`.
    """
    with ExitStack() as held:
        try:
            held.enter_context(locked(lock, timeout=0, note=note))
        except HostTimeout as error:
            raise locked_by_another(lock, board.name) from error
        yield


class BoardClaim:
    """The claim of this process to a board, from its first lock to the end of the context.

    ``state`` is the path of this host's files on the board, which differ by suffix. Without a
    ``use`` the lab's state is not asked: the caller has its lease, or no lease is taken. Methods
    raise LinkError and BoardError.
    """

    def __init__(
        self,
        board: Board,
        lab: LabFile,
        transport: Transport,
        state: Path,
        use: BoardUse | None = None,
    ):
        self.board = board
        self.lab = lab
        self.transport = transport
        #: Makes all changes on the board.
        self.fence = Fence(transport, board.workdir)
        self.leases = BoardLease(transport, board.workdir, fence=self.fence)
        #: Lease on the board; an earlier process may have taken it.
        self.lease: Lease | None = None
        #: True if an earlier process took the lease: its job may still be running.
        self.is_inherited = False
        #: Lease in the lab's state; None for a board outside labs.
        self.in_lab: LabLease | None = lab_lease(lab, board, use)
        #: The lease last seen on the board, of any holder; None: there was no lease.
        self.seen: LeaseStatus | None = None
        #: File that keeps the last epoch that this host had of the board.
        self.epoch_file = state.with_suffix(".epoch")
        self._use = use
        self._note = note_of_use(lab, board, use)
        self._lock_file = state.with_suffix(".lock")
        #: True if this process took the lease and no trial has begun under it.
        self._is_new = False
        self._ending = ExitStack()
        self._locks = self._ending.enter_context(ExitStack())
        self._ending.callback(self._release)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.give_up()

    def give_up(self) -> None:
        """Release all: on the board, in the lab, on this host."""
        self._ending.close()

    def lock(self) -> None:
        """Lock the board's address against other processes of this host.

        Does not contact the board. Raises BoardBusy, also if another host has the board in the lab.
        """
        self._locks.enter_context(lock_board(self.board, self._lock_file, self._note))
        self._refuse_if_taken_in_lab()

    def lock_boot(self, boot_id: str) -> None:
        """Lock the board on this host under any address. Raises BoardBusy."""
        lock = board_state(boot_id, self.board).with_suffix(".lock")
        self._locks.enter_context(lock_board(self.board, lock, self._note))

    def met(self, facts: BoardFacts, answers: Mapping[str, str]) -> None:
        """Recognise the board by its facts, under each of its names.

        ``answers`` are the answers to :func:`labctl.board.lease.lease_question`. Raises BoardBusy.
        """
        self.in_lab = lab_lease(self.lab, self.board, self._use, hardware_of(self.board, facts))
        self.see(self.leases.status_in(answers))
        self.lock_boot(facts.boot_id)

    def see(self, status: LeaseStatus | None) -> None:
        """Note the lease on the board; once a newer lease is there, nothing is changed there."""
        self.seen = status
        self.fence.epoch = status.lease.epoch if status else 0

    @property
    def on_board(self) -> Lease | None:
        """The lease last seen on the board."""
        return None if self.seen is None else self.seen.lease

    def refuse_if_taken(
        self, *, ours: Mapping[str, object] | None = None, orphans: bool = False
    ) -> None:
        """Raise BoardBusy while another controller has the board, by its lease as last seen.

        ``ours``: the last lease in the journal of the run to resume. With ``orphans`` a job of this
        host whose controller died also keeps the board: a resumed run takes it over.
        """
        self._refuse_if_taken_in_lab()
        before = self.seen
        if before is not None and asdict(before.lease) != ours:
            self._refuse_conflict(before, orphans=orphans)
        elif before is None and self.in_lab is not None:
            self.in_lab.saw_idle()

    def _refuse_if_taken_in_lab(self) -> None:
        if self.in_lab is not None:
            with naming_run(self.lab, self.board.name):
                self.in_lab.refuse_if_taken()

    def _refuse_conflict(self, before: LeaseStatus, *, orphans: bool = False) -> None:
        """Raise BoardBusy if the board's controller is alive, or its job runs."""
        lease = before.lease
        given = self.in_lab is not None and self.in_lab.gave(lease)
        is_over = given or is_own_token(lease.token)  # this host or the lab's state gave it
        left = self.in_lab.left_run(lease) if self.in_lab is not None else None
        if is_over and not orphans and left is None:
            return  # its holder is dead: we have the lock
        if before.alive and not is_over:
            why = f"it gave a sign of life {before.silent_seconds:.0f} s ago"
        elif self._has_running_jobs():
            if left is not None:
                raise BoardBusy(f"{left.message}: a job runs there", hint=left.hint)
            why = "a job runs there"
        else:
            if self.in_lab is not None:
                self.in_lab.saw_idle()
            return
        if lease.lab != self.lab.name:
            why += "; that is another lab's lease"
        raise BoardBusy(
            f"board {self.board.name} is in use by {lease.lab} on {lease.host} since {lease.utc}:"
            f" {why}",
            hint="wait for its end; a controller that died holds a board for"
            f" {ALIVE_SECONDS / 60:.0f} minutes, and as long as its job runs",
        )

    def _has_running_jobs(self) -> bool:
        """Ask an agent of any version on the board; without one, no job can run there."""
        workdir, path = self.board.workdir, self.fence.agent
        if path is None:
            store = BoardStore(self.transport, workdir, fence=self.fence)
            found = agents_in(store)
            if not found:
                return False
            path = store.path(found[0].sha256)
        agent = BoardAgent(self.transport, path, workdir)
        return bool(running_jobs(self.transport, workdir, agent).jobs)

    def take(self, also: str) -> Lease:
        """Take the board to measure on it: in the lab, then on itself.

        The epoch is above every epoch that this host or the lab ever had for the board. ``also`` is
        passed to :meth:`BoardLease.acquire`. Raises BoardBusy while another controller measures
        there, and the errors of ``acquire``.
        """
        token = new_own_token()
        above, given = self._last_epoch, None
        if self.in_lab is not None:
            above = self._take_in_lab(self.in_lab, token, minimum_epoch=above + 1) - 1
            given, token = self.in_lab.identity, self.in_lab.now.token
        taken = self.leases.acquire(
            self.lab.name,
            minimum_epoch=above,
            token=token,
            state=given,
            seen=self.seen,
            on_conflict=self._refuse_conflict,
            also=also,
        )
        if self.in_lab is not None:
            self.in_lab.raise_epoch(taken.epoch)
        self._have(taken)
        self._is_new = True
        write_atomic(self.epoch_file, f"{taken.epoch}\n")
        return taken

    def keep(self, lease: Lease) -> None:
        """Keep the board under a lease that an earlier process took.

        Raises BoardBusy, LeaseLost, HostError if somebody else has it in the lab.
        """
        if self.in_lab is not None:
            self._take_in_lab(self.in_lab, lease.token, keep_epoch=lease.epoch)
        self._have(lease)
        self.is_inherited = True

    def take_in_lab(self) -> None:
        """Take the board in the lab, against its other users; the board's lease stays as it is.

        Raises BoardBusy, HostError.
        """
        if self.in_lab is not None:
            left = self.in_lab.left_run(self.on_board)
            if left is not None and self._has_running_jobs():
                raise BoardBusy(f"{left.message}: a job runs there", hint=left.hint)
            self.in_lab.saw_idle()
            self._take_in_lab(self.in_lab, new_own_token(), minimum_epoch=self.fence.epoch + 1)

    def _take_in_lab(
        self, lab: LabLease, token: str, *, minimum_epoch: int = 0, keep_epoch: int = 0
    ) -> int:
        """Take the lab's lease; from then on nothing is sent without it. Return its epoch."""
        was_taken = lab.is_taken
        with naming_run(self.lab, self.board.name):
            epoch = lab.take(token, minimum_epoch=minimum_epoch, keep_epoch=keep_epoch)
        if not was_taken:
            self._locks.enter_context(self.transport.only_while(lab.check))
        return epoch

    def _have(self, lease: Lease) -> None:
        self.lease, self.is_inherited = lease, False
        self.see(LeaseStatus(lease, 0.0))

    def require(self) -> None:
        """Raise LeaseLost once the lab's lease has ended: nothing is recorded without it."""
        if self.in_lab is not None:
            self.in_lab.check()

    def refuse_if_kept_for_another(self) -> None:
        """Raise BoardBusy if the board is now kept for somebody else: no new trial begins."""
        if self.in_lab is not None:
            self.in_lab.refuse_if_kept_for_another()

    def check(self) -> None:
        """Raise LeaseLost once another controller has the board; else give a sign of life."""
        self.leases.check(self._own)

    def check_and_run(self, script: str, *, timeout: float) -> CommandResult:
        """Do as :meth:`check` does, and run a script with the same command."""
        return self.leases.check_and_run(self._own, script, timeout=timeout)

    def check_before_trial(self) -> None:
        """Do as :meth:`check`, except before the first trial under a new lease.

        A lease taken for the first trial has just been seen, and the agent that starts the trial
        checks its epoch.
        """
        is_new, self._is_new = self._is_new, False
        if not is_new:
            self.check()

    @property
    def epoch(self) -> int:
        """The epoch of the lease that this process holds."""
        return self._own.epoch

    @property
    def _own(self) -> Lease:
        assert self.lease is not None, "the board was not taken"
        return self.lease

    def release(self, script: str) -> None:
        """Release the board before the context ends, and run a script with the same command."""
        self.leases.release(self._own, also=script)
        self.lease = None

    def _release(self) -> None:
        # A lost board frees itself after some time, and the lab's lease ends, too.
        try:
            if self.lease is not None:
                with suppress(InfraError):
                    self.leases.release(self.lease)
        finally:
            if self.in_lab is not None:
                with suppress(InfraError):
                    self.in_lab.release()

    @property
    def _last_epoch(self) -> int:
        try:
            return int(self.epoch_file.read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            return 0
