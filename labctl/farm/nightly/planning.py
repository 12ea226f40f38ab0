"""From a plan to the rows of a night: the measurements, their pairs, and the slowdowns to find."""

import hashlib
import socket
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from uuid import uuid4

from labctl.compare.series import series_of
from labctl.config.lab import LabFile
from labctl.config.recipe import Recipe, find_recipe
from labctl.config.yaml.document import Document
from labctl.errors import ConfigError
from labctl.evaluation.any_recipe import AnyRecipe, check_job, read_any, target_of
from labctl.farm.nightly.acceptance import accepted_changes
from labctl.farm.nightly.budget import (
    LEAST,
    LOOKS,
    MOST_PAIRS,
    plan_pairs,
    scatter_error,
    smallest_slowdown,
)
from labctl.farm.nightly.executor import Built
from labctl.farm.nightly.hosts import check_reach
from labctl.farm.nightly.nights import NIGHT_TIME, PastRow, past_findings, past_rows
from labctl.farm.nightly.plan_file import NightPlan, NightRows
from labctl.farm.nightly.times import confirming_seconds, enough_time
from labctl.farm.selector import BoardSelector, select_boards
from labctl.index.filters import Filter
from labctl.records.night import NightRecord, NightRow, NightVerdict
from labctl.runs.record.history import last_seen
from labctl.runs.record.repository import RunRepository
from labctl.state.state import lab_state
from labctl.stats.scatter import Scatter
from labctl.stats.steps import noise
from labctl.suggestions import unknown

#: Minimum nights of a series to estimate its noise.
_LEAST_NIGHTS = 6
#: Number of a board's last runs used to estimate the time of a run.
_RECENT = 20
#: Maximum number of nights without a verdict that raise the value of a row.
_MOST_WAITED = 7


@dataclass(frozen=True)
class Planned:
    """The rows of a night, and the recipe of each row by the row's name."""

    record: NightRecord
    recipes: Mapping[str, AnyRecipe]


def make_plan(
    lab: LabFile,
    plan: NightPlan,
    document: Document,
    *,
    host: str | None = None,
    now: Callable[[], datetime] | None = None,
) -> Planned:
    """Resolve a plan: read recipes, look at past runs and nights, choose pairs for each row.

    ``host`` is the name of this lab host in devices.yaml; None: the host's own name. Raises
    ConfigError, with the place in the plan, for anything the lab lacks.
    """
    started = now() if now else datetime.now(UTC)
    recipes: dict[str, AnyRecipe] = {}
    rows = []
    past, findings = past_rows(lab.root, plan.name), past_findings(lab.root, plan.name)
    accepted = lab_state(lab).accepted.list(plan.name)
    for index, group in enumerate(plan.rows):
        for row, recipe in _rows(lab, plan, document, index, group):
            check_reach(lab, row.board, host or socket.gethostname())
            if row.name in recipes:
                problem = f"{row.name} is in the plan twice"
                raise document.refusal([(("rows", index), problem)])
            measured = past.get(row.name, PastRow(None, None))
            known = measured.noise or _series_noise(lab.root, row, plan.figure)
            seconds = measured.seconds or _seconds(lab.root, recipe, row.board)
            waited = waited_nights([one.get(row.name, ()) for one in findings])
            recipes[row.name] = recipe
            update = {
                "seconds": seconds,
                "required": group.required,
                "accepted": accepted_changes(accepted, row.name),
            }
            timed = row.model_copy(update=update)
            rows.append(with_pairs(timed, known, group.priority, waited))
    on_board = Counter(row.board for row in rows)
    rows = [
        row.model_copy(update={"scatter_error": scatter_error(on_board[row.board])}) for row in rows
    ]
    pools = {row.name: _equals(lab, row, rows) for row in rows}
    rows = [row.model_copy(update={"equals": pools[row.name]}) for row in rows]
    record = NightRecord(
        id=f"{started:{NIGHT_TIME}}-{plan.name}-{uuid4().hex[:6]}",
        plan=plan.name,
        started=started,
        deadline=started.timestamp() + plan.time,
        bisect=plan.bisect,
        rows=tuple(_in_time(rows, plan.time)),
        plan_sha256=plan_digest(document),
        recipes={row.recipe: recipes[row.name].as_written or "" for row in rows},
    )
    return Planned(record, recipes)


