"""A claim to one board: the lock of this host, the lease of the lab, the lease on the board.

All that it took is given up in one place. Controllers of other hosts are not driven out while they
live; those of this host are known again by the tokens of their leases.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Self

from labctl.board import (
    ALIVE_SECONDS,
    BoardAgent,
    BoardLease,
    BoardStore,
    Fence,
    Lease,
    LeaseStatus,
)
from labctl.board.running_jobs import running_jobs
from labctl.config.lab import Board, LabFile
from labctl.deploy.plan import agents_in
from labctl.errors import BoardBusy, HostTimeout, InfraError
from labctl.files import locked, state_dir, write_atomic
from labctl.runs.board.lab_lease import LabLease
from labctl.runs.board.own_tokens import is_own_token, new_own_token
from labctl.transport import CommandResult, Transport


def board_state(way: str, board: Board) -> Path:
    """Return this host's folder for a workdir, by its address or by the boot that it is on."""
    key = hashlib.sha256(f"{way}\n{board.workdir}".encode()).hexdigest()[:16]
    return state_dir() / "boards" / key


@contextmanager
def lock_board(board: Board, lock: Path) -> Iterator[None]:
    """Keep other processes of this host out of a board. Raises BoardBusy."""
    held = False
    try:
        with locked(lock, timeout=0, holder="another labctl"):
            held = True
            yield
    except HostTimeout as error:
        if held:
            raise
        raise BoardBusy(
            f"board {board.name} is in use: {error.message}", hint=error.hint
        ) from error


