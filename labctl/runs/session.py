"""A board held by this process: nobody else's on this host meanwhile, with the agent on it."""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
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
#: What ``uname -m`` says to 32-bit programs on a 64-bit kernel.
_COMPATIBLE = {"aarch64": "armv8l"}

OnSent = Callable[[Object, int], None]


@dataclass(frozen=True)
class BoardSession:
    """A board that is ours until the context ends."""

    board: Board
    target: Target
    facts: BoardFacts
    store: BoardStore
    agent: BoardAgent
    leases: BoardLease
    known_epoch: Path

    def take_lease(self, lab_name: str) -> Lease:
        """Take the board from every other controller, to measure on it.

        The epoch is above every one that this host has ever had of the board. Raises what
        :meth:`BoardLease.acquire` raises.
        """
        try:
            known = int(self.known_epoch.read_text())
        except (FileNotFoundError, ValueError):
            known = 0
        taken = self.leases.acquire(lab_name, minimum_epoch=known)
        write_atomic(self.known_epoch, f"{taken.epoch}\n")
        return taken


@contextmanager
def hold_board(
    board: Board, transport: Transport, *, lab_root: Path, on_sent: OnSent
) -> Iterator[BoardSession]:
    """Hold a board: lock, facts, agent. Other hosts are kept out by its lease alone.

    Raises BoardError (another labctl of this host has it), ConfigError (target and board do not
    fit; agent not built), and what probing and deploying raise.
    """
    target = load_target(board.target, lab_root)
    state = _state_of(transport.label, board)
    with ExitStack() as held:
        held.enter_context(_exclusive(board, state.with_suffix(".lock")))
        facts = probe(transport, workdir=board.workdir, timeout=PROBE_SECONDS)
        # One board can have two addresses: localhost and 127.0.0.1, Ethernet and Wi-Fi.
        held.enter_context(_exclusive(board, _state_of(facts.boot_id, board).with_suffix(".lock")))
        _check_machine(target, facts)
        store = BoardStore(transport, board.workdir)
        wanted = agent_object(facts, lambda machine: _agent_file(machine, target, lab_root))
        paths = deploy(store, plan(store, [wanted], facts), on_sent)
        agent = BoardAgent(transport, paths[wanted.sha256], board.workdir)
        # The agent hashes with the CPU's SHA instructions where there are any.
        if isinstance(transport, HdcTransport):
            transport.board_hash = BoardHash("sha256", (agent.path, "hash"))
        facts = agent.refine(facts)
        _check_features(target, facts)
        yield BoardSession(
            board,
            target,
            facts,
            BoardStore(
                transport, board.workdir, hash_command=(agent.path, "hash"), agent=agent.path
            ),
            agent,
            BoardLease(transport, board.workdir),
            state.with_suffix(".epoch"),
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


def _is_machine(target: Target, machine: str) -> bool:
    """Whether ``uname -m`` is the target's; a 32-bit userland may say so of a 64-bit kernel.

    That such a board executes the target's programs is proven by its agent.
    """
    return machine in (target.machine, _COMPATIBLE.get(target.machine))


def _check_machine(target: Target, facts: BoardFacts) -> None:
    """Refuse a target of another machine, before anything is moved. Raises ConfigError."""
    if facts.execution is not Execution.EMULATED and not _is_machine(target, facts.machine):
        raise ConfigError(
            f"target {target.name} is {target.machine}, the board is {facts.machine}",
            hint="set the board's target in devices.yaml to what the board is",
        )


def _check_features(target: Target, facts: BoardFacts) -> None:
    """Refuse a target whose instructions the board's CPUs lack, as the agent sees them."""
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


def agent_artifact(machine: str, target: Target, lab_root: Path) -> Artifact:
    """The agent for a machine as ``uname -m`` names it. Raises ConfigError: not built yet."""
    name = target.name if _is_machine(target, machine) else f"host-{machine}"
    return find_artifact(name, AGENT_PRODUCT, lab_root=lab_root)


def _agent_file(machine: str, target: Target, lab_root: Path) -> Path:
    return agent_artifact(machine, target, lab_root).tool(AGENT_PRODUCT)
