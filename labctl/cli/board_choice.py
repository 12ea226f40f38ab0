"""Boards that match a selector, according to the lab's records."""

from labctl.config.lab import Board, LabFile
from labctl.errors import ConfigError
from labctl.evaluation.any_recipe import AnyRecipe, target_of
from labctl.farm.selector import BoardSelector, select_boards
from labctl.runs.record.history import last_seen
from labctl.state.state import lab_state


def boards_on(lab: LabFile, selector: BoardSelector) -> list[str]:
    """Return the names of the boards that match a selector; no board is contacted.

    Memory is the size that a board last reported. Raises ConfigError if no board matches.
    """
    state = lab_state(lab)

    def memory(board: str) -> int | None:
        seen = last_seen(lab.root, board)
        return seen.facts.memory_total_bytes if seen else None

    return select_boards(
        lab, selector, memory=memory, health=lambda board: state.health.get(board).health
    )


def equal_boards(lab: LabFile, selector: str, recipe: AnyRecipe) -> list[Board]:
    """Return the boards of a recipe's target that match a selector. Raises ConfigError.

    The target of a recipe without one is that of the first board.
    """
    chosen = [lab.board(name) for name in boards_on(lab, BoardSelector.parse(selector))]
    target = target_of(recipe) or chosen[0].target
    fitting = [board for board in chosen if board.target == target]
    if not fitting:
        raise ConfigError(
            f"none of the boards of {selector!r} is a {target}, which recipe {recipe.name} is for"
        )
    return fitting
