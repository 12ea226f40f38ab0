"""A board held by this process: nobody else's on this host meanwhile, with the agent on it.

Controllers of other hosts are not driven out while they live; those of this host are known again by
the tokens of their leases.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from labctl.board import (
    BoardAgent,
    BoardLease,
    BoardStore,
    Fence,
    Lease,
    LeaseStatus,
    StoredObject,
    probe,
)
from labctl.board.facts import (
    agent_question,
    ask,
    explaining_full_storage,
    facts_in,
    question,
    tells_facts,
)
from labctl.board.lease import lease_question
from labctl.board.running_jobs import Survivors
from labctl.build import Artifact
from labctl.config.lab import Board, LabFile
from labctl.config.target import Target, load_target
from labctl.database import patience
from labctl.deploy import DeployOptions, Object, OnProgress, agent_object
from labctl.deploy.plan import (
    AGENT_PRODUCT,
    DeployPlan,
    agent_artifact,
    agents_in,
    check_features,
    check_machine,
    plan,
)
from labctl.deploy.send import deploy
from labctl.errors import ConfigError, HostError, InfraError, LinkError
from labctl.files import write_atomic
from labctl.performance.prediction import Rates, board_rates
from labctl.records import BoardFacts
from labctl.runs.board.in_use import (
    BoardUse,
    LabLease,
    Whose,
    board_state,
    hardware_of,
    lab_lease,
    lock_board,
    refuse_conflict,
)
from labctl.runs.board.own_tokens import is_own_token, new_own_token
from labctl.runs.board.state_changes import BoardChanges
from labctl.state import lab_state, this_user
from labctl.transport import BoardHash, CommandResult, Transport
from labctl.transport import board_state as link_state

PROBE_SECONDS = 20.0


@dataclass
class HeldBoard:
    """A board that is ours until the context ends. Methods raise LinkError and BoardError."""

    board: Board
    lab: LabFile
    target: Target
    #: As its shell tells them; as its agent does once that is brought.
    facts: BoardFacts
    transport: Transport
    #: What this host remembers of the board; a suffix says what.
    state: Path
    #: What is done when the context ends.
    ending: ExitStack
    #: By which all changes of the board are made.
    fence: Fence = field(init=False)
    leases: BoardLease = field(init=False)
    survivors: Survivors = field(init=False)
    #: What this process holds; it may have been taken by an earlier one.
    lease: Lease | None = None
    #: Whether an earlier process took it: a job that it began may be under way.
    has_inherited_lease: bool = False
    #: Its lease in the lab's state; None for a board that is in no lab.
    in_lab: LabLease | None = None
    #: Nothing is sent without the lab's lease.
    _is_permitted: bool = False
    _agent: BoardAgent | None = None
    _has_looked: bool = False
    #: Settings that an earlier controller changed may still be so.
    has_changes: bool = True
    #: The lease was taken by this process, and no trial has begun under it.
    _is_new: bool = False
    _seen: LeaseStatus | None = None
    #: How it answered to the first question for its lease, until that is wanted.
    _answers: Mapping[str, str] | None = None
    #: What it lacks of the agent, and what the agent told then, once that was asked.
    _agent_plan: tuple[DeployPlan, str] | None = None

    def __post_init__(self) -> None:
        self.fence = Fence(self.transport, self.board.workdir)
        self.leases = BoardLease(self.transport, self.board.workdir, fence=self.fence)
        self.survivors = Survivors(self.lab, self.board)

    @property
    def agent(self) -> BoardAgent:
        """The agent, once it is brought."""
        assert self._agent is not None
        return self._agent

    @property
    def store(self) -> BoardStore:
        """Its store; once the agent is brought, that does the hashing."""
        words = ("sha256sum",) if self._agent is None else (self._agent.path, "hash")
        return BoardStore(self.transport, self.board.workdir, hash_command=words, fence=self.fence)

    @property
    def rate_file(self) -> Path:
        """File that keeps the speed of its link."""
        return self.state.with_suffix(".rate")

    @property
    def epoch_file(self) -> Path:
        """File that keeps the last epoch that this host had of the board."""
        return self.state.with_suffix(".epoch")

    @property
    def rates(self) -> Rates | None:
        """Rates of the board: of its last probe, else of its target; None if neither has any."""
        return board_rates(self.lab.root, self.board.name, self.target)

    def lock_boot(self, boot_id: str) -> None:
        """Keep others of this host out in this boot, by whatever address. Raises BoardBusy."""
        lock = board_state(boot_id, self.board).with_suffix(".lock")
        self.ending.enter_context(lock_board(self.board, lock))

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

    def _lease_status(self) -> LeaseStatus | None:
        """Return the lease as it was when the facts were asked, unless its holder lived then."""
        answers, self._answers = self._answers, None
        seen = self.leases.status_in(answers) if answers is not None else None
        return self.leases.status() if answers is None or (seen and seen.alive) else seen

    def _refuse_conflict(self, before: LeaseStatus, *, orphans: bool = False) -> None:
        given = self.in_lab is not None and self.in_lab.gave(before.lease)
        whose = Whose(self.lab.name, given or is_own_token(before.lease.token), orphans)
        refuse_conflict(self.board, self.transport, before, self._any_agent, whose)

    def _any_agent(self) -> BoardAgent | None:
        """Return an agent of any version on the board; without one, no job can run there."""
        if self._agent is None and (found := agents_in(self.store)):
            return BoardAgent(self.transport, self.store.path(found[0].sha256), self.board.workdir)
        return self._agent

    @cached_property
    def agent_artifact(self) -> Artifact:
        """The agent for the board, as built last. Raises ConfigError if it is not built yet."""
        return agent_artifact(self.facts.machine, self.target, self.lab.root)

    @cached_property
    def agent_object(self) -> Object:
        """The agent's file on this host. Raises ConfigError if it is not built yet."""
        return agent_object(self.facts, lambda _machine: self.agent_artifact.tool(AGENT_PRODUCT))

    def plan(self, wanted: Collection[Object]) -> DeployPlan:
        """Ask which files are missing on the board; an agent that is there gives its facts, too.

        Raises LinkError, BoardError, ConfigError: CPUs without the target's instructions.
        """
        try:
            agent = self.agent_object if self._agent is None else None
        except ConfigError:
            agent = None  # it is to be built; else `bring_agent` says so
        if agent is None:
            return plan(self.store, wanted)
        path = self.store.path(agent.sha256)
        ask, answers = agent_question(path), dict[str, str]()
        found = plan(self.store, [*wanted, agent], also=ask, on_answers=answers.update)
        self._agent_plan = found.of([agent]), (facts := answers.get("facts", ""))
        if tells_facts(facts):
            self._refine(BoardAgent(self.transport, path, self.board.workdir), facts)
        return found.of(wanted)

    def _refine(self, agent: BoardAgent, told: str) -> None:
        """Take the agent's facts, which know more than the shell's. Raises ConfigError."""
        self.facts = agent.refine(self.facts, told)
        check_features(self.target, self.facts)

    def _saw(self, lease: Lease | None) -> None:
        """Let nothing be changed on the board once a newer lease than this one is there."""
        self._has_looked = True
        if self.lease is None:
            self.fence.epoch = lease.epoch if lease else 0

    def bring_agent(self, on_sent: OnProgress, *, anew: bool = False) -> None:
        """Put the agent on the board; it tells the facts and makes all changes from then on.

        ``anew``: the one that is there is damaged. Raises ConfigError (agent not built, CPUs
        without the target's instructions), and what deploying and :meth:`BoardAgent.refine` raise.
        """
        wanted = self.agent_object
        if not self._has_looked:
            self._saw(self.leases.read())
        asked, self._agent_plan = self._agent_plan, None
        if anew or asked is None:
            asked = (DeployPlan((wanted,), (wanted,)) if anew else plan(self.store, [wanted])), ""
        missing, told = asked
        paths = deploy(self.store, missing, DeployOptions(progress=on_sent))
        self.fence.agent, self.fence.is_old = paths[wanted.sha256], False
        self._agent = BoardAgent(self.transport, self.fence.agent, self.board.workdir, self.fence)
        self._agent.on_survivors = self.survivors.name
        self.transport.use_hash(BoardHash("sha256", (self._agent.path, "hash")))
        self._refine(self._agent, told)

    def look_again(self) -> BoardFacts:
        """Ask for its facts again. Raises LeaseLost as well."""
        found = probe(self.transport, workdir=self.board.workdir, timeout=PROBE_SECONDS)
        found = self.agent.refine(found)
        self.check_lease()
        return found

    def take_lease(self, wanted: Sequence[StoredObject] = ()) -> Lease:
        """Take the board to measure on it, until the context ends: in the lab, then on itself.

        The epoch is above every one that this host has ever had of the board, and the lab. With the
        same command what is ``wanted`` of the store is looked at, as by :meth:`BoardStore.missing`.
        Raises BoardBusy while another controller measures there, and what
        :meth:`BoardLease.acquire` and that raise.
        """
        token = new_own_token()
        above, given = self._last_epoch or 0, None
        if self.in_lab is not None:
            above = self._take_in_lab(token, minimum_epoch=above + 1) - 1
            given, token = self.in_lab.identity, self.in_lab.now.token
        answers: dict[str, str] = {}
        changes, store = BoardChanges(self.fence).question, self.store.question(wanted)
        taken = self.leases.acquire(
            self.lab.name,
            minimum_epoch=above,
            token=token,
            state=given,
            seen=self._seen,
            on_conflict=self._refuse_conflict,
            also=f"section changes; {changes}\nsection store; {store}",
            on_answers=answers.update,
        )
        self.survivors.name(self.leases.survivors)
        if self.in_lab is not None:
            self.in_lab.raise_epoch(taken.epoch)
        self._hold(taken)
        self._is_new = True
        write_atomic(self.epoch_file, f"{taken.epoch}\n")
        self.has_changes = bool(answers.get("changes", "unknown").strip())
        self.store.missing_in(answers.get("store", ""), wanted)
        return taken

    def keep_lease(self, lease: Lease) -> None:
        """Have the board, until the context ends, under a lease that an earlier process took.

        Raises BoardBusy, LeaseLost, HostError: another has it in the lab.
        """
        if self.in_lab is not None:
            self._take_in_lab(lease.token, keep_epoch=lease.epoch)
        self._hold(lease)
        self.has_inherited_lease = True

    def _take_in_lab(self, token: str, *, minimum_epoch: int = 0, keep_epoch: int = 0) -> int:
        """Have the lab's lease; from then on nothing is sent without it. Return its epoch."""
        assert self.in_lab is not None
        if not self._is_permitted:
            self._is_permitted = True
            self.ending.enter_context(self.transport.only_while(self.in_lab.check))
            self.ending.callback(self._leave_lab)
        return self.in_lab.take(token, minimum_epoch=minimum_epoch, keep_epoch=keep_epoch)

    def hold_in_lab(self) -> None:
        """Keep other users of the lab out until the context ends; the board's lease stays as it is.

        Raises BoardBusy, HostError.
        """
        if self.in_lab is not None:
            before = self.leases.read()
            self._take_in_lab(new_own_token(), minimum_epoch=before.epoch + 1 if before else 0)

    def _leave_lab(self) -> None:
        assert self.in_lab is not None
        with suppress(InfraError):  # it ends by itself
            self.in_lab.release()

    def require_lease(self) -> None:
        """Raise LeaseLost once the lab's lease is over: nothing is recorded without it."""
        if self.in_lab is not None:
            self.in_lab.check()

    def refuse_if_kept_for_another(self) -> None:
        """Raise BoardBusy when the board's time now is another's: no new trial begins."""
        if self.in_lab is not None:
            self.in_lab.refuse_if_kept_for_another()

    def _hold(self, lease: Lease) -> None:
        if self.lease is None:
            self.ending.callback(self._release)
        self.lease, self.has_inherited_lease, self._seen = lease, False, None
        self.fence.epoch = lease.epoch

    def check_lease(self) -> None:
        """Raise LeaseLost once another controller has the board; else give a sign of life."""
        assert self.lease is not None
        self.leases.check(self.lease)

    def check_lease_and_run(self, script: str, *, timeout: float) -> CommandResult:
        """Do as :meth:`check_lease` does, and run a script with the same command."""
        assert self.lease is not None
        return self.leases.check_and_run(self.lease, script, timeout=timeout)

    def check_lease_before_trial(self) -> None:
        """As :meth:`check_lease`; a lease that was taken for the first trial has just been seen.

        The agent that starts the trial looks at its epoch again.
        """
        is_new, self._is_new = self._is_new, False
        if not is_new:
            self.check_lease()

    @property
    def epoch(self) -> int:
        """The epoch of the lease that this process holds."""
        assert self.lease is not None
        return self.lease.epoch

    def hold_to_send(self) -> None:
        """Keep other controllers out while something is sent, until the context ends.

        A lease of this host's under which a job was left is kept, not replaced: a run that is
        resumed knows its trial by it. Raises as :meth:`take_lease` does.
        """
        before = self.leases.read()
        self._saw(before)
        if before is not None and is_own_token(before.token) and self.agent.has_jobs():
            self.keep_lease(before)
            self.check_lease()
        else:
            self.take_lease()

    def release(self, script: str) -> None:
        """Let the board go before the context ends, and run a script with the same command."""
        assert self.lease is not None
        self.leases.release(self.lease, also=script)
        self.lease = None

    def _release(self) -> None:
        with suppress(InfraError):  # a board that is gone frees itself in time
            if self.lease is not None:
                self.leases.release(self.lease)

    @property
    def _last_epoch(self) -> int | None:
        try:
            return int(self.epoch_file.read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            return None


@contextmanager
def hold_board(
    board: Board, transport: Transport, lab: LabFile, use: BoardUse | None
) -> Iterator[HeldBoard]:
    """Lock a board and ask for its facts. Other hosts are kept out by leases alone.

    Without a ``use`` the lab's state is not asked: its lease is the caller's, or none is taken.
    Raises BoardBusy (another labctl of this host has it), ConfigError (target and board do not
    fit), and what probing raises. A board on which a process stays is put aside.
    """
    target = load_target(board.target, lab.root)
    state = board_state(transport.label, board)
    with ExitStack() as ending:
        ending.enter_context(lock_board(board, state.with_suffix(".lock")))
        ending.enter_context(explaining_full_storage(transport, board.workdir))
        script = f"{question(board.workdir)}{lease_question(board.workdir)}"
        with _recorded(lab, board, use):
            answers = ask(transport, script, timeout=PROBE_SECONDS)
        facts = facts_in(answers, transport, board.workdir)
        held = HeldBoard(board, lab, target, facts, transport, state, ending, _answers=answers)
        held.in_lab = lab_lease(lab, board, use, hardware_of(board, facts))
        held.lock_boot(facts.boot_id)
        check_machine(target, facts)
        if facts.machine == target.machine:  # to a 32-bit shell the kernel tells other features
            check_features(target, facts)
        ending.enter_context(held.survivors.noticed())
        yield held


@contextmanager
def _recorded(lab: LabFile, board: Board, use: BoardUse | None) -> Iterator[None]:
    """Record in the lab's state whether the board answers; who only reads the state shows it."""
    if use is None or not lab.path.is_file() or board.name not in lab.lab.boards:
        yield
        return
    try:
        yield
    except LinkError as error:
        # The board's own error counts, and is not kept waiting for a database.
        with suppress(ConfigError, HostError), patience(0.0):
            lab_state(lab).health.contacted(
                {board.name: link_state(error)}, by=this_user(), reason=error.message
            )
        raise
    lab_state(lab).health.contacted({board.name: link_state(None)}, by=this_user())
