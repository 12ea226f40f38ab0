"""A board held by this process: nobody else's on this host meanwhile, with the agent on it."""

import hashlib
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from labctl.board import (
    BoardAgent,
    BoardLease,
    BoardStore,
    Lease,
    Pruner,
    StoredObject,
    Survey,
    probe,
    survey,
)
from labctl.config.lab import Board
from labctl.config.target import Target, load_target
from labctl.deploy import DeployOptions, Object, OnProgress, agent_object
from labctl.deploy.agents import AGENT_PRODUCT, agent_artifact, is_machine
from labctl.deploy.deploy import deploy
from labctl.deploy.plan import plan
from labctl.errors import BoardBusy, BoardNoSpace, ConfigError, HostTimeout, InfraError, LinkError
from labctl.files import append_line, locked, state_dir, write_atomic
from labctl.records import BoardFacts, Execution
from labctl.runs.board.holders import is_own, own_leases, refuse_conflict
from labctl.transport import BoardHash, Transport

PROBE_SECONDS = 20.0
#: Between two signs of life while something is sent; silence of ALIVE_SECONDS is a death.
SIGN_SECONDS = 60.0


@dataclass(frozen=True)
class BoardMeeting:
    """A board that is ours until the context ends, with nothing of ours brought there yet."""

    board: Board
    target: Target
    facts: BoardFacts
    store: BoardStore
    transport: Transport
    #: What this host remembers of the board; a suffix says what.
    state: Path
    #: What is done when the context ends.
    ending: ExitStack

    def lock_boot(self, boot_id: str) -> None:
        """Keep others of this host out of the board in this boot, whatever way they come.

        One board can have two addresses: localhost and 127.0.0.1, Ethernet and Wi-Fi. Raises
        BoardBusy.
        """
        lock = _state_of(boot_id, self.board).with_suffix(".lock")
        self.ending.enter_context(_exclusive(self.board, lock))

    def refuse_if_taken(
        self, *, ours: Callable[[Lease], bool] | None = None, orphans: bool = False
    ) -> None:
        """Raise BoardBusy while another controller measures there; nothing is sent to find out.

        A lease that is ``ours`` is none of another's. With ``orphans`` a job of this host's whose
        controller died keeps the board as well: a resumed run takes it over.
        """
        before = BoardLease(self.transport, self.board.workdir).status()
        if before is not None and not (ours and ours(before.lease)):
            refuse_conflict(self.board, self.transport, before, self._any_agent, orphans=orphans)

    def _any_agent(self) -> BoardAgent | None:
        """An agent that is on the board, of whatever version; without one, no job can run there."""
        found = self.agents()
        if not found:
            return None
        return BoardAgent(self.transport, self.store.path(found[0].sha256), self.board.workdir)

    def agents(self) -> list[StoredObject]:
        """The agents of all versions that are whole on the board. Raises LinkError, BoardError."""
        named = [item for item in self.store.contents() if item.name == AGENT_PRODUCT]
        absent = self.store.missing(named)
        return [item for item in named if item not in absent]

    def survey(self) -> Survey:
        """What its workdir can take. Raises what :func:`labctl.board.workdir_check` raises."""
        return survey(self.transport, self.board.workdir)

    def agent_object(self, lab_root: Path) -> Object:
        """The agent that belongs on it. Raises ConfigError: not built yet."""
        return agent_object(self.facts, lambda machine: _agent_file(machine, self.target, lab_root))

    @property
    def rate_file(self) -> Path:
        """Where the speed of its link is noted."""
        return self.state.with_suffix(".rate")


@dataclass(frozen=True)
class BoardSession:
    """A board that is ours until the context ends, with the agent on it."""

    board: Board
    target: Target
    facts: BoardFacts
    store: BoardStore
    agent: BoardAgent
    leases: BoardLease
    transport: Transport
    known_epoch: Path
    ending: ExitStack

    def take_lease(self, lab_name: str) -> Lease:
        """Take the board to measure on it, until the meeting ends.

        The epoch is above every one that this host has ever had of the board. Raises BoardBusy
        while another controller measures there, and what :meth:`BoardLease.acquire` raises.
        """
        token = secrets.token_hex(8)
        append_line(own_leases(), token)  # before: this process may die when the board has it
        taken = self.leases.acquire(
            lab_name,
            minimum_epoch=self._last_epoch or 0,
            token=token,
            on_conflict=lambda before: refuse_conflict(
                self.board, self.transport, before, lambda: self.agent
            ),
        )
        self.keep_lease(taken)
        write_atomic(self.known_epoch, f"{taken.epoch}\n")
        return taken

    def hold_to_send(self, lab_name: str) -> Callable[[int], None]:
        """Keep other controllers out while something is sent, until the meeting ends.

        What is returned is told of bytes before they are sent, and gives signs of life; it raises
        LeaseLost. A lease of this host's that is there is kept, not replaced: a run that is resumed
        knows its trial by it. Raises as :meth:`take_lease` does.
        """
        before = self.leases.read()
        if before is not None and is_own(before):
            lease = before
            self.keep_lease(lease)
            self.leases.check(lease)
        else:
            lease = self.take_lease(lab_name)
        due = time.monotonic() + SIGN_SECONDS

        def sign(_count: int) -> None:
            nonlocal due
            if time.monotonic() >= due:
                due = time.monotonic() + SIGN_SECONDS
                with suppress(LinkError):  # who sends notices that, too, and takes it up again
                    self.leases.check(lease)

        return sign

    def keep_lease(self, lease: Lease) -> None:
        """Leave the board when the meeting ends, under a lease that an earlier controller took."""
        self.ending.callback(self._release, lease)

    def _release(self, taken: Lease) -> None:
        with suppress(InfraError):  # a board that is gone frees itself in time
            self.leases.release(taken)

    @property
    def _last_epoch(self) -> int | None:
        try:
            return int(self.known_epoch.read_text())
        except (FileNotFoundError, ValueError):
            return None


