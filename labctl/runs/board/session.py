"""A session with one board under a claim: its facts, its agent, its store."""

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from labctl.board.agent import BoardAgent
from labctl.board.facts import (
    agent_question,
    ask,
    explaining_full_storage,
    facts_in,
    free_bytes,
    probe,
    question,
    tells_facts,
)
from labctl.board.lease import Lease, lease_question
from labctl.board.running_jobs import Survivors
from labctl.board.store import BoardStore
from labctl.build.artifact import Artifact
from labctl.config.lab import Board, LabFile
from labctl.config.recipe_parts import Conditions
from labctl.config.target import Target, load_target
from labctl.database.base import patience
from labctl.deploy.plan import (
    AGENT_PRODUCT,
    SPARE_BYTES,
    DeployPlan,
    Object,
    agent_artifact,
    agent_object,
    check_features,
    check_machine,
    plan,
)
from labctl.deploy.send import DeployOptions, OnProgress, deploy
from labctl.errors import BoardError, ConfigError, HostError, LinkError
from labctl.performance.prediction import Rates, board_rates
from labctl.records.board import BoardFacts
from labctl.runs.board.claim import BoardClaim, board_state
from labctl.runs.board.conditions import BoardConditions
from labctl.runs.board.lab_lease import BoardUse
from labctl.runs.board.own_tokens import is_own_token
from labctl.runs.board.state_changes import BoardChanges
from labctl.state.events import this_user
from labctl.state.state import lab_state
from labctl.transport.base import Transport, remote_words
from labctl.transport.file_transfer import BoardHash
from labctl.transport.readiness import board_state as link_state
from labctl.virtual.marks import BOOT_ID

PROBE_SECONDS = 20.0
#: The number of pages that the kernel keeps for itself differs a little from boot to boot.
_MEMORY_TOLERANCE = 0.02


