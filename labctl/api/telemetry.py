"""Telemetry of a trial as arrays, and rows as a pandas table.

labctl itself does not need pandas.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from labctl.errors import ConfigError
from labctl.records.telemetry import TelemetrySample

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from pandas import DataFrame


def data_frame(rows: Sequence[Mapping[str, object]], moments: Sequence[str] = ()) -> "DataFrame":
    """Return rows as a table; convert the columns ``moments`` to times in UTC.

    Unknown values are missing values of pandas. Raises ConfigError if pandas is not installed.
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


_TIME = "mono_ns"


class Telemetry(Mapping[str, "NDArray[np.float64]"]):
    """Samples of board and program, one array for each field.

    Fields have the names of :class:`labctl.records.telemetry.TelemetrySample`, with a dot
    before the key of a mapping: ``temperatures_mc.soc-thermal``, ``stdout.bytes``. Units are in the
    names (``_ns``, ``_bytes``, ``_khz``, ``_mc`` for thousandths of a degree Celsius). All arrays
    have the same length; missing values are NaN.
    """

    def __init__(self, samples: Sequence[TelemetrySample], start_mono_ns: int | None):
        import numpy as np

        rows = [_flat(sample.model_dump(exclude={"threads"})) for sample in samples]
        names = dict.fromkeys(name for row in rows for name in row)
        self._arrays: dict[str, NDArray[np.float64]] = {
            name: np.array([row.get(name, np.nan) for row in rows], dtype=np.float64)
            for name in names
        }
        times = self._arrays.get(_TIME, np.empty(0))
        start = float(times[0]) if start_mono_ns is None and len(times) else start_mono_ns or 0
        #: Time of each sample in s since the program's start; if unknown, since the first sample
        self.seconds: NDArray[np.float64] = (times - start) / 1e9

    def __getitem__(self, name: str) -> "NDArray[np.float64]":
        return self._arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        """Return the number of fields; ``len(telemetry.seconds)`` is the number of samples."""
        return len(self._arrays)

    def to_pandas(self) -> "DataFrame":
        """Return a table with a row for each sample. Raises ConfigError without pandas."""
        columns = {"seconds": self.seconds, **self._arrays}
        rows = zip(*(array.tolist() for array in columns.values()), strict=True)
        return data_frame([dict(zip(columns, row, strict=True)) for row in rows])


def _flat(values: Mapping[str, object], prefix: str = "") -> dict[str, float]:
    found: dict[str, float] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            found |= _flat(value, f"{prefix}{name}.")
        elif isinstance(value, int | float):
            found[f"{prefix}{name}"] = float(value)
    return found
