"""A session with one board: its facts, its agent, its store, under a claim to it."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from labctl.board import (
    BoardAgent,
    BoardStore,
    Lease,
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
    check_features,
    check_machine,
    plan,
)
from labctl.deploy.send import deploy
from labctl.errors import ConfigError, HostError, LinkError
from labctl.performance.prediction import Rates, board_rates
from labctl.records import BoardFacts
from labctl.runs.board.claim import BoardClaim, board_state
from labctl.runs.board.lab_lease import BoardUse, hardware_of, lab_lease
from labctl.runs.board.own_tokens import is_own_token
from labctl.runs.board.state_changes import BoardChanges
from labctl.state import lab_state, this_user
from labctl.transport import BoardHash, Transport
from labctl.transport import board_state as link_state

PROBE_SECONDS = 20.0


@dataclass
class BoardSession:
    """Facts, agent and store of a claimed board. Methods raise LinkError and BoardError."""

    claim: BoardClaim
    lab: LabFile
    target: Target
    #: As its shell tells them; as its agent does once that is brought.
    facts: BoardFacts
    #: File that keeps the speed of its link.
    rate_file: Path
    #: Settings that an earlier controller changed may still be so.
    has_changes: bool = True
    _agent: BoardAgent | None = None
    #: What it lacks of the agent, and what the agent told then, once that was asked.
    _agent_plan: tuple[DeployPlan, str] | None = None

    def __post_init__(self) -> None:
        self.board = self.claim.board
        self.transport = self.claim.transport
        self.fence = self.claim.fence
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
    def rates(self) -> Rates | None:
        """Rates of the board: of its last probe, else of its target; None if neither has any."""
        return board_rates(self.lab.root, self.board.name, self.target)

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

    def bring_agent(self, on_sent: OnProgress, *, anew: bool = False) -> None:
        """Put the agent on the board; it tells the facts and makes all changes from then on.

        ``anew``: the one that is there is damaged. Raises ConfigError (agent not built, CPUs
        without the target's instructions), and what deploying and :meth:`BoardAgent.refine` raise.
        """
        wanted = self.agent_object
        self.claim.look()
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
        self.claim.check()
        return found

    def take_lease(self, wanted: Sequence[StoredObject] = ()) -> Lease:
        """Take the board to measure on it; with the same command look at its store and settings.

        What is ``wanted`` of the store is looked at as by :meth:`BoardStore.missing`. Raises what
        :meth:`BoardClaim.take` and that raise.
        """
        answers: dict[str, str] = {}
        changes, store = BoardChanges(self.fence).question, self.store.question(wanted)
        taken = self.claim.take(
            also=f"section changes; {changes}\nsection store; {store}", on_answers=answers.update
        )
        self.survivors.name(self.claim.leases.survivors)
        self.has_changes = bool(answers.get("changes", "unknown").strip())
        self.store.missing_in(answers.get("store", ""), wanted)
        return taken

    def hold_to_send(self) -> None:
        """Keep other controllers out while something is sent, until the context ends.

        A lease of this host's under which a job was left is kept, not replaced: a run that is
        resumed knows its trial by it. Raises as :meth:`take_lease` does.
        """
        before = self.claim.read()
        if before is not None and is_own_token(before.token) and self.agent.has_jobs():
            self.claim.keep(before)
            self.claim.check()
        else:
            self.take_lease()


@contextmanager
def hold_board(
    board: Board, transport: Transport, lab: LabFile, use: BoardUse | None
) -> Iterator[BoardSession]:
    """Lock a board and ask for its facts. Other hosts are kept out by leases alone.

    Without a ``use`` the lab's state is not asked: its lease is the caller's, or none is taken.
    Raises BoardBusy (another labctl of this host has it), ConfigError (target and board do not
    fit), and what probing raises. A board on which a process stays is put aside.
    """
    target = load_target(board.target, lab.root)
    state = board_state(transport.label, board)
    with BoardClaim(board, lab, transport, state) as claim:
        claim.lock()
        with explaining_full_storage(transport, board.workdir):
            script = f"{question(board.workdir)}{lease_question(board.workdir)}"
            with _recorded(lab, board, use):
                answers = ask(transport, script, timeout=PROBE_SECONDS)
            facts = facts_in(answers, transport, board.workdir)
            claim.met(answers, lab_lease(lab, board, use, hardware_of(board, facts)))
            claim.lock_boot(facts.boot_id)
            check_machine(target, facts)
            if facts.machine == target.machine:  # to a 32-bit shell the kernel tells other features
                check_features(target, facts)
            session = BoardSession(claim, lab, target, facts, state.with_suffix(".rate"))
            with session.survivors.noticed():
                yield session


@contextmanager
def _recorded(lab: LabFile, board: Board, use: BoardUse | None) -> Iterator[None]:
    """Record in the lab's state whether the board answers; who only reads the state shows it."""
    if use is None or not lab.path.is_file() or board.name not in lab.lab.boards:
        yield
        return
    try:
        yield
    except LinkError as error:
        if lab.lab.is_anywhere(board.name):  # another host may reach it
            error.of_host()
            raise
        # The board's own error counts, and is not kept waiting for a database.
        with suppress(ConfigError, HostError), patience(0.0):
            lab_state(lab).health.contacted(
                {board.name: link_state(error)}, by=this_user(), reason=error.message
            )
        raise
    lab_state(lab).health.contacted({board.name: link_state(None)}, by=this_user())