class BoardClaim:
    """The hold of this process on a board, from its taking to the end of the context.

    ``state`` is what this host remembers of the board; a suffix says what. Methods raise LinkError
    and BoardError.
    """

    def __init__(self, board: Board, lab: LabFile, transport: Transport, state: Path):
        self.board = board
        self.lab = lab
        self.transport = transport
        #: By which all changes of the board are made.
        self.fence = Fence(transport, board.workdir)
        self.leases = BoardLease(transport, board.workdir, fence=self.fence)
        #: On the board; it may have been taken by an earlier process.
        self.lease: Lease | None = None
        #: Whether an earlier process took it: a job that it began may be under way.
        self.is_inherited = False
        #: In the lab's state; None for a board that is in no lab.
        self.in_lab: LabLease | None = None
        #: File that keeps the last epoch that this host had of the board.
        self.epoch_file = state.with_suffix(".epoch")
        self._lock_file = state.with_suffix(".lock")
        #: It was taken by this process, and no trial has begun under it.
        self._is_new = False
        self._has_looked = False
        self._seen: LeaseStatus | None = None
        #: How it answered to the first question for its lease, until that is wanted.
        self._answers: Mapping[str, str] | None = None
        self._ending = ExitStack()
        self._locks = self._ending.enter_context(ExitStack())
        self._ending.callback(self._release)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.give_up()

    def give_up(self) -> None:
        """Let all of it go: on the board, in the lab, on this host."""
        self._ending.close()

    def lock(self) -> None:
        """Keep others of this host out, by this address. Raises BoardBusy."""
        self._locks.enter_context(lock_board(self.board, self._lock_file))

    def lock_boot(self, boot_id: str) -> None:
        """Keep others of this host out in this boot, by whatever address. Raises BoardBusy."""
        lock = board_state(boot_id, self.board).with_suffix(".lock")
        self._locks.enter_context(lock_board(self.board, lock))

    def met(self, answers: Mapping[str, str], in_lab: LabLease | None) -> None:
        """Take note of what the board answered to :func:`labctl.board.lease.lease_question`.

        ``in_lab`` is the lease to take in the lab; None for none.
        """
        self._answers, self.in_lab = answers, in_lab

    def look(self) -> None:
        """See whose epoch is on the board, unless that was seen."""
        if not self._has_looked:
            self.read()

    def read(self) -> Lease | None:
        """Read the lease on the board, whoever has it."""
        before = self.leases.read()
        self._saw(before)
        return before

    def _saw(self, lease: Lease | None) -> None:
        """Let nothing be changed on the board once a newer lease than this one is there."""
        self._has_looked = True
        if self.lease is None:
            self.fence.epoch = lease.epoch if lease else 0

    def refuse_if_taken(
        self, *, ours: Callable[[Lease], bool] | None = None, orphans: bool = False
    ) -> None:
        """Raise BoardBusy while another controller measures there; nothing is sent to find out.

        A lease that is ``ours`` is none of another's. With ``orphans`` a job of this host's whose
        controller died keeps the board as well: a resumed run takes it over.
        """
        if self.in_lab is not None:
            self.in_lab.refuse_if_taken()
        before = self._seen = self._lease_status()
        self._saw(before.lease if before else None)
        if before is not None and not (ours and ours(before.lease)):
            self._refuse_conflict(before, orphans=orphans)
        elif before is None and self.in_lab is not None:
            self.in_lab.saw_idle()

    def _lease_status(self) -> LeaseStatus | None:
        """Return the lease as it was when the facts were asked, unless its holder lived then."""
        answers, self._answers = self._answers, None
        seen = self.leases.status_in(answers) if answers is not None else None
        return self.leases.status() if answers is None or (seen and seen.alive) else seen

    def _refuse_conflict(self, before: LeaseStatus, *, orphans: bool = False) -> None:
        """Raise BoardBusy rather than drive out a controller that is alive, or whose job runs."""
        lease = before.lease
        given = self.in_lab is not None and self.in_lab.gave(lease)
        is_over = given or is_own_token(lease.token)  # this host or the lab's state gave it
        left = self.in_lab.left_run(lease) if self.in_lab is not None else None
        if is_over and not orphans and left is None:
            return  # its holder is dead: the lock is ours
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

    def take(
        self,
        *,
        also: str = "",
        on_answers: Callable[[Mapping[str, str]], None] = lambda _answers: None,
    ) -> Lease:
        """Take the board to measure on it: in the lab, then on itself.

        The epoch is above every one that this host has ever had of the board, and the lab. ``also``
        and ``on_answers`` are those of :meth:`BoardLease.acquire`. Raises BoardBusy while another
        controller measures there, and what that raises.
        """
        token = new_own_token()
        above, given = self._last_epoch, None
        if self.in_lab is not None:
            above = self._take_in_lab(token, minimum_epoch=above + 1) - 1
            given, token = self.in_lab.identity, self.in_lab.now.token
        taken = self.leases.acquire(
            self.lab.name,
            minimum_epoch=above,
            token=token,
            state=given,
            seen=self._seen,
            on_conflict=self._refuse_conflict,
            also=also,
            on_answers=on_answers,
        )
        if self.in_lab is not None:
            self.in_lab.raise_epoch(taken.epoch)
        self._have(taken)
        self._is_new = True
        write_atomic(self.epoch_file, f"{taken.epoch}\n")
        return taken

    def keep(self, lease: Lease) -> None:
        """Have the board under a lease that an earlier process took.

        Raises BoardBusy, LeaseLost, HostError: another has it in the lab.
        """
        if self.in_lab is not None:
            self._take_in_lab(lease.token, keep_epoch=lease.epoch)
        self._have(lease)
        self.is_inherited = True

    def take_in_lab(self) -> None:
        """Keep other users of the lab out; the board's lease stays as it is.

        Raises BoardBusy, HostError.
        """
        if self.in_lab is not None:
            before = self.leases.read()
            left = self.in_lab.left_run(before)
            if left is not None and self._has_running_jobs():
                raise BoardBusy(f"{left.message}: a job runs there", hint=left.hint)
            self.in_lab.saw_idle()
            self._take_in_lab(new_own_token(), minimum_epoch=before.epoch + 1 if before else 0)

    def _take_in_lab(self, token: str, *, minimum_epoch: int = 0, keep_epoch: int = 0) -> int:
        """Have the lab's lease; from then on nothing is sent without it. Return its epoch."""
        assert self.in_lab is not None
        was_taken = self.in_lab.is_taken
        epoch = self.in_lab.take(token, minimum_epoch=minimum_epoch, keep_epoch=keep_epoch)
        if not was_taken:
            self._locks.enter_context(self.transport.only_while(self.in_lab.check))
        return epoch

    def _have(self, lease: Lease) -> None:
        self.lease, self.is_inherited, self._seen = lease, False, None
        self.fence.epoch = lease.epoch

    def require(self) -> None:
        """Raise LeaseLost once the lab's lease is over: nothing is recorded without it."""
        if self.in_lab is not None:
            self.in_lab.check()

    def refuse_if_kept_for_another(self) -> None:
        """Raise BoardBusy when the board's time now is another's: no new trial begins."""
        if self.in_lab is not None:
            self.in_lab.refuse_if_kept_for_another()

    def check(self) -> None:
        """Raise LeaseLost once another controller has the board; else give a sign of life."""
        assert self.lease is not None
        self.leases.check(self.lease)

    def check_and_run(self, script: str, *, timeout: float) -> CommandResult:
        """Do as :meth:`check` does, and run a script with the same command."""
        assert self.lease is not None
        return self.leases.check_and_run(self.lease, script, timeout=timeout)

    def check_before_trial(self) -> None:
        """As :meth:`check`; a lease that was taken for the first trial has just been seen.

        The agent that starts the trial looks at its epoch again.
        """
        is_new, self._is_new = self._is_new, False
        if not is_new:
            self.check()

    @property
    def epoch(self) -> int:
        """The epoch of the lease that this process holds."""
        assert self.lease is not None
        return self.lease.epoch

    def release(self, script: str) -> None:
        """Let the board go before the context ends, and run a script with the same command."""
        assert self.lease is not None
        self.leases.release(self.lease, also=script)
        self.lease = None

    def _release(self) -> None:
        # A board that is gone frees itself in time, and so does the lab's lease.
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
