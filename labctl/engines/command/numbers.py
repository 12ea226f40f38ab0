"""Printed numbers and their units."""

from decimal import Decimal
from typing import Literal

from labctl.config.printed import NUMBER
from labctl.errors import OutputNotUnderstood

Dimension = Literal["ns", "bytes", "tokens", "tokens/s", "1"]

#: Each unit in recipes: its quantity, the record's unit for it, and the factor.
UNITS: dict[str, tuple[Dimension, Decimal]] = {
    "ns": ("ns", Decimal(1)),
    "us": ("ns", Decimal(10**3)),
    "ms": ("ns", Decimal(10**6)),
    "s": ("ns", Decimal(10**9)),
    "bytes": ("bytes", Decimal(1)),
    "kB": ("bytes", Decimal(10**3)),
    "MB": ("bytes", Decimal(10**6)),
    "GB": ("bytes", Decimal(10**9)),
    "KiB": ("bytes", Decimal(1 << 10)),
    "MiB": ("bytes", Decimal(1 << 20)),
    "GiB": ("bytes", Decimal(1 << 30)),
    "tokens": ("tokens", Decimal(1)),
    "tokens_per_s": ("tokens/s", Decimal(1)),
    "number": ("1", Decimal(1)),
}
#: Measures with their own field in the record, and their quantity.
FIELDS: dict[str, tuple[str, Dimension]] = {
    "load": ("load_ns", "ns"),
    "prompt_eval": ("prompt_eval_ns", "ns"),
    "eval": ("eval_ns", "ns"),
    "sampling": ("sampling_ns", "ns"),
    "total": ("total_ns", "ns"),
    "ttft": ("ttft_ns", "ns"),
    "prompt_tokens": ("prompt_tokens", "tokens"),
    "generated_tokens": ("generated_tokens", "tokens"),
    "tokens_per_second": ("tokens_per_second", "tokens/s"),
}
#: Times, sizes and counts are stored as 64-bit integers.
_BEYOND = 1 << 63


def in_base_unit(text: str, unit: str) -> Decimal:
    """Convert a printed number to the unit of the record.

    Raises OutputNotUnderstood if it is not a number, or for a negative time, size or count.
    """
    stripped = text.strip()
    if NUMBER.fullmatch(stripped) is None:
        raise OutputNotUnderstood(f"{text[:80]!r} is not a number")
    dimension, factor = UNITS[unit]
    value = Decimal(stripped) * factor
    if value < 0 and dimension != "1":
        raise OutputNotUnderstood(f"{stripped} {unit} is below 0")
    if value >= _BEYOND and dimension != "1":
        raise OutputNotUnderstood(f"{stripped} {unit} is impossible")
    if dimension == "tokens" and value != value.to_integral_value():
        raise OutputNotUnderstood(f"{stripped} is not a whole number of tokens")
    return value
