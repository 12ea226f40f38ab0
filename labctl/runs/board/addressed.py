"""A board that is named only by its address and is not in devices.yaml."""

from dataclasses import replace
from pathlib import Path

from labctl.board.facts import probe, virtual_workdir
from labctl.config.lab import WORKDIR, Board, Lab, LabFile
from labctl.config.target import DEFAULT_TARGET, Target, load_target, load_targets
from labctl.deploy.plan import is_machine
from labctl.errors import ConfigError
from labctl.files import write_atomic
from labctl.records.board import BoardFacts, Execution
from labctl.suggestions import listed
from labctl.text_types import is_name, is_on_loopback, plain_name
from labctl.transport.base import OpenOptions
from labctl.transport.hdc import HdcTcpConfig

_ANSWER_SECONDS = 20.0
_CONNECT_SECONDS = 5.0


def addressed_board(
    address: str, lab: LabFile, target: str | None = None
) -> tuple[LabFile, Board, str]:
    """Return the board at HOST:PORT, in a lab in memory, and sentences on how it was recognised.

    If the lab has a board with this address, returns it. Otherwise reads the board's facts, and
    recognises its target from them unless ``target`` is given. Raises ConfigError (no target fits,
    or several do), LinkError, BoardError.
    """
    way = HdcTcpConfig(address=address)
    for board in lab.lab.boards.values():
        if way.clash(board.transport, board.name) is not None:
            if target not in (None, board.target):
                raise ConfigError(
                    f"--target {target}: {address} is board {board.name} of {lab.path}, a"
                    f" {board.target}"
                )
            return lab, board, f"{address} is board {board.name} of {lab.path}"
    named = load_target(target, lab.root) if target else None  # before any contact
    with way.open(OpenOptions(timeout=_CONNECT_SECONDS)) as transport:
        facts = probe(transport, workdir=WORKDIR, timeout=_ANSWER_SECONDS)
        own = is_on_loopback(address) and virtual_workdir(transport, timeout=_ANSWER_SECONDS)
    found, left_out = (named, []) if named else recognise(facts, lab.root)
    how = "as --target says" if target else "recognised by its CPU"
    if facts.execution is not Execution.BOARD and not target:
        how = f"{facts.execution}"
    made = Board(target=found.name, transport=way, workdir=own or WORKDIR)
    name = plain_name(f"board-{address}")
    boards = {**lab.lab.boards, name: made}
    whole = lab.lab.model_dump(exclude={"boards"}, exclude_unset=True)
    with_it = replace(lab, lab=Lab(**whole, boards=boards))
    write_atomic(_address_file(lab.root, name), f"{address}\n")
    return (
        with_it,
        with_it.board(name),
        "\n".join([f"{address}: target {found.name}, {how}", *left_out]),
    )


def known_address(lab_root: Path, name: str) -> str | None:
    """Return the address of a board that was named by its address before; None if not known."""
    if not is_name(name):
        return None
    try:
        return _address_file(lab_root, name).read_text(encoding="utf-8").strip()
    except OSError:
        return None


def _address_file(lab_root: Path, name: str) -> Path:
    """File that keeps a board's address, for `labctl resume` of its runs."""
    return lab_root / "boards" / name / "address"


def recognise(facts: BoardFacts, lab_root: Path | None) -> tuple[Target, list[str]]:
    """Return the target that a board's facts name: its chip, its CPU cores, or its emulator.

    Also names the targets that were left out because of errors in their files.

    Raises ConfigError if no target or several targets match.
    """
    known, left_out = load_targets(lab_root)
    fitting = [target for target in known if _fits(target, facts)]
    if facts.execution is Execution.EMULATED:  # all emulators are the same machine
        fitting = [one for one in fitting if one.name == DEFAULT_TARGET] or fitting
    if len(fitting) == 1:
        return fitting[0], left_out
    cores = ", ".join(f"{cpu.count} x {cpu.part or cpu.model or 'unknown'}" for cpu in facts.cpus)
    known_of_it = (facts.machine, f"CPU {cores or 'unknown'}", *facts.compatible)
    what = f"the board ({', '.join(known_of_it)})"
    names = listed([target.name for target in fitting or known])
    raise ConfigError(
        f"several targets fit {what}" if fitting else f"no target is known to be that of {what}",
        hint="; ".join([f"name its target: --target {names}", *left_out]),
    )


def _fits(target: Target, facts: BoardFacts) -> bool:
    if facts.execution is Execution.NATIVE_HOST:
        return target.name == f"host-{facts.machine}"
    if target.android != (facts.phone is not None):
        return False
    if facts.execution is Execution.EMULATED:
        words = (facts.emulator or "").split()
        argv = target.emulator.argv if target.emulator else ()
        return bool(argv) and [word.rpartition("/")[2] for word in words] == list(argv)
    if target.android:
        return is_machine(target, facts.machine)
    if facts.compatible and target.compatible:  # several chips have the same kinds of cores
        return not set(target.compatible).isdisjoint(facts.compatible)
    parts = {cpu.part for cpu in facts.cpus if cpu.part}
    return bool(parts) and parts == set(target.cpu_parts)
