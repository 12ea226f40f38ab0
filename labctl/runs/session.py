"""A board taken for a run: nobody else's meanwhile, with the agent on it."""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from labctl.board import BoardAgent, BoardLease, BoardStore, Lease, probe
from labctl.build import Artifact, find_artifact
from labctl.config.lab import Board
from labctl.config.target import Target, load_target
from labctl.deploy import Object, agent_object, deploy, plan
from labctl.errors import BoardError, ConfigError, HostTimeout
from labctl.files import locked, state_dir, write_atomic
from labctl.records import BoardFacts, Execution
from labctl.transport import BoardHash, HdcTransport, Transport

PROBE_SECONDS = 20.0
AGENT_PRODUCT = "agent"

OnSent = Callable[[Object, int], None]


@dataclass(frozen=True)
class BoardSession:
    """A board that is ours until the context ends."""

    board: Board
    target: Target
    facts: BoardFacts
    store: BoardStore
    agent: BoardAgent
    lease: Lease
    lease_path: str
    #: Raises LeaseLost when another controller has taken the board meanwhile.
    check_lease: Callable[[], None]


@contextmanager
def take_board(
    board: Board, transport: Transport, *, lab_name: str, lab_root: Path, on_sent: OnSent
) -> Iterator[BoardSession]:
    """Take a board: lock, facts, agent, lease.

    Raises BoardError (another labctl of this host has it), ConfigError (target and board do not
    fit; agent not built), and what probing, deploying and leasing raise.
    """
    target = load_target(board.target, lab_root)
    state = _state_of(transport.label, board)
    with ExitStack() as held:
        held.enter_context(_exclusive(board, state.with_suffix(".lock")))
        facts = probe(transport, workdir=board.workdir, timeout=PROBE_SECONDS)
        # One board can have two addresses: localhost and 127.0.0.1, Ethernet and Wi-Fi.
        held.enter_context(_exclusive(board, _state_of(facts.boot_id, board).with_suffix(".lock")))
        check_machine(target, facts)
        store = BoardStore(transport, board.workdir)
        wanted = agent_object(facts, lambda machine: _agent_file(machine, target, lab_root))
        paths = deploy(store, plan(store, [wanted], facts), on_sent)
        agent = BoardAgent(transport, paths[wanted.sha256], board.workdir)
        # The agent hashes with the CPU's SHA instructions where there are any.
        if isinstance(transport, HdcTransport):
            transport.board_hash = BoardHash("sha256", (agent.path, "hash"))
        facts = agent.refine(facts)
        leases = BoardLease(transport, board.workdir)
        lease = _acquire(leases, lab_name, state)
        yield BoardSession(
            board,
            target,
            facts,
            BoardStore(transport, board.workdir, hash_command=(agent.path, "hash")),
            agent,
            lease,
            leases.path,
            partial(leases.check, lease),
        )


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
        raise BoardError(
            f"board {board.name} is in use: {error.message}", hint=error.hint
        ) from error


def check_machine(target: Target, facts: BoardFacts) -> None:
    """Refuse a target whose programs the board cannot execute, before anything is moved.

    Raises ConfigError for another machine, or for instructions that the board's CPUs lack.
    """
    if facts.execution is Execution.EMULATED:
        return
    if facts.machine != target.machine:
        raise ConfigError(
            f"target {target.name} is {target.machine}, the board is {facts.machine}",
            hint="set the board's target in devices.yaml to what the board is",
        )
    for cpu in facts.cpus:
        lacking = sorted(set(target.features) - set(cpu.features)) if cpu.features else []
        if lacking:
            raise ConfigError(
                f"target {target.name} uses instructions that the board's CPU lacks: "
                f"{', '.join(lacking)}",
                hint="build for a target that fits, and name it in devices.yaml",
            )


def agent_artifact(machine: str, target: Target, lab_root: Path) -> Artifact:
    """The agent for a machine as ``uname -m`` names it. Raises ConfigError: not built yet."""
    name = target.name if machine == target.machine else f"host-{machine}"
    return find_artifact(name, AGENT_PRODUCT, lab_root=lab_root)


def _agent_file(machine: str, target: Target, lab_root: Path) -> Path:
    return agent_artifact(machine, target, lab_root).tool(AGENT_PRODUCT)


def _acquire(lease: BoardLease, lab_name: str, state: Path) -> Lease:
    """Take the lease with an epoch above every one that this host has ever had of the board."""
    record = state.with_suffix(".epoch")
    try:
        known = int(record.read_text())
    except (FileNotFoundError, ValueError):
        known = 0
    taken = lease.acquire(lab_name, minimum_epoch=known)
    write_atomic(record, f"{taken.epoch}\n")
    return taken
