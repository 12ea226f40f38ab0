"""Rows with fixed columns as CSV, JSON Lines and Parquet."""

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from labctl.distribution import install_extra
from labctl.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow

#: Spreadsheets take cells that begin with these for formulas, some after removing the blank (OWASP,
#: "CSV Injection").
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


def rows_csv(rows: Iterable[Mapping[str, Any]], names: Iterable[str]) -> str:
    """Return a heading and a line for each row; unknown values are empty cells.

    Lines end as in RFC 4180, because only then Python quotes cells with a carriage return.
    """
    written = io.StringIO()
    writer = csv.DictWriter(written, [csv_cell(name) for name in names], lineterminator="\r\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({csv_cell(name): csv_cell(value) for name, value in row.items()})
    return written.getvalue()


def csv_cell(value: object) -> object:
    """Return a cell that spreadsheets do not compute. Numbers may begin with a minus."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


def rows_jsonl(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return an object on each line; null for unknown values."""
    return "".join(json.dumps(row) + "\n" for row in rows)


def rows_parquet(rows: Sequence[Mapping[str, Any]], columns: Mapping[str, type]) -> bytes:
    """Return a Parquet file whose columns do not depend on the rows.

    The unit of a time is in its metadata. Raises ConfigError if pyarrow is not installed.
    """
    pyarrow = parquet_library()
    kinds = arrow_kinds(pyarrow)
    fields = [
        pyarrow.field(name, kinds[kind], metadata={"unit": "ns"} if name.endswith("_ns") else None)
        for name, kind in columns.items()
    ]
    return parquet_bytes(pyarrow.Table.from_pylist(list(rows), schema=pyarrow.schema(fields)))


def parquet_library() -> ModuleType:
    """Return pyarrow. Raises ConfigError if it is not installed."""
    try:
        return import_module("pyarrow")
    except ImportError as error:
        raise ConfigError(
            "pyarrow is not installed, which Parquet needs",
            hint=f"{install_extra('parquet')}; or use --format jsonl",
        ) from error


def arrow_kinds(pyarrow: ModuleType) -> dict[type, Any]:
    """Return the columns' types of pyarrow."""
    return {
        str: pyarrow.string(),
        int: pyarrow.int64(),
        float: pyarrow.float64(),
        bool: pyarrow.bool_(),
    }


def parquet_bytes(table: "pyarrow.Table") -> bytes:
    """Return a table as a Parquet file."""
    from pyarrow import parquet

    written = io.BytesIO()
    parquet.write_table(table, written, compression="zstd")
    return written.getvalue()
