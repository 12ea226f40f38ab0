"""Telemetry of a trial as arrays."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, get_args

from pydantic import BaseModel

from labctl.api.frames import data_frame
from labctl.records.telemetry import StreamSoFar, TelemetrySample

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from pandas import DataFrame


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
        rows = [
            {"seconds": second}
            | {name: int(one[at]) for name, one in self.items() if one[at] == one[at]}  # not NaN
            for at, second in enumerate(self.seconds.tolist())
        ]
        return data_frame(rows, {"seconds": float, **dict.fromkeys(_fields(TelemetrySample), int)})

    def __repr__(self) -> str:
        return f"<telemetry, {len(self.seconds)} samples>"

    def _repr_html_(self) -> str:
        import numpy as np

        from labctl.report import notebook

        rows = [
            (name, *(f"{value:.0f}" for value in (np.nanmin(one), np.nanmean(one), np.nanmax(one))))
            for name, one in self.items()
            if name != _TIME
        ]
        over = f" over {np.ptp(self.seconds):.4g} s" if len(self.seconds) else ""
        told = notebook.lines([f"{len(self.seconds)} samples{over}"])
        return told + (notebook.table(("field", ">least", ">mean", ">most"), rows) if rows else "")


def _fields(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Yield the fields of each sample, without mappings: their keys are a board's own."""
    for name, field in model.model_fields.items():
        kinds = get_args(field.annotation) or (field.annotation,)
        if StreamSoFar in kinds:
            yield from _fields(StreamSoFar, f"{prefix}{name}.")
        elif int in kinds and str not in kinds:
            yield f"{prefix}{name}"


def _flat(values: Mapping[str, object], prefix: str = "") -> dict[str, float]:
    found: dict[str, float] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            found |= _flat(value, f"{prefix}{name}.")
        elif isinstance(value, int | float):
            found[f"{prefix}{name}"] = float(value)
    return found
