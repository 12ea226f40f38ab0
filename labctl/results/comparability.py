"""Comparability of records: a key without measured numbers; comparable records have equal keys.

The key of a trial has the parameters that its engine asked for (``Engine.comparability``), the
build, prompt and files (``Prepared.comparability``), the values common to all trials of a run
(``RunContext.comparability``), the CPUs and the priority of the job, and the classes of the board's
state. ``labctl.runs.trial`` combines them.
"""

from collections.abc import Sequence

from pydantic import JsonValue

from labctl.records.telemetry import BoardState, ClockState
from labctl.records.trial import TelemetrySummary

#: Source of the build, without ``build_spec``. Comparisons over time and of two builds leave it
#: out, because they show the effect of a source change.
REVISION = ("version", "build_key", "build_commit", "build_committed", "program_sha256")
#: Shares of the model's file in memory before the start. A loader reads the missing part: below the
#: first share this costs as much as reading all, above the second almost nothing.
_COLD, _WARM = 0.05, 0.95


def classes(state: BoardState | None, evidence: TelemetrySummary | None) -> dict[str, JsonValue]:
    """Return the governor, frequency limits, cooling, and how warm the model is.

    Values that the board did not report are left out.
    """
    found: dict[str, JsonValue | None] = {}
    if state:
        found["governor"] = _by_cpus(state.cpufreq, [clock.governor for clock in state.cpufreq])
        limits = [_limits(clock) for clock in state.cpufreq]
        found["frequency_limits_khz"] = _by_cpus(state.cpufreq, limits)
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


def _limits(clock: ClockState) -> str | None:
    if clock.min_khz is None or clock.max_khz is None:
        return None
    return f"{clock.min_khz}-{clock.max_khz}"


def _by_cpus(clocks: Sequence[ClockState], values: Sequence[str | None]) -> str | None:
    """Return one word if it holds for all CPUs, else each word with its CPUs."""
    known = [(c.cpus, value) for c, value in zip(clocks, values, strict=True) if value is not None]
    words = {value for _, value in known}
    if len(words) <= 1:
        return next(iter(words), None)
    return ", ".join(f"{cpus}: {value}" for cpus, value in known)