@dataclass
class BoardSession:
    """Facts, agent and store of a claimed board. Methods raise LinkError and BoardError."""

    claim: BoardClaim
    lab: LabFile
    target: Target
    #: From its shell; from its agent once the agent is there.
    facts: BoardFacts
    #: File that keeps the speed of its link.
    rate_file: Path
    #: True if changes of an earlier controller may remain.
    has_changes: bool = True
    _agent: BoardAgent | None = None

    def __post_init__(self) -> None:
        self.board = self.claim.board
        self.transport = self.claim.transport
        self.fence = self.claim.fence
        self.survivors = Survivors(self.lab, self.board)

    @property
    def agent(self) -> BoardAgent:
        """The agent, once it was sent."""
        assert self._agent is not None
        return self._agent

    @property
    def store(self) -> BoardStore:
        """Its store; once the agent was sent, the agent does the hashing."""
        words = ("sha256sum",) if self._agent is None else (self._agent.path, "hash")
        return BoardStore(self.transport, self.board.workdir, hash_command=words, fence=self.fence)

    def conditions(self, wanted: Conditions, note: Callable[[str], None]) -> BoardConditions:
        """Return the conditions of a recipe on the board; ``note`` reports lines."""
        return BoardConditions(self.transport, self.fence, wanted, note)

    @property
    def rates(self) -> Rates | None:
        """Rates of the board, from its last probe, else its target; None if neither has rates."""
        return board_rates(self.lab.root, self.board.name, self.target)

    @cached_property
    def agent_artifact(self) -> Artifact:
        """The last built agent for the board. Raises ConfigError if it is not built yet."""
        return agent_artifact(self.facts.machine, self.target, self.lab.root)

    @cached_property
    def agent_object(self) -> Object:
        """The agent's file on this host. Raises ConfigError if it is not built yet."""
        return agent_object(self.facts, lambda _machine: self.agent_artifact.tool(AGENT_PRODUCT))

    def plan(self, wanted: Collection[Object]) -> DeployPlan:
        """Ask which files are missing on the board; use its agent from then on, if it has one.

        Raises LinkError, BoardError, ConfigError: CPUs without the target's instructions.
        """
        try:
            agent = self.agent_object if self._agent is None else None
        except ConfigError:
            agent = None  # it may be built later; else `bring_agent` reports it
        if agent is None:
            return plan(self.store, wanted)
        path, answers = self.store.path(agent.sha256), dict[str, str]()
        ask = agent_question(path)
        found = plan(self.store, [*wanted, agent], also=ask, on_answers=answers.update)
        if tells_facts(facts := answers.get("facts", "")) and not found.of([agent]).missing:
            self._use_agent(path, facts)
        return found.of(wanted)

    def bring_agent(self, on_sent: OnProgress, *, anew: bool = False) -> None:
        """Send the agent to the board; it reports the facts and makes all changes from then on.

        ``anew``: the agent on the board is damaged. Raises ConfigError (agent not built, CPUs
        without the target's instructions), and the errors of deploying and of
        :meth:`BoardAgent.refine`.
        """
        wanted = self.agent_object
        if self._agent is not None and not anew:
            return
        missing = DeployPlan((wanted,), (wanted,)) if anew else plan(self.store, [wanted])
        paths = deploy(self.store, missing, DeployOptions(progress=on_sent))
        self._use_agent(paths[wanted.sha256])

    def _use_agent(self, path: str, facts: str = "") -> None:
        """Use the agent; its ``facts`` count, if it reported any. Raises ConfigError."""
        self.fence.agent = path
        self._agent = BoardAgent(self.transport, path, self.board.workdir, self.fence)
        self._agent.on_survivors = self.survivors.name
        self.transport.use_hash(BoardHash("sha256", (path, "hash")))
        self.facts = self._agent.refine(self.facts, facts)
        check_features(self.target, self.facts)

    def look_again(self) -> BoardFacts:
        """Read its facts again. Also raises LeaseLost."""
        found = probe(self.transport, workdir=self.board.workdir, timeout=PROBE_SECONDS)
        found = self.agent.refine(found)
        self.claim.check()
        return found

    def renew(self, retry: Callable[[Callable[[], BoardFacts]], BoardFacts]) -> bool:
        """Wait until the board answers again; return True if it restarted and needs a new lease.

        ``retry`` calls its argument until the board answers. Raises the errors of ``retry``,
        LeaseLost, and BoardError (it is another board now, or another labctl of this host was
        faster).
        """
        found, before = retry(self.look_again), self.facts
        if differing := differences(before, found):
            raise BoardError(f"board {self.board.name} is not the same any more: {differing[0]}")
        self.facts = found
        has_restarted = found.boot_id != before.boot_id
        if has_restarted:
            self.claim.lock_boot(found.boot_id)
        return has_restarted

    def take_lease(self) -> Lease:
        """Take the board to measure on it. Raises what :meth:`BoardClaim.take` raises."""
        return self.take_for(DeployPlan((), ()))[0]

    def take_for(self, plan: DeployPlan) -> tuple[Lease, bool]:
        """Take the board to measure on it; check ``plan`` with the same command.

        Returns the lease, and False if the board restarted since the look, or if its store or free
        space changed so that the plan is outdated. Existing files of the plan are looked at as by
        :meth:`BoardStore.missing`. Raises the errors of :meth:`BoardClaim.take` and
        :meth:`BoardStore.missing`.
        """
        wanted = [item.stored for item in plan.objects]
        script = [
            f"section changes; {BoardChanges(self.fence).question}",
            f'section boot; echo "{BOOT_ID}"',
            f"section store; {self.store.question(wanted)}",
        ]
        if plan.missing:
            space = f"section space; df -P -k {remote_words(self.board.workdir)} 2>/dev/null"
            script.insert(0, space)
        taken = self.claim.take("\n".join(script))
        answers = self.claim.leases.answers
        self.survivors.name(self.claim.leases.survivors)
        self.has_changes = bool(answers.get("changes", "unknown").strip())
        absent = {item.sha256 for item in self.store.missing_in(answers.get("store", ""), wanted)}
        free = free_bytes(answers.get("space", ""))
        is_room = free is None or free >= plan.bytes_to_send + SPARE_BYTES
        is_same = absent == {item.sha256 for item in plan.missing}
        return taken, is_room and is_same and answers.get("boot", "").strip() == self.facts.boot_id

    def hold_to_send(self) -> None:
        """Take the board for sending, against other controllers, until the context ends.

        A lease of this host with a job left under it is kept, not replaced: a resumed run
        recognises its trial by the lease. Raises as :meth:`take_lease` does.
        """
        before = self.claim.on_board
        if before is not None and is_own_token(before.token) and self.agent.has_jobs():
            self.claim.keep(before)
            self.claim.check()
        else:
            self.take_lease()