@contextmanager
def meet_board(board: Board, transport: Transport, *, lab_root: Path) -> Iterator[BoardMeeting]:
    """Lock a board and ask for its facts. Other hosts are kept out by its lease alone.

    Raises BoardBusy (another labctl of this host has it), ConfigError (target and board do not
    fit), and what probing raises.
    """
    target = load_target(board.target, lab_root)
    state = _state_of(transport.label, board)
    with ExitStack() as held:
        held.enter_context(_exclusive(board, state.with_suffix(".lock")))
        facts = probe(transport, workdir=board.workdir, timeout=PROBE_SECONDS)
        store = BoardStore(transport, board.workdir)
        met = BoardMeeting(board, target, facts, store, transport, state, held)
        met.lock_boot(facts.boot_id)
        check_machine(target, facts)
        if facts.machine == target.machine:  # to a 32-bit shell the kernel tells other features
            _check_features(target, facts)
        yield met


def bring_agent(met: BoardMeeting, lab_root: Path, on_sent: OnProgress) -> BoardSession:
    """Put the agent on a board; from then on it does the hashing.

    Raises ConfigError (agent not built, CPUs without the target's instructions), and what
    deploying and :meth:`BoardAgent.refine` raise.
    """
    wanted = met.agent_object(lab_root)
    paths = deploy(met.store, plan(met.store, [wanted]), DeployOptions(progress=on_sent))
    transport, workdir = met.transport, met.board.workdir
    agent = BoardAgent(transport, paths[wanted.sha256], workdir)
    # The agent hashes with the CPU's SHA instructions where there are any.
    transport.board_hash = BoardHash("sha256", (agent.path, "hash"))
    facts = agent.refine(met.facts)
    _check_features(met.target, facts)
    return BoardSession(
        met.board,
        met.target,
        facts,
        BoardStore(transport, workdir, hash_command=(agent.path, "hash"), agent=agent.path),
        agent,
        BoardLease(transport, workdir),
        transport,
        met.state.with_suffix(".epoch"),
        met.ending,
    )


def pruner_of(met: BoardMeeting, lab_root: Path) -> tuple[Pruner, str]:
    """Who removes from a board what is not used, and the SHA-256 of the agent that helps with it.

    On a board so full that this version's agent finds no room, an older one that is there will do.
    Raises what :func:`bring_agent` raises.
    """
    transport, workdir = met.transport, met.board.workdir
    try:
        path = bring_agent(met, lab_root, lambda _item, _done: None).agent.path
    except BoardNoSpace:
        there = met.agents()
        if not there:
            raise
        path = met.store.path(there[0].sha256)
    agent = BoardAgent(transport, path, workdir)
    pruner = Pruner(transport, workdir, agent, BoardLease(transport, workdir), is_own)
    return pruner, path.rpartition("/")[2]


@contextmanager
def hold_board(
    board: Board, transport: Transport, *, lab_root: Path, on_sent: OnProgress
) -> Iterator[BoardSession]:
    """Hold a board with the agent on it.

    Raises BoardBusy while another controller measures there, and what :func:`meet_board` and
    :func:`bring_agent` raise.
    """
    with meet_board(board, transport, lab_root=lab_root) as met:
        met.refuse_if_taken()
        yield bring_agent(met, lab_root, on_sent)


def _state_of(way: str, board: Board) -> Path:
    """What this host keeps of a workdir, by the way there or by the boot that it is on."""
    key = hashlib.sha256(f"{way}\n{board.workdir}".encode()).hexdigest()[:16]
    return state_dir() / "boards" / key


@contextmanager
def _exclusive(board: Board, lock: Path) -> Iterator[None]:
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


def check_machine(target: Target, facts: BoardFacts) -> None:
    """Refuse a target of another machine, before anything is moved. Raises ConfigError."""
    if facts.execution is not Execution.EMULATED and not is_machine(target, facts.machine):
        raise ConfigError(
            f"target {target.name} is {target.machine}, the board is {facts.machine}",
            hint="set the board's target in devices.yaml to what the board is",
        )


def _check_features(target: Target, facts: BoardFacts) -> None:
    """Refuse a target whose instructions the board's CPUs lack, as shell or agent see them."""
    if facts.execution is Execution.EMULATED:
        return
    for cpu in facts.cpus:
        lacking = sorted(set(target.features) - set(cpu.features)) if cpu.features else []
        if lacking:
            raise ConfigError(
                f"target {target.name} uses instructions that the board's CPU lacks: "
                f"{', '.join(lacking)}",
                hint="build for a target that fits, and name it in devices.yaml",
            )


def _agent_file(machine: str, target: Target, lab_root: Path) -> Path:
    return agent_artifact(machine, target, lab_root).tool(AGENT_PRODUCT)
