"""The CPUs that a recipe asks for, held against those that a board has."""

from labctl.config.recipe import Recipe
from labctl.config.scheduling import cpu_numbers
from labctl.records import BoardFacts
from labctl.units import ranges


def as_scheduled(recipe: Recipe, facts: BoardFacts) -> BoardFacts:
    """The board as the recipe's programs have it.

    Raises ConfigError, with the line, for CPUs that the board does not give to jobs. A board that
    does not tell which it gives is believed to have them; the agent refuses what is not so.
    """
    wanted = recipe.scheduling.cpus
    if wanted is None:
        return facts
    if facts.cpus_allowed is not None:
        lacking = cpu_numbers(wanted) - cpu_numbers(facts.cpus_allowed)
        if lacking:
            raise recipe.refusal(
                ("scheduling", "cpus"),
                f"the board has no CPU {ranges(lacking)} for jobs, it has {facts.cpus_allowed}",
            )
    return facts.model_copy(update={"cpus_allowed": wanted})
