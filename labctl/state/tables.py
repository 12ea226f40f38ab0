"""Tables of the lab's state: the type and the rule of each column.

The rule is checked when a value is stored and when it is read, because SQLite stores any type in
any column. :mod:`labctl.state.sql_tables` makes SQLAlchemy tables from these declarations.
"""

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache, partial
from typing import Any

from labctl.errors import ConfigError, printable_line
from labctl.state.uses import RUNNERS, USE_KINDS
from labctl.text_types import LONGEST_LINE

#: Largest JSON: the request of a job, with its recipe.
_MOST_JSON = 4_000_000
#: Times before this (year 9999) have a date in every time zone.
_END_OF_TIME = 253_370_764_800.0
#: Above this, REAL and INTEGER of a database no longer represent the same numbers.
MOST_WHOLE = 2**53 - 1


@dataclass(frozen=True)
class Column:
    """Values of a column.

    ``read`` returns the value for readers, or raises ValueError with the reason; ``otherwise``
    replaces a damaged value. ``kind``: type in the database (text, int or float).
    """

    read: Callable[[Any], Any]
    otherwise: Any = None
    kind: type[str | int | float] = str
    #: None may be stored, and is read as None.
    is_optional: bool = False
    #: None may be stored, and is read as another value.
    is_nullable: bool = False


def _line(value: object, *, most: int = LONGEST_LINE) -> str:
    if not isinstance(value, str):
        raise ValueError("not text")  # noqa: TRY004 - as for all that is damaged
    if len(value) > most:
        raise ValueError(f"longer than {most} characters")
    if not value.isprintable() and printable_line(value) != value:
        raise ValueError("it has control characters")
    return value


def _sha256(value: object) -> str:
    if not re.fullmatch(r"[0-9a-f]{64}", _line(value)):
        raise ValueError("not a SHA-256")
    return str(value)


def _number(value: object, *, low: float = 0.0, high: float = MOST_WHOLE) -> float:
    if type(value) not in (int, float) or not low <= value < high:  # type: ignore[operator]
        raise ValueError(f"not a number from {low:g} to {high:g}")
    return value  # type: ignore[return-value]


def _whole(value: object, *, low: int = 0, high: int = MOST_WHOLE) -> int:
    if type(value) is not int or not low <= value <= high:
        raise ValueError(f"not a whole number from {low} to {high}")
    return value


def _moment(value: object) -> float:
    try:
        return _number(value, high=_END_OF_TIME)
    except ValueError:
        raise ValueError("not a time of the years 1970 to 9998") from None


def _iso(value: object) -> datetime:
    found = datetime.fromisoformat(_line(value))
    if found.tzinfo is None or not 1970 <= found.year < 9999:
        raise ValueError("not a time of the years 1970 to 9998 with an offset")
    return found


