"""The planned loads of a load test, before its server is asked."""

from dataclasses import asdict, dataclass
from typing import Any

from labctl.evaluation.serving.generator import StagePlan
from labctl.evaluation.serving.recipe import LoadTestRecipe
from labctl.units import duration

#: Most stages of one recipe, since each has its own seeds.
_MOST_STAGES = 1000


def planned_stage(
    recipe: LoadTestRecipe,
    number: int,
    *,
    concurrency: int | None = None,
    rate: float | None = None,
) -> StagePlan:
    """Return the plan of the ``number``-th load."""
    return StagePlan(
        number=number,
        seed=recipe.seed * _MOST_STAGES + number,
        warm_up=max(recipe.warm_up, concurrency or 0) if recipe.warm_up else 0,
        requests=recipe.measured_requests,
        duration_s=recipe.duration,
        concurrency=concurrency,
        rate=rate,
        arrivals=recipe.arrivals,
    )


def closed_loops(recipe: LoadTestRecipe) -> tuple[int, ...]:
    """Return the numbers of streams; a sweep begins at the rate of a single stream."""
    alone = (1,) if recipe.sweep and 1 not in recipe.concurrency else ()
    return (*alone, *recipe.concurrency)


@dataclass(frozen=True)
class PlannedLoad:
    """One load, limited by ``requests`` and ``duration_s`` (s); None: not limited by it."""

    name: str
    warm_up: int
    requests: int | None
    duration_s: float | None


@dataclass(frozen=True)
class LoadPlan:
    """A plan in numbers; ``server``: the server to load."""

    server: str
    loads: tuple[PlannedLoad, ...]
    notes: tuple[str, ...]

    def document(self) -> dict[str, Any]:
        """Return it as JSON."""
        return asdict(self)


def load_plan(recipe: LoadTestRecipe) -> LoadPlan:
    """Return the loads of a recipe; contact nothing."""
    source = recipe.endpoint
    places = {"host": "this host", "board": f"board {source.board or '(the default)'}"}
    server = source.url or f"llama-server on {places[str(source.start)]}"
    stages = [planned_stage(recipe, 0, concurrency=one) for one in closed_loops(recipe)]
    stages += [planned_stage(recipe, 0, rate=one) for one in recipe.rates]
    loads = [PlannedLoad(one.name, one.warm_up, one.requests, one.duration_s) for one in stages]
    notes = []
    if recipe.sweep:
        notes.append("then a sweep: rates are tried until the server does not follow")
    if recipe.max_time is not None:
        limit = duration(recipe.max_time * 1e9)
        notes.append(f"at most {limit}; loads that do not begin by then are left out")
    return LoadPlan(server, tuple(loads), tuple(notes))
