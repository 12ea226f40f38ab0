"""Boards that a selector means, by what the lab knows of them."""

from labctl.config.lab import LabFile
from labctl.farm.selector import BoardSelector, select_boards
from labctl.runs.record.history import last_seen
from labctl.state import lab_state


def boards_on(lab: LabFile, selector: BoardSelector) -> list[str]:
    """Return the names of the boards that a selector means; no board is asked.

    Memory is what a board reported when it was seen last. Raises ConfigError if there is none.
    """
    state = lab_state(lab)

    def memory(board: str) -> int | None:
        seen = last_seen(lab.root, board)
        return seen.facts.memory_total_bytes if seen else None

    return select_boards(
        lab, selector, memory=memory, health=lambda board: state.health.get(board).health
    )