def _object(value: object) -> dict[str, Any]:
    if not isinstance(value, str) or len(value) > _MOST_JSON:
        raise ValueError("not JSON, or too large")
    try:
        found = json.loads(value, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise ValueError("broken JSON") from None
    if not isinstance(found, dict):
        raise ValueError("not a JSON object")  # noqa: TRY004 - as for all that is damaged
    return found


def _details(value: object) -> dict[str, Any]:
    return {} if value is None else _object(value)


def _no_constant(name: str) -> float:
    raise ValueError(name)


def _json_object(value: object) -> str:
    _object(value)
    return str(value)


@lru_cache(maxsize=256)
def _names(value: object) -> tuple[str, ...]:
    try:
        found = json.loads(str(value))
    except (ValueError, RecursionError):
        raise ValueError("broken JSON") from None
    if not isinstance(value, str) or not isinstance(found, list):
        raise ValueError("not a JSON list")  # noqa: TRY004 - as for all that is damaged
    return tuple(map(_line, found))


def _moments(value: object) -> dict[str, float]:
    return {_line(name): _moment(moment) for name, moment in _object(value).items()}


def _word(value: object, *, known: Sequence[str]) -> str:
    if value not in known:
        raise ValueError("an unknown word")
    return str(value)


def _one_of(*known: str) -> Column:
    return Column(partial(_word, known=known), known[0])


def _or_null(column: Column) -> Column:
    return replace(column, otherwise=None, is_optional=True, is_nullable=True)


#: :func:`shown` makes the replacement of a damaged text.
_LINE, _SHA256 = Column(_line, ""), Column(_sha256, "")
_MOMENT, _SECONDS = Column(_moment, 0.0, float), Column(_number, 0.0, float)
_COUNT = Column(_whole, 0, int)
_ISO = Column(_iso, datetime.fromisoformat("1970-01-01T00:00:00Z"))
_OBJECT, _NAMES = Column(_details, {}, is_nullable=True), Column(_names, ())
_LINE_0, _MOMENT_0 = _or_null(_LINE), _or_null(_MOMENT)

#: table -> its columns; the first columns name a row for people. Times are seconds since 1970 in
#: UTC, only by the database's clock.
COLUMNS: Mapping[str, Mapping[str, Column]] = {
    "baseline": {
        "name": _LINE, "variant": _LINE_0, "note": _LINE_0, "set_by": _LINE,
        "set_at": _ISO,
    },
    "baseline_run": {"baseline": _LINE, "run": _LINE, "position": _COUNT},
    "accepted_slowdown": {
        "row_name": _LINE, "variant": _LINE, "plan": _LINE, "night": _LINE, "source": _LINE,
        "good": _LINE, "ratio": Column(partial(_number, low=1e-6, high=1e6), 1.0, float),
        "reason": _LINE_0, "made_by": _LINE, "made_at": _ISO,
    },
    # A board's last epoch stays when its lease ends.
    "board_lease": {
        "board": _LINE, "epoch": _COUNT, "token": _LINE, "holder": _LINE, "host": _LINE,
        "pid": _COUNT, "kind": _one_of(*USE_KINDS), "purpose": _LINE, "job": _LINE_0,
        "hardware": _LINE_0, "since": _MOMENT, "expires": _MOMENT_0,
    },
    # Identifies this state on the boards, which may know several labs.
    "state_identity": {"id": _LINE},
    "reservation": {
        "id": _LINE, "board": _LINE, "kind": _one_of("maintenance", "hold", "reservation"),
        "holder": _LINE, "begins": _MOMENT, "ends": _MOMENT, "reason": _LINE_0,
        "made_by": _LINE, "made_at": _MOMENT,
    },
    "board_health": {
        "board": _LINE,
        "health": _or_null(
            _one_of("good", "unknown", "looping", "bad", "maintenance", "retired")
        ),
        "since": _MOMENT_0, "reason": _LINE_0, "made_by": _LINE_0, "evidence": _OBJECT,
        "state": _or_null(_one_of("idle", "leased", "offline")), "firmware": _LINE_0,
        "checked_at": _MOMENT_0, "checked_run": _LINE_0, "jobs_since_check": _COUNT,
        "check_wanted_at": _MOMENT_0, "check_wanted_for": _LINE_0,
        "contact": _or_null(_one_of("connected", "offline", "unauthorised", "failing")),
        "contact_at": _MOMENT_0,
    },
    "board_event": {
        "id": _COUNT, "board": _LINE, "at": _MOMENT,
        "kind": _one_of("state", "health", "firmware", "check", "recovery", "host", "flip"),
        "value": _LINE, "reason": _LINE_0, "made_by": _LINE, "details": _OBJECT,
    },
    # `request` is a key of job_content, `boards` a key of board_list. Jobs share these rows, which
    # never change; the key is the SHA-256 of the content.
    "job": {
        "id": _LINE, "kind": _one_of(*USE_KINDS), "runner": _one_of(*RUNNERS), "name": _LINE,
        "request": _SHA256, "boards": _SHA256, "tried": _NAMES, "uses": _NAMES,
        "broken": Column(_moments, {}),
        "priority": Column(partial(_whole, low=-100, high=100), 0, int),
        "position": Column(partial(_number, low=-MOST_WHOLE), 0.0, float), "submitter": _LINE,
        "submitted_at": _MOMENT, "expected_seconds": _or_null(_SECONDS), "max_seconds": _SECONDS,
        "state": _one_of("running", "waiting", "done", "cancelled"), "board": _LINE_0,
        "worker": _LINE_0, "attempts": _COUNT, "failures": _COUNT, "expires": _MOMENT_0,
        "stop": _LINE_0, "run": _LINE_0, "started_at": _MOMENT_0, "ended_at": _MOMENT_0,
        "exit_status": _or_null(Column(partial(_whole, low=-255, high=255), kind=int)),
        "blame": _or_null(_one_of("infra", "job", "config")), "reason": _LINE_0,
        "group_id": _LINE_0, "unit": _LINE_0, "home": _LINE_0,
    },
    # Without an owner, its jobs need only workers; else no job begins once the owner has expired.
    # On `boards` without a worker the owner runs jobs itself, except the jobs and contents in
    # `leaves`. `restarts` is 1 if a unit interrupted between its jobs is cancelled.
    "job_group": {
        "id": _LINE, "kind": _one_of("batch", "nightly"), "name": _LINE, "submitter": _LINE,
        "restarts": _COUNT, "owner": _LINE_0, "boards": _NAMES, "leaves": _NAMES,
        "expires": _MOMENT_0, "made_at": _MOMENT,
    },
    "job_content": {"sha256": _SHA256, "content": Column(_json_object, "{}")},
    "board_list": {"sha256": _SHA256, "place": _COUNT, "board": _LINE},
    # `leaves`: jobs and contents that the worker cannot run.
    "worker": {
        "name": _LINE, "host": _LINE, "boards": _NAMES, "leaves": _NAMES, "version": _LINE,
        "started_at": _MOMENT, "alive_at": _MOMENT,
    },
    "stored_run": {"run": _LINE, "sha256": _SHA256, "host": _LINE, "stored_at": _MOMENT},
    "audit": {
        "id": _COUNT, "at": _MOMENT, "actor": _LINE, "via": _LINE, "action": _LINE,
        "subject": _LINE, "reason": _LINE_0, "details": _OBJECT,
    },
    "access_token": {
        "name": _LINE, "sha256": _SHA256, "role": _one_of("look", "run", "admin"),
        "made_by": _LINE, "made_at": _MOMENT, "expires": _MOMENT_0,
    },
}  # fmt: skip
#: table -> the columns that identify a row; for other tables, the first column.
KEYS = {
    "baseline_run": ("baseline", "position"),
    "accepted_slowdown": ("plan", "row_name", "variant"),
    "board_list": ("sha256", "place"),
    "access_token": ("sha256",),
}
_ANY_REMOVAL = "labctl state damaged"
#: table -> the command that removes its damaged row; for other tables `labctl state damaged`.
_REMOVAL = {
    "baseline": "labctl baseline remove {name}",
    "board_lease": "labctl release {board} --force --reason TEXT",
    "board_health": "labctl boards good {board} --reason TEXT",
    "reservation": "labctl hold --cancel {id} --force --reason TEXT",
    "job": "labctl queue cancel {id}",
    "access_token": "labctl serve token revoke {name}",
}


def read(table: str, names: Sequence[str], row: Sequence[Any]) -> tuple[dict[str, Any], str | None]:
    """Return the values of a row, and its damage with the command that removes the row.

    The damage is None for a valid row. A damaged value is replaced by a text that is safe to show.
    """
    values: dict[str, Any] = {}
    wrong: dict[str, str] = {}
    for name, value in zip(names, row, strict=True):
        column = COLUMNS[table][name]
        if value is None and column.is_optional:
            values[name] = None
            continue
        kept = value
        if isinstance(value, bytes):  # it may still name a kept board
            wrong[name] = f"{name} is {shown(value)!r}: bytes, not text"
            kept = value.decode(errors="replace")
        try:
            values[name] = column.read(kept)
        except ValueError as error:
            is_text = isinstance(kept, str) and column.otherwise in ("", None)
            is_line = is_text and column.read is _line
            values[name] = shown(kept) if is_line else column.otherwise
            wrong[name] = f"{name} is {shown(value)!r}: {error}"
    if not wrong:
        return values, None
    key = next(iter(COLUMNS[table]))
    is_named = key in values and key not in wrong
    command = _REMOVAL.get(table, _ANY_REMOVAL) if is_named else _ANY_REMOVAL
    why = "; ".join(list(wrong.values())[:3])
    return values, f"damaged: {why}; to remove it: `{command.format(**values)}`"


def stored_names(names: Iterable[str]) -> str:
    """Return names in their stored form."""
    return json.dumps([*names])


def as_json(values: Mapping[str, Any]) -> str:
    """Return JSON that can be stored; numbers that are not finite become null."""
    return json.dumps(_finite(values))


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(one) for key, one in value.items()}
    return [*map(_finite, value)] if isinstance(value, list | tuple) else value


def shown(value: object) -> str:
    """Return a stored value of any type as a short text that is safe for a terminal."""
    text = value if isinstance(value, str) else repr(value)
    text = printable_line(text[:200])
    return text if len(text) <= 60 else f"{text[:59]}…"


def short_line(text: str | None) -> str | None:
    """Return a text in its stored form: one line, safe for a terminal, of limited length."""
    return printable_line(text)[:LONGEST_LINE] if text else None


def checked(table: str, values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return all or some values of a row if they may be stored. Raises ConfigError."""
    for name, value in values.items():
        column = COLUMNS[table][name]
        if value is None and column.is_optional:
            continue
        try:
            column.read(value)
        except ValueError as error:
            what = f"{name} of a {table.replace('_', ' ')}"
            raise ConfigError(f"cannot store {shown(value)!r} as {what}: {error}") from None
    return values
