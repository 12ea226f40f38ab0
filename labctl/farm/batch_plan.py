"""The plan of a batch: recipes and the boards that they run on.

name: night
on: tag=fast                  # boards of all jobs, unless a job says otherwise
jobs:
  - recipe: q8_latency        # once, on the board that is free first
    set: {repeats: 5}
  - recipe: recipes/q2.yaml
    every_board: true         # once on each
  - {recipe: a, group: ab, times: 3}   # a b a b a b, on one board without anything between
  - {recipe: b, group: ab, times: 3}
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, model_validator

from labctl.config.lab import LabFile
from labctl.config.recipe import Recipe, find_recipe
from labctl.config.recipe_parts import Scalar
from labctl.config.target import load_target
from labctl.config.types import Duration, Line, Name
from labctl.config.yaml.document import StrictModel, refuse
from labctl.errors import ConfigError
from labctl.evaluation.any_recipe import AnyRecipe, check_job, read_any, target_of
from labctl.farm.job import FarmJob
from labctl.farm.run_content import RunContent
from labctl.farm.selector import BoardSelector
from labctl.file_hashes import cached_sha256
from labctl.runs.inputs.prepare import read_recipe
from labctl.runs.inputs.programs import lacking_agent
from labctl.runs.inputs.untrusted_recipe import Workspace, check_board
from labctl.suggestions import unknown

MOST_JOBS = 100_000
#: For an untrusted plan: there are few boards for such plans.
MOST_UNTRUSTED_JOBS = 100


class BatchEntry(StrictModel):
    """A recipe, its boards, and its number of runs."""

    recipe: Line
    """A recipe's file, or the name of a recipe of the lab or of labctl."""
    set: dict[Line, Scalar] = Field(default_factory=dict)
    """Changes to keys of the recipe."""
    boards: tuple[Name, ...] = ()
    """Boards that are equal for the recipe; it runs on one of them."""
    on: Line | None = None
    """Selector instead of `boards`, e.g. `tag=fast,memory>=4GB`; default: the plan's `on`, else all
    boards of the recipe's target."""
    every_board: bool = False
    """Run on each of the boards, not on one of them."""
    times: Annotated[int, Field(ge=1, le=10_000)] = 1
    """Number of runs."""
    priority: Annotated[int, Field(ge=-100, le=100)] = 0
    """Priority; higher numbers run first."""
    group: Name | None = None
    """Entries of one group run in turns on one board, with nothing between them."""
    expected: Duration | None = None
    """Expected time of a run, used to order jobs; default: the time of the last such run, else the
    predicted time."""
    uses: tuple[Name, ...] = ()
    """Shared limits of devices.yaml that it uses besides its board's limits."""

    @model_validator(mode="after")
    def _one_way_to_boards(self) -> Self:
        if self.boards and self.on is not None:
            raise refuse("boards are given too; keep one of them", "on")
        if self.group is not None and self.every_board:
            raise refuse("a group runs on one board", "every_board")
        return self


class BatchPlan(StrictModel):
    """A plan of jobs."""

    name: Name
    """Name of its batches."""
    on: Line | None = None
    """Selector of the boards, e.g. `target=rk3568,tag=fast`."""
    jobs: Annotated[tuple[BatchEntry, ...], Field(min_length=1)]
    """The runs."""


@dataclass(frozen=True)
class PlannedJob:
    """A job with its content."""

    job: FarmJob
    content: str


@dataclass(frozen=True)
class PlannedBatch:
    """All jobs of a plan, self-contained."""

    name: str
    jobs: tuple[PlannedJob, ...]
    #: Digest -> content of a job, as :meth:`labctl.farm.run_content.RunContent.document` has it.
    contents: Mapping[str, Mapping[str, object]]

    @property
    def digest(self) -> str:
        """Digest of all that the batch does; expected times are not included."""
        rows = [
            (
                *(one.job.id, one.job.boards, one.job.priority, one.job.group, one.job.uses),
                *(one.content, one.job.untrusted),
            )
            for one in self.jobs
        ]
        return hashlib.sha256(json.dumps([self.name, rows]).encode()).hexdigest()


