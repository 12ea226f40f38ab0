"""Status of a board now: a line of ``labctl boards``."""

from collections.abc import Callable
from dataclasses import dataclass

from labctl.board.facts import probe
from labctl.config.lab import Board
from labctl.errors import LabctlError
from labctl.records import Execution
from labctl.transport import Transport, board_state
from labctl.units import size

_TIMEOUT_SECONDS = 15.0


@dataclass(frozen=True)
class BoardStatus:
    """A board as `labctl boards` lists it; ``facts`` if it is connected."""

    name: str
    target: str
    address: str
    state: str
    detail: str
    facts: dict[str, object] | None = None


def board_status(board: Board, connect: Callable[[Board], Transport]) -> BoardStatus:
    """Read a board's facts. Raises no error for a board that cannot be reached."""
    address = board.transport.location
    try:
        with connect(board) as link:
            facts = probe(link, workdir=board.workdir, timeout=_TIMEOUT_SECONDS)
    except LabctlError as error:  # one such board must not hide the others
        state = board_state(error)
        return BoardStatus(board.name, board.target, address, state, _with_hint(error))
    detail = [facts.machine, f"{facts.cores} cores"]
    if facts.memory_total_bytes:
        detail.append(f"{size(facts.memory_total_bytes)} memory")
    if facts.storage_free_bytes is not None:
        detail.append(f"{size(facts.storage_free_bytes)} free")
    if facts.execution is not Execution.BOARD:
        detail.append(facts.execution.upper())
    return BoardStatus(
        board.name,
        board.target,
        address,
        board_state(None),
        ", ".join(detail),
        facts.model_dump(mode="json"),
    )


def _with_hint(error: LabctlError) -> str:
    return f"{error.message}; {error.hint}" if error.hint else error.message
