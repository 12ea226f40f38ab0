"""Read files of llama-bench results from unknown sources.

From an SQL file, labctl runs only the two statements that llama-bench prints, on a private table in
memory. Everything has a limit.
"""

import re
import sqlite3
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Annotated, Self, TypeAlias

from pydantic import (
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_core import from_json

from labctl.config.printed import FailFastModel
from labctl.config.yaml.messages import path_text
from labctl.engines.llama_cpp.bench_results import NAME, TABLE, Row
from labctl.errors import ConfigError, printable_line
from labctl.records.base import Moment

MOST_BYTES = 64 << 20
MOST_TESTS = 5_000
_MOST_COLUMNS = 100
_MOST_TEXT = 1_000
_MOST_SAMPLES = 10_000
#: Largest 64-bit integer.
_MOST = (1 << 63) - 1
_SQL_SECONDS = 10.0
_SQL_MEMORY_PAGES = 32 << 10  # of 4 KiB
_SQLITE_MAGIC = b"SQLite format 3\0"
#: The table's name, and its name until August 2025.
_TABLES = (TABLE, "test")
_SQL = re.compile(
    rb"\b(?:CREATE\s+TABLE|INSERT\s+INTO)\b[^;(]{0,200}\b(?:%s)\b" % "|".join(_TABLES).encode(),
    re.I,
)
#: A line that may begin an SQL statement.
_SQL_LINE = re.compile(rb"--|/\*|;|\w+(?:\s|$)")
_UTF8_MARK = b"\xef\xbb\xbf"
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
#: First bytes of a file that show its format.
_SHOWN = 1 << 16
_SHOWN_OF_LINE = 80
#: A line of JSON results. Log lines begin with words, or with numbers before words.
_JSON_LINE = re.compile(rb'[][{}",]|(?:-?[0-9][0-9.eE+-]*|true|false|null)\s*,?$')
#: A line that begins like JSON but is not JSON: ``[12:00:01] load``, ``[INFO] load``, ``]build:
#: 1``.
_LOG_IN_BRACKETS = re.compile(rb'\[[^]"{]*\]\s*[^],}\s]|\{\s*[^"}\s]|\]+\s*[^],}\s]')
_ALONE = (
    "redirect the standard output of llama-bench alone (`llama-bench -o json > FILE`), or remove"
    " the other lines"
)
#: Actions of SQL -> their allowed objects.
Allowed: TypeAlias = Mapping[int, Collection[str | None]]
_PLAIN_TABLE = re.compile(r"CREATE TABLE\b", re.I)
#: Actions of llama-bench's statements; reading is allowed after them.
_WRITES: Allowed = {
    sqlite3.SQLITE_CREATE_TABLE: _TABLES,
    sqlite3.SQLITE_INSERT: {*_TABLES, "sqlite_master"},
    sqlite3.SQLITE_UPDATE: {"sqlite_master"},
    sqlite3.SQLITE_READ: {"sqlite_master"},
    sqlite3.SQLITE_TRANSACTION: {"BEGIN", "COMMIT"},
}
_READS: Allowed = {
    sqlite3.SQLITE_SELECT: {None},
    sqlite3.SQLITE_READ: {*_TABLES, "sqlite_master"},
}

_Text = Annotated[str, StringConstraints(max_length=_MOST_TEXT)]
_Count = Annotated[int, Field(ge=0, le=_MOST)]
_Positive = Annotated[int, Field(gt=0, le=_MOST)]
_Number = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class BenchLine(FailFastModel):
    """A test of llama-bench, with the fields that labctl uses. None: missing in the file."""

    model_config = ConfigDict(extra="ignore", frozen=True, protected_namespaces=())

    build_commit: Annotated[_Text, StringConstraints(min_length=1)]
    build_number: int | None = Field(None, ge=-_MOST, le=_MOST)
    cpu_info: _Text | None = None
    gpu_info: _Text | None = None
    backends: _Text | None = None
    model_filename: Annotated[_Text, StringConstraints(min_length=1)]
    model_type: _Text | None = None
    model_size: _Count | None = None
    model_n_params: _Count | None = None
    n_batch: _Count | None = None
    n_ubatch: _Count | None = None
    n_threads: _Count | None = None
    type_k: _Text | None = None
    type_v: _Text | None = None
    n_prompt: _Count
    n_gen: _Count
    #: Versions before this option had no depth.
    n_depth: _Count = 0
    test_time: Moment
    avg_ns: _Positive
    stddev_ns: _Count | None = None
    avg_ts: Annotated[_Number, Field(gt=0)]
    stddev_ts: _Number | None = None
    samples_ns: Annotated[tuple[_Positive, ...], Field(max_length=_MOST_SAMPLES)] = ()

    @field_validator("*", mode="before")
    @classmethod
    def _numbers_are_numbers(cls, value: object) -> object:
        if isinstance(value, bool):
            raise ValueError("a truth value")  # noqa: TRY004 - pydantic collects these
        return value

    @model_validator(mode="after")
    def _something_was_measured(self) -> Self:
        if self.n_prompt == self.n_gen == 0:
            raise ValueError("n_prompt and n_gen are both 0: nothing was measured")
        return self


@dataclass(frozen=True)
class BenchFile:
    """Tests of a file, with their original rows."""

    #: json, jsonl, sql or sqlite
    form: str
    rows: tuple[Row, ...]
    tests: tuple[BenchLine, ...]


def looks_like_bench(data: bytes) -> bool:
    """Return True if the content of a file may be results of llama-bench."""
    shown = data[:_SHOWN].replace(b"\0", b"")  # UTF-16 has them
    return (
        data.startswith(_SQLITE_MAGIC)
        or _stripped(data[:1000])[:1] in (b"[", b"{")
        or b'"build_commit"' in shown  # after lines of a log
        or _SQL.search(shown) is not None
    )


def read_bench(data: bytes) -> BenchFile:
    """Return the tests in a file, by its content. Raises ConfigError with place and problem."""
    if len(data) > MOST_BYTES:
        raise ConfigError(f"the file is larger than {MOST_BYTES >> 20} MiB")
    if data.startswith(_SQLITE_MAGIC):
        form, rows = "sqlite", _from_database(data)
    elif data.startswith(_UTF16_MARKS) or b"\0" in data[:2]:
        raise ConfigError(
            "the file is in UTF-16, as PowerShell writes it; llama-bench writes UTF-8",
            hint="convert it: `Get-Content OLD | Set-Content -Encoding utf8 NEW` in PowerShell, or"
            " `iconv -f UTF-16 -t UTF-8 OLD > NEW`",
        )
    elif _stripped(data)[:1] not in (b"[", b"{") and _SQL.search(data[:_SHOWN]):
        form, rows = "sql", _from_sql(data)
    else:
        form, rows = _from_json(data)
    if not rows:
        raise ConfigError("the file has no tests")
    tests = []
    for number, row in enumerate(rows, 1):
        try:
            tests.append(BenchLine.model_validate(row))
        except ValidationError as error:
            problems = [
                ": ".join(filter(None, (path_text(p["loc"]), p["msg"])))
                for p in error.errors(include_url=False, include_input=False)
            ]
            raise ConfigError(
                f"test {number} of {len(rows)} is not a llama-bench test: {'; '.join(problems[:3])}"
            ) from error
    return BenchFile(form, tuple(rows), tuple(tests))


def _from_json(data: bytes) -> tuple[str, list[Row]]:
    text = _stripped(data)
    _refuse_log(data)
    if text.startswith(b"["):
        return "json", _checked(_json(text, "the file"))
    lines = [line for line in text.split(b"\n") if line.strip()]
    if len(lines) > MOST_TESTS:
        raise _too_many(len(lines))
    return "jsonl", _checked([_json(line, f"line {n}") for n, line in enumerate(lines, 1)])


def _refuse_log(data: bytes) -> None:
    """Raise ConfigError if there are other lines beside the results, e.g. of the program's log."""
    for number, line in enumerate(data.removeprefix(_UTF8_MARK).split(b"\n"), 1):
        text = line.strip()
        if text and (not _JSON_LINE.match(text) or _LOG_IN_BRACKETS.match(text)):
            raise _of_log(number, text, "JSON")


def _of_log(number: int, line: bytes, form: str) -> ConfigError:
    shown = line[:_SHOWN_OF_LINE].decode(errors="replace")
    return ConfigError(
        f"line {number} is not {form} but a line of a log: {printable_line(shown)}", hint=_ALONE
    )


def _json(text: bytes, where: str) -> object:
    try:
        # A path may have any bytes. The reader has its own depth limit.
        return from_json(text.decode(errors="replace"), allow_inf_nan=False)
    except ValueError as error:
        raise ConfigError(f"{where} is not JSON: {error}") from error


def _checked(rows: object) -> list[Row]:
    if not isinstance(rows, list):
        raise ConfigError("the file is not a list of tests")
    if len(rows) > MOST_TESTS:
        raise _too_many(len(rows))
    for number, row in enumerate(rows, 1):
        if not isinstance(row, dict):
            raise ConfigError(f"test {number} of {len(rows)} is not an object")
        if len(row) > _MOST_COLUMNS:
            raise ConfigError(f"test {number} of {len(rows)} has {len(row)} values")
    return [{k: v for k, v in row.items() if NAME.fullmatch(k) and _is_plain(v)} for row in rows]


def _is_plain(value: object) -> bool:
    """Return True if llama-bench can write such a value: at most a list of numbers."""
    if isinstance(value, str):
        return len(value) <= _MOST_TEXT
    if isinstance(value, list):
        return len(value) <= _MOST_SAMPLES and all(_is_number(one) for one in value)
    return _is_number(value)


def _is_number(value: object) -> bool:
    return isinstance(value, float) or (isinstance(value, int) and abs(value) <= _MOST)


def _from_sql(data: bytes) -> list[Row]:
    text = _stripped(data)
    first = text.partition(b"\n")[0].strip()
    if not _SQL_LINE.match(first):
        raise _of_log(1, first, "SQL")
    with _limited() as database:
        database.set_authorizer(_authorizer(_WRITES))
        database.executescript(text.decode(errors="replace"))
        database.set_authorizer(None)
        return _rows(database)


def _from_database(data: bytes) -> list[Row]:
    with _limited() as database:
        database.deserialize(data)
        database.execute("PRAGMA trusted_schema = OFF")
        database.execute("PRAGMA cell_size_check = ON")
        return _rows(database)


def _rows(database: sqlite3.Connection) -> list[Row]:
    database.set_authorizer(_authorizer(_READS))
    known = database.execute("SELECT name, type, sql FROM sqlite_master").fetchall()
    made = [(name, kind, sql) for name, kind, sql in known if name in _TABLES]
    if not made or not all(
        kind == "table" and _PLAIN_TABLE.match(sql or "") for _, kind, sql in made
    ):
        raise ConfigError(f"the file has no table {TABLE} (or {_TABLES[1]}, its older name)")
    rows: list[Row] = []
    for table in sorted((name for name, _, _ in made), reverse=True):  # the older name first
        cursor = database.execute(f"SELECT * FROM {table}")  # noqa: S608 - a constant
        names = [name for name, *_ in cursor.description]
        rows += [
            {name: value for name, value in zip(names, row, strict=True) if value is not None}
            for row in cursor.fetchmany(MOST_TESTS + 1)
        ]
    return _checked(rows)


@contextmanager
def _limited() -> Iterator[sqlite3.Connection]:
    """Return a database in memory with bounded size and computing time."""
    deadline = time.monotonic() + _SQL_SECONDS
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as database:
        database.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        database.setlimit(sqlite3.SQLITE_LIMIT_COLUMN, _MOST_COLUMNS)
        database.setlimit(sqlite3.SQLITE_LIMIT_EXPR_DEPTH, 10)
        database.setlimit(sqlite3.SQLITE_LIMIT_COMPOUND_SELECT, 2)
        database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 1 << 20)
        database.setlimit(sqlite3.SQLITE_LIMIT_SQL_LENGTH, MOST_BYTES)
        database.execute(f"PRAGMA max_page_count = {_SQL_MEMORY_PAGES}")
        database.set_progress_handler(lambda: time.monotonic() > deadline, 100_000)
        try:
            yield database
        except (sqlite3.Error, ValueError) as error:
            raise ConfigError(f"the file is not SQL of llama-bench: {error}") from error


def _authorizer(allowed: Allowed) -> Callable[..., int]:
    def authorize(action: int, first: str | None, *_rest: str | None) -> int:
        return sqlite3.SQLITE_OK if first in allowed.get(action, ()) else sqlite3.SQLITE_DENY

    return authorize


def _stripped(data: bytes) -> bytes:
    return data.removeprefix(_UTF8_MARK).lstrip()


def _too_many(number: int) -> ConfigError:
    return ConfigError(f"the file has {number} tests; at most {MOST_TESTS} are imported")


def names_of(tests: Sequence[BenchLine]) -> list[str]:
    """Return the name of each test as llama.cpp writes it: ``pp512``, ``tg128@d512``."""
    found = []
    for test in tests:
        parts = [f"pp{test.n_prompt}"] if test.n_prompt else []
        parts += [f"tg{test.n_gen}"] if test.n_gen else []
        found.append("+".join(parts) + (f"@d{test.n_depth}" if test.n_depth else ""))
    return found
