"""Untrusted recipes of the queue: copies of their files, their run, the inspection of the board.

When a pull request's job begins, its checkout is gone or has changed. So the job's files are copied
to ``untrusted/JOB/`` in the lab's folder, with their digests; other hosts get them from the shared
store.

Its programs may have all rights on the board, so nothing there is trusted: a new agent is sent,
everything in the board store is hashed again, and a health check compares the board's speed with
its history. A changed board is quarantined: its health is bad, with the evidence. Until the
inspection has ended its health is bad too, also if this process dies: the next untrusted run begins
with the inspection.
"""

import os
import shutil
import stat
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

from labctl.board.store import StoredObject
from labctl.config.lab import Board, LabFile
from labctl.config.recipe import Recipe
from labctl.errors import BoardBusy, ConfigError, JobError, LabctlError, LeaseLost
from labctl.farm.health.checking import check
from labctl.files import host_reads, host_writes
from labctl.records.board import BoardFacts, Execution
from labctl.records.events import AnyEvent, Contact
from labctl.removal import remove_tree
from labctl.runs.board.lab_lease import BoardUse
from labctl.runs.board.session import BoardSession, hold_board
from labctl.runs.inputs.untrusted_recipe import Workspace, check_board, with_paths
from labctl.runs.observer import Observer
from labctl.runs.run import RunRequest, run_recipe
from labctl.runs.runner import Outcome
from labctl.state.health import (
    BY_PEOPLE,
    NOT_LOOKED_THROUGH,
    UNTRUSTED,
    Health,
    untrusted_use,
)
from labctl.state.state import LabState, lab_state
from labctl.suggestions import listed
from labctl.transport.base import Transport

FOLDER = "untrusted"
#: For this time (s), a folder without a job may belong to a job that is being submitted.
_SUBMITTING_SECONDS = 3600.0


def take_files(recipe: Recipe, lab_root: Path, job: str) -> Recipe:
    """Copy the files of a recipe within its workspace into the lab; return it with the copies.

    Replaces copies of an earlier process that did not submit the job. Raises HostError,
    ConfigError.
    """
    discard_files(lab_root, job)
    numbers = count()

    def taken(text: str) -> str:
        source = Path(text)
        name = f"{FOLDER}/{job}/{next(numbers)}/{source.name}"
        with host_writes(lab_root / name):
            (lab_root / name).parent.mkdir(parents=True)
        _copy(source, lab_root / name)
        return name

    with host_writes(lab_root / FOLDER):
        (lab_root / FOLDER).mkdir(mode=0o700, exist_ok=True)
    return with_paths(recipe, taken)


def check_paths(recipe: Recipe, lab_root: Path, job: str) -> None:
    """Raise ConfigError for a job with requests that an untrusted recipe may not make."""
    workspace = Workspace((lab_root / FOLDER / job).resolve())
    wanted = with_paths(recipe, lambda text: str(lab_root / text))
    for path, sentence in workspace.problems(wanted):
        where = ".".join(map(str, path))
        raise ConfigError(f"the job is not of an untrusted recipe: {where}: {sentence}")


def discard_files(lab_root: Path, job: str) -> None:
    """Remove the files of a job that has ended."""
    remove_tree(lab_root / FOLDER / job)


def discard_ended(lab_root: Path, state: LabState) -> None:
    """Remove the files of jobs that ended elsewhere, were cancelled or given up."""
    for folder in sorted((lab_root / FOLDER).glob("*")):
        job = state.jobs.get(folder.name)
        try:
            young = time.time() - folder.stat().st_mtime < _SUBMITTING_SECONDS
        except FileNotFoundError:
            continue  # another process was faster
        if (job is None and not young) or (job is not None and job.ended_at is not None):
            discard_files(lab_root, folder.name)


def _copy(source: Path, to: Path) -> None:
    """Copy a plain file; refuse a link."""
    with host_reads(source):
        file = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(file, "rb") as reading, host_writes(to), to.open("xb") as writing:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise ConfigError(f"{source} is no longer a file")
        shutil.copyfileobj(reading, writing)


Connect = Callable[[Board], Transport]
#: Author of the health.
_BY = "labctl run --untrusted"


def run_untrusted(request: RunRequest, connect: Connect, observer: Observer) -> Outcome:
    """Run an untrusted recipe on a board that is marked for it, and inspect the board.

    Raises what :func:`labctl.runs.run.run_recipe` raises; ConfigError for a board that takes no
    untrusted recipes and for an emulated board, whose programs run on a host; JobError if the
    recipe changed the board.
    """
    board = request.board
    check_board(board)
    use = inspection_of(request.use)
    if not look_if_due(request.lab, board, connect, observer, use):
        lab_state(request.lab).health.get(board.name).require_work()
    look = _Inspection(request.lab, board, connect, observer, use)

    def require_real(facts: BoardFacts) -> None:
        if facts.execution is not Execution.BOARD:
            raise ConfigError(
                f"board {board.name} is not real hardware ({facts.execution}): an"
                " untrusted recipe would run its programs on the host of its emulator",
                hint="choose a real board",
            )

    def begin(held: BoardSession) -> None:
        # The board may have turned bad while models were fetched; from now on it is ours.
        lab_state(request.lab).health.get(board.name).require_work()
        look.begin(held.store.contents())

    wanted = replace(request, untrusted=True, check_board=require_real, before_use=begin)
    try:
        outcome = run_recipe(wanted, connect, observer)
    except BaseException:
        if look.is_due:
            with suppress(LabctlError):  # it is reported in the board's health
                look.look()
        raise
    look.look()
    return outcome