def differences(before: BoardFacts, now: BoardFacts) -> list[str]:
    """List the differences between two looks at a board because of which their numbers do not mix.

    Free space, free memory and the boot may differ.
    """
    other = before.serial and now.serial and before.serial != now.serial
    changed = [f"its serial number was {before.serial}, now it is {now.serial}"] if other else []
    return changed + differences_in_kind(before, now)


def differences_in_kind(before: BoardFacts, now: BoardFacts) -> list[str]:
    """List the differences in kind and system between two boards."""
    found = []
    for name in ("execution", "machine", "kernel", "os_version", "storage_kind", "emulator"):
        was, is_now = getattr(before, name), getattr(now, name)
        if was != is_now:
            found.append(f"its {name.replace('_', ' ')} was {was}, now it is {is_now}")
    if before.cpus != now.cpus:
        found.append("its CPUs are others")
    was, is_now = before.memory_total_bytes or 0, now.memory_total_bytes or 0
    if abs(was - is_now) > _MEMORY_TOLERANCE * max(was, is_now):
        found.append(f"its memory was {was} bytes, now it is {is_now}")
    return found


@contextmanager
def hold_board(
    board: Board, transport: Transport, lab: LabFile, use: BoardUse | None
) -> Iterator[BoardSession]:
    """Lock a board that nobody has in the lab, and read its facts and its lease.

    Without a ``use`` the lab's state is not asked: the caller has its lease, or no lease is taken.
    Raises BoardBusy (another labctl of this host has the board, or the lab's state says who; then
    nothing was sent to the board), ConfigError (target and board do not fit), and the errors of
    probing. A board on which a process stays is blocked for other users' jobs.
    """
    target = load_target(board.target, lab.root)
    state = board_state(transport.label, board)
    with BoardClaim(board, lab, transport, state, use) as claim:
        claim.lock()
        with explaining_full_storage(transport, board.workdir):
            script = f"{question(board.workdir)}{lease_question(board.workdir)}"
            with _recorded(lab, board, use):
                answers = ask(transport, script, timeout=PROBE_SECONDS)
            facts = facts_in(answers, transport, board.workdir)
            claim.met(facts, answers)
            check_machine(target, facts)
            if facts.machine == target.machine:  # a 32-bit shell sees other features
                check_features(target, facts)
            session = BoardSession(claim, lab, target, facts, state.with_suffix(".rate"))
            with session.survivors.noticed():
                yield session


@contextmanager
def _recorded(lab: LabFile, board: Board, use: BoardUse | None) -> Iterator[None]:
    """Record in the lab's state that the board answers, or why it does not."""
    if use is None or not lab.path.is_file() or board.name not in lab.lab.boards:
        yield
        return
    try:
        yield
    except LinkError as error:
        if lab.lab.is_anywhere(board.name):  # another host may reach it
            error.of_host()
            raise
        # The board's own error counts, and does not wait for a database.
        with suppress(ConfigError, HostError), patience(0.0):
            lab_state(lab).health.contacted(
                {board.name: link_state(error)}, by=this_user(), reason=error.message
            )
        raise
    lab_state(lab).health.contacted({board.name: link_state(None)}, by=this_user())
