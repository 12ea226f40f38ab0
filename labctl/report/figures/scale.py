"""Units and axes of times: chosen by the data, so that labels are short and nothing is hidden."""

from collections.abc import Sequence
from dataclasses import dataclass

from labctl.report.figures.figure import Spec
from labctl.report.figures.words import Words

_UNITS = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns"))
#: From this ratio of the largest to the smallest value on, a linear axis hides the small ones.
_LOG_FROM = 25


@dataclass(frozen=True)
class TimeScale:
    """The unit of a time axis, and whether it is logarithmic."""

    ns: float
    unit: str
    is_log: bool
    bottom: float
    top: float

    @classmethod
    def of(cls, times_ns: Sequence[float]) -> "TimeScale":
        """Choose for these times; at least one, all above 0."""
        low, high = min(times_ns), max(times_ns)
        is_log = high / low >= _LOG_FROM
        unit = low if is_log else high / 3
        ns, name = next((u for u in _UNITS if unit >= u[0]), _UNITS[-1])
        return cls(ns, name, is_log, low / ns, high / ns)

    def of_ns(self, time_ns: float) -> float:
        """Return a time in the unit, to six digits: less bytes, and more than an eye can see."""
        return float(f"{time_ns / self.ns:.6g}")

    def title(self, words: Words) -> str:
        """Return the title of the axis."""
        return words("token-time-log" if self.is_log else "token-time", unit=self.unit)

    def scale(self, *, room: float = 0.0) -> Spec:
        """Return the scale: from 0 where it is linear.

        ``room`` above the highest value is a share of the height that the values take.
        """
        if self.is_log:
            top = self.top * (self.top / self.bottom) ** room
            return {"type": "log", "domain": [0.8 * self.bottom, 1.1 * top], "nice": False}
        return {"zero": True, "nice": not room} | (
            {"domain": [0, self.top * (1 + room)]} if room else {}
        )
