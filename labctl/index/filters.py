"""Conditions that choose runs, as SQL that SQLite and PostgreSQL both know."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

#: A condition, with a value for each of its names.
Condition = tuple[str, dict[str, str]]


@dataclass(frozen=True)
class Filter:
    """Conditions that a run must all meet; None and () are none."""

    ids: tuple[str, ...] = ()
    recipe: str | None = None
    board: str | None = None
    #: Key in the recipe, file, name in the file, or the start of its SHA-256.
    model: str | None = None
    quantization: str | None = None
    #: Version, or the start of the artifact's key or of the source's commit.
    build: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    #: Any of these.
    states: tuple[str, ...] = ()
    verdict: str | None = None
    #: All of these.
    tags: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """True if every run meets it."""
        return self == Filter()


def moment(when: datetime) -> str:
    """Return a moment as the index holds it: text that sorts as time does."""
    return when.astimezone(UTC).isoformat(timespec="microseconds")


def _starts(column: str, name: str) -> str:
    return f"substr({column}, 1, length(:{name})) = :{name}"


_MODEL = f"(key = :model OR file = :model OR name = :model OR {_starts('sha256', 'model')})"
_BUILD = (
    f"(run.version = :build OR {_starts('run.build_key', 'build')}"
    f" OR {_starts('run.build_commit', 'build')})"
)
_BOARD = "(run.board = :board OR run.id IN (SELECT run FROM trial WHERE board = :board))"


def run_condition(wanted: Filter) -> Condition:
    """Return the condition on the table ``run``."""
    parts: list[str] = []
    values: dict[str, str] = {}
    for part, more in _parts(wanted):
        parts.append(part)
        values.update(more)
    return " AND ".join(parts) or "1 = 1", values


def trial_condition(wanted: Filter) -> Condition:
    """Return the condition on ``trial JOIN run``: of a run that meets it, the trials that do."""
    condition, values = run_condition(wanted)
    if wanted.board is not None:
        condition += " AND trial.board = :board"
    if wanted.quantization is not None:
        condition += " AND lower(trial.quantization) = lower(:quantization)"
    if wanted.model is not None:
        condition += (
            f" AND trial.model IN (SELECT key FROM model WHERE model.run = run.id AND {_MODEL})"
        )
    return condition, values


def _parts(wanted: Filter) -> Iterator[Condition]:
    if wanted.ids:
        yield _any_of("run.id", "id", wanted.ids)
    if wanted.recipe is not None:
        yield "run.recipe = :recipe", {"recipe": wanted.recipe}
    if wanted.board is not None:
        yield _BOARD, {"board": wanted.board}
    if wanted.model is not None:
        yield f"run.id IN (SELECT run FROM model WHERE {_MODEL})", {"model": wanted.model}
    if wanted.quantization is not None:
        same = "lower(quantization) = lower(:quantization)"
        values = {"quantization": wanted.quantization}
        yield f"run.id IN (SELECT run FROM model WHERE {same})", values
    if wanted.build is not None:
        yield _BUILD, {"build": wanted.build}
    if wanted.since is not None:
        yield "run.started >= :since", {"since": moment(wanted.since)}
    if wanted.until is not None:
        yield "run.started < :until", {"until": moment(wanted.until)}
    if wanted.states:
        yield _any_of("run.state", "state", wanted.states)
    if wanted.verdict is not None:
        yield "run.verdict = :verdict", {"verdict": wanted.verdict}
    for number, tag in enumerate(wanted.tags):
        key = f"tag{number}"
        yield f"run.id IN (SELECT run FROM tag WHERE tag = :{key})", {key: tag}


def _any_of(column: str, name: str, words: tuple[str, ...]) -> Condition:
    values = {f"{name}{number}": word for number, word in enumerate(words)}
    return f"{column} IN ({', '.join(f':{key}' for key in values)})", values