def plan_digest(document: Document) -> str:
    """Return the digest that identifies a plan."""
    return hashlib.sha256(document.text.encode()).hexdigest()


def recipes_of(lab: LabFile, record: NightRecord) -> Mapping[str, AnyRecipe]:
    """Return the recipe of each row as it was when the night began. Raises ConfigError."""
    return {row.name: night_recipe(lab, record.recipes, row) for row in record.rows}


def night_recipe(
    lab: LabFile, texts: Mapping[str, str], row: NightRow, settings: tuple[str, ...] = ()
) -> AnyRecipe:
    """Return the recipe of a row, from its text when the night began. Raises ConfigError."""
    document = Document.parse(texts[row.recipe], row.recipe)
    return read_any(document, settings, lab_root=lab.root)


def recipe_with(lab: LabFile, texts: Mapping[str, str], row: NightRow, built: Built) -> AnyRecipe:
    """Return the recipe of a row with a build as its program. Raises ConfigError."""
    if row.gated:
        recipe = night_recipe(lab, texts, row)
        assert not isinstance(recipe, Recipe)
        return recipe.changed_on_board(version=built.version)
    return night_recipe(lab, texts, row, (f"engine.version={built.version}",))


def _rows(
    lab: LabFile, plan: NightPlan, document: Document, index: int, group: NightRows
) -> Iterator[tuple[NightRow, AnyRecipe]]:
    for number, word in enumerate(group.recipes):
        place = ("rows", index, "recipes", number)
        try:
            recipe = read_any(find_recipe(word, lab.root), lab_root=lab.root)
            check_job(recipe, word)
        except ConfigError as error:
            raise document.refusal([(place, error.message)]) from error
        if not (isinstance(recipe, Recipe) or recipe.gates):
            problem = f"recipe {recipe.name} has no gates, and a night judges only its gates"
            raise document.refusal([(place, problem)])
        for path, name in _boards(lab, document, index, group):
            if name not in lab.lab.boards:
                raise document.refusal([(path, unknown("board", name, lab.lab.boards))])
            if lab.lab.boards[name].untrusted:
                problem = f"board {name} takes untrusted recipes: its results are not trusted"
                raise document.refusal([(path, problem)])
            target = lab.lab.boards[name].target
            wanted = target_of(recipe) or target
            if target != wanted:
                problem = f"board {name} is a {target}, recipe {recipe.name} is for {wanted}"
                raise document.refusal([(path, problem)])
            row = NightRow(
                name=f"{plan.build_of(group)}/{recipe.name}@{name}",
                build=f"{plan.build_of(group)}/{target}",
                recipe=word,
                board=name,
                variants=_variants(recipe),
                gated=not isinstance(recipe, Recipe),
                seconds=0.0,
                find=plan.find,
                screen=0,
                look=0,
            )
            if isinstance(recipe, Recipe):
                limits = recipe.comparison
                practical = min(limits.practical, plan.find / 2)
                update = {"practical": practical, "same_within": limits.same_within}
                row = row.model_copy(update=update)
            yield row, recipe


def _variants(recipe: AnyRecipe) -> tuple[str, ...]:
    if isinstance(recipe, Recipe):
        return tuple(one.slug for one in recipe.variants())
    return ("gates",)


def _boards(
    lab: LabFile, document: Document, index: int, group: NightRows
) -> list[tuple[tuple[str | int, ...], str]]:
    """Return the boards of a group, each with its place in the plan. Raises ConfigError."""
    path = ("rows", index, "boards")
    if not isinstance(group.boards, str):
        return [((*path, position), name) for position, name in enumerate(group.boards)]

    def memory(name: str) -> int | None:
        seen = last_seen(lab.root, name)
        return None if seen is None else seen.facts.memory_total_bytes

    def health(name: str) -> str:
        return str(lab_state(lab).health.get(name).health)

    try:
        selector = BoardSelector.parse(group.boards)
        names = select_boards(lab, selector, memory=memory, health=health)
    except ConfigError as error:
        raise document.refusal([(path, error.message)]) from error
    return [(path, name) for name in names]


