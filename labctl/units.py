"""As people read them: durations and sizes with three digits and a unit, numbers in ranges."""

import math
import re
import unicodedata
from collections.abc import Callable, Collection
from datetime import datetime, time, timedelta

_DURATIONS = ((60_000_000_000, "min"), (1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "µs"))
_SIZES = ((10**9, "GB"), (10**6, "MB"), (10**3, "kB"))


def duration(ns: float | None) -> str:
    """``18.2 s``, ``381 ms``; ``-`` for None. Minutes only from 10 minutes on."""
    if ns is None:
        return "-"
    for scale, unit in _DURATIONS:
        if ns >= scale * (10 if unit == "min" else 1):
            return f"{digits(ns / scale)} {unit}"
    return f"{ns:.0f} ns"


def size(count: float | None) -> str:
    """``145 MB``, decimal units as vendors of storage use; ``-`` for None."""
    if count is None:
        return "-"
    for scale, unit in _SIZES:
        if count >= scale:
            return f"{digits(count / scale)} {unit}"
    return f"{count:.0f} B"


def shown(value: float, unit: str) -> str:
    """Return a value with its unit for people; one of another unit with six digits and its name."""
    known = _SHOWN.get(unit)
    return known(value) if known else f"{value:.6g} {unit}"


def width(text: str) -> int:
    """Return the columns that a text takes in a terminal (Unicode, UAX 11): Chinese takes two."""
    if text.isascii():
        return len(text)
    marks = sum(unicodedata.category(character) in ("Mn", "Me", "Cf") for character in text)
    wide = sum(unicodedata.east_asian_width(character) in ("W", "F") for character in text)
    return len(text) + wide - marks


def counted(count: int, thing: str) -> str:
    """``1 file``, ``2 files``."""
    return f"{count} {thing}{'' if count == 1 else 's'}"


def ranges(numbers: Collection[int]) -> str:
    """``1-4,6``, as kernels write lists of CPUs."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and parts[-1][1] == number - 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)


def natural_order(text: str) -> str:
    """Return a key to sort names as people count: ``rk2`` before ``rk11``."""
    return re.sub(r"\d+", lambda number: number[0].zfill(20), text)


def digits(value: float, count: int = 3) -> str:
    """Three significant digits, or another ``count`` of them; never in exponent form."""
    if value <= 0:
        return f"{value:.{count - 1}f}"
    exponent = int(f"{value:.{count - 1}e}".partition("e")[2])  # of the rounded: 99.96 is 100
    return f"{value:.{max(0, count - 1 - exponent)}f}"


#: Units with a form of their own. ``1`` and ``number`` have none; ``mC``: 0.001 degrees Celsius.
_SHOWN: dict[str, Callable[[float], str]] = {
    "ns": duration,
    "bytes": size,
    "count": lambda value: f"{value:.0f}",
    "number": digits,
    "1/s": digits,
    "1": lambda value: f"{value:.6g}",
    "J": lambda value: f"{digits(value)} J",
    "W": lambda value: f"{digits(value)} W",
    "mC": lambda value: f"{value / 1000:.0f} °C",
    "share": lambda value: f"{100 * value:.1f}%",
}


def with_unit(value: float, unit: str) -> str:
    """Return ``70.9%``, ``5.3 s``."""
    return f"{value:g}{'' if unit.startswith('%') else ' '}{unit}"


def plus_minus(value: float, low: float, high: float) -> str:
    """``± 1.2 %``: the wider side of an interval around a value; what is below 0.001 % is 0.0."""
    percent = 100 * max(high / value - 1, 1 - low / value)
    return f"± {digits(percent, 2) if percent >= 0.001 else '0.0'}%"


def confidence(level: float) -> str:
    """``95``, ``99.17``, ``99.9983``: the percentage of a level below 1, never rounded to 100."""
    exponent = math.floor(math.log10(100 * (1 - level)))
    return f"{100 * level:.{max(2, -exponent)}f}".rstrip("0").rstrip(".")


def rate(per_second: float | None, unit: str) -> str:
    """``12.3 MB/s`` for bytes, ``3.21 tokens/s``; empty for None."""
    if per_second is None:
        return ""
    return f"{size(per_second)}/s" if unit == "bytes" else f"{digits(per_second)} {unit}/s"


def local_time(seconds: float) -> str:
    """``2026-11-22 18:30 CET``: a moment, given in s since 1970, in this host's time zone."""
    return f"{datetime.fromtimestamp(seconds).astimezone():%Y-%m-%d %H:%M %Z}"


def parse_local_time(text: str, now: datetime) -> float:
    """Return a moment in s since 1970; without an offset, the text is in this host's time zone.

    ``now``, ``14:00`` (the next one), ``2026-11-23T09:00``, ``2026-11-23T09:00+01:00``. Raises
    ValueError for other texts, and for a time that a change of the clocks leaves out or repeats.
    """
    if text == "now":
        return now.timestamp()
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        try:
            at = time.fromisoformat(text)
        except ValueError:
            raise ValueError(
                f"{text!r}: must be a time such as 14:00, 2026-11-23T09:00 or"
                " 2026-11-23T09:00+01:00"
            ) from None
        here = now.astimezone().replace(tzinfo=None)
        found = datetime.combine(here.date(), at)
        if found.tzinfo is None and found <= here:
            found += timedelta(days=1)
    if found.tzinfo is not None:
        return found.timestamp()
    first, second = (found.replace(fold=fold).timestamp() for fold in (0, 1))
    if datetime.fromtimestamp(first) != found:
        raise ValueError(f"{text!r}: the clocks are changed then, and leave this time out")
    if first != second:
        raise ValueError(
            f"{text!r}: the clocks are changed then, and show this time twice; write"
            f" {datetime.fromtimestamp(first).astimezone().isoformat()} or"
            f" {datetime.fromtimestamp(second).astimezone().isoformat()}"
        )
    return first
