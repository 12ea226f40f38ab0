"""Rows as a pandas table; labctl itself does not need pandas."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from labctl.errors import ConfigError

if TYPE_CHECKING:
    from pandas import DataFrame


def data_frame(rows: Sequence[Mapping[str, object]], moments: Sequence[str] = ()) -> "DataFrame":
    """Return rows as a table; the columns ``moments`` become times in UTC.

    Unknown values are missing there too. Raises ConfigError if pandas is not installed.
    """
    try:
        import pandas
    except ImportError as error:
        raise ConfigError(
            "to_pandas() needs pandas, which is not installed", hint="pip install pandas"
        ) from error
    table = pandas.DataFrame(list(rows)).convert_dtypes()
    for name in moments:
        if name in table:
            table[name] = pandas.to_datetime(table[name], utc=True, format="ISO8601")
    return table