def inspection_of(use: BoardUse) -> BoardUse:
    """Return the use of a board for its inspection, as a part of the job of another use."""
    what = "inspect the board after an untrusted recipe"
    return BoardUse(what, job=use.job, attempt=use.attempt, kind="inspection")


def look_if_due(
    lab: LabFile, board: Board, connect: Connect, observer: Observer, use: BoardUse
) -> bool:
    """Inspect a board if an earlier untrusted run did not; return True if it was inspected.

    Raises as :func:`run_untrusted` does; BoardBusy while an untrusted run has the board.
    """
    healths = lab_state(lab).health
    health = healths.get(board.name)
    healths.refuse_untrusted_use(health)
    if health.awaits_look:
        _Inspection(lab, board, connect, observer, use).look()
    return health.awaits_look


@dataclass
class _Inspection:
    """Inspection of a board after an untrusted recipe; the board's health shows its result."""

    lab: LabFile
    board: Board
    connect: Connect
    observer: Observer
    use: BoardUse
    #: Files in the board store before the run, with the agent: they must exist afterwards.
    kept: Sequence[StoredObject] = ()
    is_due: bool = False

    def begin(self, kept: Sequence[StoredObject]) -> None:
        """Block other work on the board until the inspection has ended."""
        self.kept, self.is_due = kept, True
        self._mark()

    def _mark(self) -> None:
        self._set_health(Health.BAD, NOT_LOOKED_THROUGH, untrusted_use(os.getpid()))

    def look(self) -> None:
        """Inspect the board, and record the result.

        Raises JobError if the board was changed, and what :meth:`damaged` and the health check
        raise.
        """
        board = self.board
        try:
            damaged = self.damaged()
            if not damaged:
                heard = Observer(self._hear)
                use = replace(self.use, kind="check")
                result = check(self.lab, board, self.connect, heard, looked_through=True, use=use)
                if result.health.may_work:
                    return
                reason = result.verdict.reason
        except BaseException as error:
            self._leave_due(error)
            raise
        if damaged:
            reason = f"an untrusted recipe changed {listed(damaged, joiner='and')}"
            self._set_health(Health.BAD, reason, {UNTRUSTED: reason, "damaged": damaged})
        self.observer.note(f"board {board.name} is quarantined: {reason}")
        raise JobError(
            f"board {board.name} is quarantined: {reason}",
            hint=f"`labctl boards history {board.name}` shows the evidence; only a new system image"
            " is a sure remedy",
        )

    def _leave_due(self, error: BaseException) -> None:
        """Leave the inspection to the next untrusted run."""
        reason = NOT_LOOKED_THROUGH
        if isinstance(error, LabctlError) and not isinstance(error, BoardBusy | LeaseLost):
            reason += f": {error.message}"
            self.observer.note(f"board {self.board.name}: {reason}")
        elif not self.is_due:
            return  # the process that has the board sets its health
        self._set_health(Health.BAD, reason, {UNTRUSTED: NOT_LOOKED_THROUGH})

    def _hear(self, event: AnyEvent) -> None:
        if not isinstance(event, Contact):  # by the health check's own run
            self.observer.tell(event)

    def damaged(self) -> list[str]:
        """Send a new agent to the board, end all processes of jobs there, and hash its store.

        Returns the files that were changed or are missing; changed ones are removed. Raises what
        :func:`labctl.runs.board.session.hold_board` raises, LinkError, BoardError.
        """
        board, lab = self.board, self.lab
        with self.connect(board) as transport, hold_board(board, transport, lab, self.use) as held:
            held.survivors.note = self.observer.note
            held.claim.refuse_if_taken()
            held.claim.take_in_lab()
            self.is_due = True
            self._mark()
            there, agent = held.store.contents(), held.agent_object.stored
            damaged = [item for item in self.kept if item not in there]
            # Only a program on the board could verify the agent there, so the agent is always
            # replaced.
            damaged += held.store.verify([item for item in there if item == agent])
            held.bring_agent(lambda _item, _done: None, anew=True)
            # This ends all jobs and processes that outlived their supervisors: nothing may change
            # the files under inspection.
            held.take_lease()
            sizes = {item.sha256: item.size_bytes for item in self.kept}
            for item in there:
                if sizes.get(item.sha256, item.size_bytes) != item.size_bytes:
                    held.store.remove(item.sha256)
                elif not item.is_whole:  # a sparse file may take hours to hash
                    held.store.remove(item.sha256)
                    damaged.append(item)
                elif item != agent:
                    self.observer.measuring(f"hash {item.name or item.sha256}")
                    damaged += held.store.verify([item])
        return list(dict.fromkeys(item.name or item.sha256 for item in damaged))

    def _set_health(
        self, health: Health, reason: str, evidence: dict[str, Any] | None = None
    ) -> None:
        lab_state(self.lab).health.set(
            self.board.name,
            health,
            reason=reason,
            by=_BY,
            evidence=evidence,
            unless=BY_PEOPLE,
        )