def plan_batch(
    plan: BatchPlan,
    lab: LabFile,
    select: Callable[[BoardSelector], Sequence[str]],
    expect: Callable[[AnyRecipe, tuple[str, ...]], float | None],
    workspace: Workspace | None = None,
) -> PlannedBatch:
    """Read the recipes of a plan and find their boards; ``expect`` returns seconds on a board,
    or None.

    An untrusted plan has a ``workspace``, which it may not leave. Raises ConfigError that names the
    wrong entry.
    """
    contents: dict[str, Mapping[str, object]] = {}
    is_untrusted = workspace is not None

    @cache
    def boards_on(selector: str | None) -> tuple[str, ...]:
        if selector:
            return tuple(select(BoardSelector.parse(selector)))
        boards = lab.lab.boards.items()
        return tuple(name for name, board in boards if board.untrusted is is_untrusted)

    sha256 = cache(cached_sha256)  # one plan, one look at each file

    @cache
    def path_of(name: str) -> Path:
        return find_recipe(name, lab.root) if workspace is None else workspace.recipe(name)

    found: list[tuple[int, int, PlannedJob]] = []
    for place, entry in enumerate(plan.jobs, 1):
        try:
            path = path_of(entry.recipe)
            recipe = _recipe(path, _settings(entry), lab, workspace)
            boards = _boards(entry, recipe, lab, boards_on, plan.on, untrusted=is_untrusted)
            content = RunContent.of(
                recipe,
                lab.root,
                target=lab.board(boards[0]).target,
                untrusted=is_untrusted,
                sha256=sha256,
            ).document()
            seconds = _seconds(entry.expected or expect(recipe, boards))
        except ConfigError as error:
            message = f"job {place}, {entry.recipe}: {error.message}"
            raise ConfigError(message, hint=error.hint) from error
        digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
        contents[digest] = content
        for turn, pool in _turns(entry, boards):
            job = FarmJob(
                f"{place}.{turn}",
                recipe.name,
                pool,
                seconds,
                entry.priority,
                entry.group,
                entry.uses,
                untrusted=workspace is not None,
            )
            found.append((place, turn, PlannedJob(job, digest)))
            most = MOST_JOBS if workspace is None else MOST_UNTRUSTED_JOBS
            if len(found) > most:
                raise ConfigError(f"the plan has too many jobs; the most is {most:,}")
    grouped = {entry.group for entry in plan.jobs if entry.group}
    in_turns = sorted(
        found, key=lambda one: (one[1], one[0]) if one[2].job.group in grouped else (0, one[0])
    )
    return PlannedBatch(plan.name, tuple(job for _, _, job in in_turns), contents)


def without_agent(lab: LabFile, boards: Set[str]) -> dict[str, ConfigError]:
    """Return the boards for which this host cannot have an agent, with the reason.

    Raises ConfigError if there is no other board.
    """
    targets: dict[str, ConfigError | None] = {}
    lacking: dict[str, ConfigError] = {}
    for name in sorted(boards):
        target = lab.board(name).target
        if target not in targets:
            targets[target] = lacking_agent(load_target(target, lab.root), lab.root)
        if error := targets[target]:
            lacking[name] = error
    if boards <= lacking.keys():
        raise next(iter(lacking.values()))
    return lacking


def _settings(entry: BatchEntry) -> tuple[str, ...]:
    """Return the changes of an entry, in the form of ``--set``."""
    return tuple(
        f"{key}={value if isinstance(value, str) else json.dumps(value)}"
        for key, value in entry.set.items()
    )


def _recipe(
    path: Path, settings: tuple[str, ...], lab: LabFile, workspace: Workspace | None
) -> AnyRecipe:
    """Read a recipe; an untrusted recipe must measure times. Raises ConfigError."""
    if workspace is not None:
        return read_recipe(path, settings, lab_root=lab.root, workspace=workspace)
    recipe = read_any(path, settings, lab_root=lab.root)
    check_job(recipe, str(path))
    return recipe


def _seconds(expected: float | None) -> float:
    if expected is None:
        raise ConfigError(
            "nobody knows how long a run takes",
            hint="give `expected: 1h`, or `max_time` in its recipe",
        )
    return expected


def _boards(
    entry: BatchEntry,
    recipe: AnyRecipe,
    lab: LabFile,
    boards_on: Callable[[str | None], tuple[str, ...]],
    default_on: str | None,
    *,
    untrusted: bool,
) -> tuple[str, ...]:
    """Return the boards that an entry may run on. Raises ConfigError."""
    for name in entry.uses:
        if name not in lab.lab.shared_limits:
            raise ConfigError(unknown("shared limit", name, lab.lab.shared_limits))
    selector = entry.on or default_on
    if not (isinstance(recipe, Recipe) or entry.boards or selector):
        return tuple(board.name for board in recipe.boards(lab))
    wanted = target_of(recipe) or lab.board((entry.boards or boards_on(selector))[0]).target
    for name in entry.boards:
        if (target := lab.board(name).target) != wanted:
            raise ConfigError(f"board {name} is a {target}, the recipe is for {wanted}")
    if untrusted:
        for name in entry.boards:
            check_board(lab.board(name))
        selector = f"{selector},untrusted=yes" if selector else None
    if entry.boards:
        return entry.boards
    found = tuple(name for name in boards_on(selector) if lab.board(name).target == wanted)
    if not found:
        marked = " with `untrusted: true`" if untrusted else ""
        raise ConfigError(f"none of the boards{marked} is a {wanted}, which the recipe is for")
    return found


def _turns(entry: BatchEntry, boards: tuple[str, ...]) -> Iterator[tuple[int, tuple[str, ...]]]:
    pools = [(board,) for board in boards] if entry.every_board else [boards]
    yield from enumerate((pool for _ in range(entry.times) for pool in pools), 1)
