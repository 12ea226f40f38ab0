"""Results of llama-bench in its own formats: rows as JSON, JSON Lines and SQL.

A row has the names and values of ``test::get_fields`` in ``tools/llama-bench/llama-bench.cpp``,
and, in JSON, ``samples_ns`` and ``samples_ts``. Names differ from version to version: all are kept.
llama.cpp's ``scripts/compare-llama-bench.py`` reads all three.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import TypeAlias

Row: TypeAlias = dict[str, object]

TABLE = "llama_bench"
#: A name that can be a column name unchanged.
NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
_SQL_TYPES: dict[type, str] = {str: "TEXT", bool: "INTEGER", int: "INTEGER", float: "REAL"}


def json_text(rows: Sequence[Row]) -> str:
    """Return rows as ``llama-bench -o json`` prints them: an array, one value per line."""
    return json.dumps(rows, indent=2) + "\n"


def sql_text(rows: Sequence[Row]) -> str:
    """Return rows as ``llama-bench -o sql`` prints them: create the table if needed, and insert.

    Lists, such as samples, have no column; values missing in a row are NULL.
    """
    columns: dict[str, str] = {}
    for row in rows:
        for name, value in _plain(row).items():
            columns.setdefault(name, _SQL_TYPES[type(value)])
    names = ",\n".join(f"  {name} {kind}" for name, kind in columns.items())
    text = [f"CREATE TABLE IF NOT EXISTS {TABLE} (\n{names}\n);\n\n"] if columns else []
    for row in rows:
        plain = _plain(row)
        values = ", ".join(_sql_value(value) for value in plain.values())
        # Names are checked, values quoted.
        text.append(f"INSERT INTO {TABLE} ({', '.join(plain)}) VALUES ({values});\n")  # noqa: S608
    return "".join(text)


def _plain(row: Mapping[str, object]) -> dict[str, object]:
    return {
        name: value
        for name, value in row.items()
        if type(value) in _SQL_TYPES and NAME.fullmatch(name)
    }


def _sql_value(value: object) -> str:
    """Return a value as llama-bench writes it: quoted, truth values as digits."""
    text = str(int(value) if isinstance(value, bool) else value)
    return "'" + text.replace("'", "''").replace("\0", "") + "'"
