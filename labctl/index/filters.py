"""Conditions that select runs, as SQL for both SQLite and PostgreSQL."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from labctl.config.types import parse_duration
from labctl.database.questions import select
from labctl.index.rows import held_text, moment, parameter_text

#: States for people. A stored run without an end is ``unfinished``: it is running if a controller
#: holds its directory now, else interrupted.
STATES = ("running", "finished", "failed", "interrupted", "damaged")
STORED_STATES = ("finished", "failed", "interrupted", "unfinished", "damaged")
KINDS = ("timing", "evaluation", "load-test")
VERDICTS = ("passed", "failed", "infra", "config")
_DAYS = re.compile(r"(\d{1,5})d")
#: A number of any length, which a float would round.
_WHOLE = re.compile(r"[+-]?[0-9]{1,4000}")
#: A condition, with the values of its names.
Condition = tuple[str, dict[str, str]]


@dataclass(frozen=True)
class Filter:
    """Conditions that a run must all meet; None and () set no condition."""

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
    #: Any of these states.
    states: tuple[str, ...] = ()
    #: Ids of the runs that a controller drives now: what ``states`` means by running.
    running: tuple[str, ...] = ()
    verdict: str | None = None
    #: ``timing`` or ``evaluation``.
    kind: str | None = None
    #: All of these tags.
    tags: tuple[str, ...] = ()
    #: Engine parameters (name, value): one variant has every name, each with any of its values.
    parameters: tuple[tuple[str, str], ...] = ()
    #: SHA-256 of the file that the run was imported from.
    imported_sha256: str | None = None

    @property
    def is_empty(self) -> bool:
        """True if every run meets it."""
        return self == Filter()


def no_state(word: str) -> str | None:
    """Return a hint for a word that lists show as a state, but no run has; None for other words."""
    if word in VERDICTS and word not in STATES:
        return f"{word!r} is a verdict: --verdict {word}"
    return None


def parse_moment(text: str) -> datetime:
    """Return the moment of a date, a time of a day, or an age such as ``7d`` or ``12h``.

    Without an offset, the moment is in UTC, like the ids of runs. Raises ValueError.
    """
    try:
        found = datetime.fromisoformat(text)
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        pass
    try:
        days = _DAYS.fullmatch(text)
        age = timedelta(days=int(days[1])) if days else timedelta(seconds=parse_duration(text))
        return datetime.now(UTC) - age
    except (ValueError, OverflowError):
        raise ValueError(
            f"{text!r}: must be a date such as 2026-11-22 or 2026-11-22T08:00 (UTC),"
            " or an age such as 7d or 12h"
        ) from None


_STARTS = "substr({}, 1, length(:{name})) = :{name}"
_MODEL = (
    f"(key = :model OR file = :model OR name = :model OR {_STARTS.format('sha256', name='model')})"
)
_BUILD = (
    f"(run.version = :build OR {_STARTS.format('run.build_key', name='build')}"
    f" OR {_STARTS.format('run.build_commit', name='build')})"
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
    """Return the condition on ``trial JOIN run``: selects matching trials of matching runs."""
    condition, values = run_condition(wanted)
    if wanted.board is not None:
        condition += " AND trial.board = :board"
    if wanted.quantization is not None:
        condition += " AND lower(trial.quantization) = lower(:quantization)"
    if wanted.parameters:
        same, more = _variant_condition(wanted, "trial.run", "trial.variant")
        condition += f" AND {same}"
        values |= more
    if wanted.model is not None:
        condition += f" AND trial.model IN ({select('key', 'model', 'model.run = run.id', _MODEL)})"
    return condition, values


def _parts(wanted: Filter) -> Iterator[Condition]:
    yield from _own_parts(wanted)
    if wanted.board is not None:
        yield _BOARD, {"board": wanted.board}
    if wanted.model is not None:
        yield _among("model", _MODEL), {"model": wanted.model}
    if wanted.quantization is not None:
        same = "lower(quantization) = lower(:quantization)"
        values = {"quantization": wanted.quantization}
        yield _among("model", same), values
    for number, tag in enumerate(wanted.tags):
        key = f"tag{number}"
        yield _among("tag", f"tag = :{key}"), {key: tag}
    if wanted.parameters:
        same, values = _variant_condition(wanted, "p.run", "p.variant")
        # The database's index finds rows by the first parameter; the other parameters are checked
        # there.
        texts = ", ".join(f":{key}" for key in values if key.startswith("parameter0_"))
        found = f"p.name = :parameter0 AND p.value IN ({texts})"
        yield f"run.id IN ({select('p.run', 'parameter AS p', found, same)})", values


def _among(table: str, condition: str) -> str:
    """Return the condition that a run has a matching row in another table."""
    return f"run.id IN ({select('run', table, condition)})"


def _own_parts(wanted: Filter) -> Iterator[Condition]:
    """Yield the conditions on columns of the table ``run``."""
    if wanted.ids:
        yield _any_of("run.id", "id", wanted.ids)
    for column in ("recipe", "verdict", "kind", "imported_sha256"):
        if (word := getattr(wanted, column)) is not None:
            yield f"run.{column} = :{column}", {column: word}
    if wanted.build is not None:
        yield _BUILD, {"build": wanted.build}
    for bound, than in (("since", ">="), ("until", "<")):
        if (when := getattr(wanted, bound)) is not None:
            yield f"run.started {than} :{bound}", {bound: moment(when)}
    if wanted.states:
        parts, values = zip(*_state_parts(wanted), strict=True)
        yield f"({' OR '.join(parts)})", {key: word for one in values for key, word in one.items()}


def _state_parts(wanted: Filter) -> Iterator[Condition]:
    """Yield one condition for each state; a run meets any of them."""
    plain = tuple(state for state in wanted.states if state != "running")
    if plain:
        yield _any_of("run.state", "state", plain)
    if not {"running", "interrupted"} & {*wanted.states}:
        return
    driven, values = _any_of("run.id", "driven", wanted.running or ("",))
    if "running" in wanted.states:
        yield f"run.state = 'unfinished' AND {driven}", values
    if "interrupted" in wanted.states:
        yield f"run.state = 'unfinished' AND NOT {driven}", values


def _variant_condition(wanted: Filter, run: str, variant: str) -> Condition:
    """Return the condition on a variant: it has each parameter, with one of the given values.

    Each parameter is one look-up in the table's key.
    """
    asked: dict[str, set[str]] = {}
    for name, value in wanted.parameters:
        asked.setdefault(name, set()).update((held_text(value), _as_number(value)))
    parts: list[str] = []
    values: dict[str, str] = {}
    for number, (name, texts) in enumerate(asked.items()):
        key = f"parameter{number}"
        same, more = _any_of(f"{key}.value", f"{key}_", tuple(sorted(texts)))
        of_variant = f"{key}.run = {run} AND {key}.variant = {variant} AND {key}.name = :{key}"
        parts.append(f"EXISTS ({select('1', f'parameter AS {key}', of_variant, same)})")
        values |= {key: name, **more}
    return " AND ".join(parts), values


def _as_number(text: str) -> str:
    """Return a number or truth value in the form of the index: ``4`` for ``4.0``."""
    if text.lower() in ("true", "false", "null"):
        return text.lower()
    try:
        return str(int(text)) if _WHOLE.fullmatch(text) else parameter_text(float(text))
    except ValueError:
        return text


def _any_of(column: str, name: str, words: tuple[str, ...]) -> Condition:
    values = {f"{name}{number}": word for number, word in enumerate(words)}
    return f"{column} IN ({', '.join(f':{key}' for key in values)})", values