def with_pairs(row: NightRow, known: Scatter | None, priority: float, waited: int) -> NightRow:
    """Return a row with its pairs: the fewest, to learn its noise, if none find the slowdown.

    A row of which only the gates are judged has the time of two runs.
    """
    if row.gated:
        value = priority * (1 + waited) / max(1.0, 2 * row.seconds)
        return row.model_copy(update={"screen": 1, "value": value})
    noise = None if known is None else known.sigma
    pairs = plan_pairs(noise, row.find, row.practical)
    mde = None
    if noise is not None:
        count = MOST_PAIRS if pairs is None else LOOKS * pairs.look
        mde = smallest_slowdown(noise, count, row.practical)
    chosen = pairs or LEAST
    value = priority * (1 + waited) / max(1.0, 2 * row.seconds * chosen.screen)
    return row.model_copy(
        update={
            "noise": noise,
            "noise_degrees": None if known is None else known.degrees,
            "is_too_noisy": pairs is None,
            "screen": chosen.screen,
            "look": chosen.look,
            "mde": mde,
            "value": value,
        }
    )


def _in_time(rows: list[NightRow], seconds: float) -> Iterator[NightRow]:
    """Yield the rows; mark the least valuable rows of each board for which there is no time.

    A board's time must suffice for the screening of its rows and the confirmation of one row.
    """
    left: set[str] = set()
    for board in {row.board for row in rows}:
        own = [row for row in rows if row.board == board]
        used = longest = 0.0
        for row in sorted(own, key=lambda one: (-one.value, one.name)):
            confirm = max(longest, confirming_seconds(row))
            if used + 2 * row.seconds * row.screen + confirm > seconds:
                left.add(row.name)
                continue
            used, longest = used + 2 * row.seconds * row.screen, confirm
    for row in rows:
        reason = f"there is no time for it on its board: {enough_time(row, rows)}"
        yield row.model_copy(update={"unmonitored": reason}) if row.name in left else row


def _equals(lab: LabFile, row: NightRow, rows: list[NightRow]) -> tuple[str, ...]:
    """Return the other boards of the plan with a row's target."""
    target = lab.lab.boards[row.board].target
    others = dict.fromkeys(one.board for one in rows if one.board != row.board)
    return tuple(name for name in others if lab.lab.boards[name].target == target)


def waited_nights(nights: Sequence[Sequence[NightVerdict]]) -> int:
    """Return for how many nights, up to the last, some variant of a row got no verdict.

    ``nights``: the verdicts on the row's variants, newest night first; empty for none.
    """
    open_ones = (NightVerdict.NOT_JUDGED, NightVerdict.NOT_MONITORED, NightVerdict.NOT_MEASURED)
    for count, verdicts in enumerate(nights):
        if verdicts and not any(one in open_ones for one in verdicts):
            return min(count, _MOST_WAITED)
    return min(len(nights), _MOST_WAITED)


def _seconds(root: Path, recipe: AnyRecipe, board: str) -> float:
    """Return the time of a run: the median of the last runs; 0 without runs."""
    wanted = Filter(recipe=recipe.name, board=board, states=("finished",), kind=recipe.kind)
    runs = [one.run for one in RunRepository(root / "runs").query(wanted, limit=_RECENT)]
    took = [
        (datetime.fromisoformat(run.finished) - datetime.fromisoformat(run.started)).total_seconds()
        for run in runs
        if run.finished and run.imported_from is None
    ]
    return median(took) if took else 0.0


def _series_noise(root: Path, row: NightRow, figure: str | None) -> Scatter | None:
    """Return the noise of a run from the board's own history; None if the history is too short."""
    import numpy as np

    recipe = row.name.partition("/")[2].rpartition("@")[0]
    trials = RunRepository(root / "runs").trials(Filter(recipe=recipe, board=row.board))
    found = [
        Scatter(noise(np.log(np.asarray(series.run_values))), len(series.run_values) - 1.0)
        for series in series_of(trials, [figure] if figure else [])
        if len(series.values) >= _LEAST_NIGHTS
    ]
    return max(found, key=lambda one: one.sigma, default=None)
