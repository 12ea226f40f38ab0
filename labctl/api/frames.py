"""Rows as tables of pandas, with the same columns and types whatever the rows are.

labctl itself does not need pandas.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from labctl.errors import ConfigError
from labctl.index.rows import parameter_text

if TYPE_CHECKING:
    from pandas import DataFrame

#: Kind of a column -> its type in pandas; each has missing values.
_TYPES: Mapping[type, str] = {
    str: "string",
    int: "Int64",
    float: "Float64",
    bool: "boolean",
    list: "object",
    datetime: "datetime64[us, UTC]",
}
#: Columns that are moments wherever they occur.
_MOMENTS = ("started", "finished")


def data_frame(rows: Sequence[Mapping[str, object]], columns: Mapping[str, type]) -> "DataFrame":
    """Return rows as a table with these columns.

    ``columns``: name -> kind of its values. Keys of the rows that are not among them follow, each
    with the kind of its values. Unknown values are missing values of pandas. Raises ConfigError if
    pandas is not installed.
    """
    try:
        import pandas
    except ImportError as error:
        raise ConfigError(
            "to_pandas() needs pandas, which is not installed", hint="pip install pandas"
        ) from error
    from labctl.report.trial_export import kinds_of

    kinds = {**kinds_of(rows), **columns}
    kinds |= {name: datetime for name in _MOMENTS if name in columns}

    def series(name: str, kind: type) -> "pandas.Series[object]":
        values = [row.get(name) for row in rows]
        if kind is datetime:
            values = [
                None if value is None else datetime.fromisoformat(str(value)) for value in values
            ]
        elif kind is str:
            values = [None if value is None else parameter_text(value) for value in values]
        return pandas.Series(values, dtype=_TYPES[kind])

    return pandas.DataFrame({name: series(name, kinds[name]) for name in {**columns, **kinds}})
