"""Comparability of records: a key without measured numbers; comparable records have equal keys.

The key of a trial has the parameters that its engine asked for (``Engine.comparability``), the
build, prompt and files (``Prepared.comparability``), the values common to all trials of a run
(``RunContext.comparability``), the CPUs and the priority of the job, and the classes of the board's
state. ``labctl.runs.trial`` combines them.
"""

from collections.abc import Mapping

from pydantic import JsonValue

from labctl.records.telemetry import BoardState, memory_clock
from labctl.records.trial import TelemetrySummary

#: Source of the build, without ``build_spec``. Comparisons over time and of two builds leave it
#: out, because they show the effect of a source change.
REVISION = ("version", "build_key", "build_commit", "build_committed", "program_sha256")
#: Shares of the model's file in memory before the start. A loader reads the missing part: below the
#: first share this costs as much as reading all, above the second almost nothing.
_COLD, _WARM = 0.05, 0.95


def classes(state: BoardState | None, evidence: TelemetrySummary | None) -> dict[str, JsonValue]:
    """Return governors and limits of CPUs and memory, cooling, and how warm the model is.

    Values that the board did not report are left out.
    """
    found: dict[str, JsonValue | None] = {}
    if state:
        cpus, clock = state.cpufreq, memory_clock(state.devfreq)
        memory = [] if clock is None else [clock]
        found["governor"] = _alike({c.cpus: c.governor for c in cpus})
        found["frequency_limits_khz"] = _alike({c.cpus: _range(c.min_khz, c.max_khz) for c in cpus})
        found["memory_governor"] = _alike({m.device: m.governor for m in memory})
        found["memory_limits_hz"] = _alike({m.device: _range(m.min_hz, m.max_hz) for m in memory})
        # The governor "userspace" keeps the clock that somebody set.
        fixed = {m.device: str(m.current_hz) for m in memory if m.governor == "userspace"}
        found["memory_clock_hz"] = _alike(fixed)
        found["model_cache"] = cache_class(state)
    if evidence and evidence.limited is not None:
        found["cooling"] = "active" if evidence.limited else "inactive"
    return {name: value for name, value in found.items() if value is not None}


def cache_class(state: BoardState | None) -> str | None:
    """Return a class for the share of the model in memory at the start: cold, partial or warm."""
    if state is None or state.resident is None:
        return None
    share = state.resident.share
    return "cold" if share < _COLD else "warm" if share > _WARM else "partial"


def _range(least: int | None, most: int | None) -> str | None:
    return None if least is None or most is None else f"{least}-{most}"


def _alike(values: Mapping[str, str | None]) -> str | None:
    """Return one word if it holds for all clocks, else each word with its CPUs or device."""
    known = {name: value for name, value in values.items() if value is not None}
    words = set(known.values())
    if len(words) <= 1:
        return next(iter(words), None)
    return ", ".join(f"{name}: {value}" for name, value in known.items())
