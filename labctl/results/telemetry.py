"""Read a job's telemetry, summarise it, and check the job's result with it."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TypeVar

from labctl.files import host_reads
from labctl.records.board import BoardFacts, Execution
from labctl.records.telemetry import CounterLine, TelemetrySample, named_zones
from labctl.records.timing import TimingRecord
from labctl.records.trial import NOT_JUDGED, Check, JobStatus, TelemetrySummary
from labctl.results.timing_checks import quarters, single_gaps
from labctl.units import duration, size

#: A job of 36 hours leaves this number of samples, of 1 kB each.
_MOST_SAMPLES = 1 << 17
_MOST_BYTES = 256 << 20
_LONGEST_LINE = 64 << 10
_MOST_UNREADABLE = 10_000


_Line = TypeVar("_Line", TelemetrySample, CounterLine)


@dataclass(frozen=True)
class Telemetry:
    """The samples in their order, and the number of unreadable lines.

    One half line at the end is normal after a loss of power; more lines are worth a note.
    """

    samples: tuple[TelemetrySample, ...]
    unreadable_lines: int = 0


def read_telemetry(path: Path) -> Telemetry:
    """Return the samples of a ``telemetry`` file; unknown fields are ignored.

    A missing file has no samples. Raises ConfigError if the file cannot be read.
    """
    return Telemetry(*_lines(path, TelemetrySample))


def _lines(path: Path, kind: type[_Line]) -> tuple[tuple[_Line, ...], int]:
    found: list[_Line] = []
    unreadable = 0
    if not path.exists():
        return (), 0
    with host_reads(path), path.open("rb") as file:
        for line in iter(partial(file.readline, _LONGEST_LINE), b""):
            if len(found) == _MOST_SAMPLES or file.tell() > _MOST_BYTES:
                unreadable += 1
                break
            try:
                found.append(kind.of_json(line, extra="ignore"))
            except ValueError:
                unreadable += 1
                if unreadable > _MOST_UNREADABLE:
                    break
    return tuple(found), unreadable


def grown(
    samples: Sequence[TelemetrySample], counter: Callable[[TelemetrySample], int | None]
) -> int | None:
    """Return the growth of a counter from the first to the last sample that has it."""
    values = [value for sample in samples if (value := counter(sample)) is not None]
    return values[-1] - values[0] if len(values) > 1 else None


def share(
    samples: Sequence[TelemetrySample], counter: Callable[[TelemetrySample], int | None]
) -> float | None:
    """Return the growth of a counter of ns, divided by the time of the samples; None if unknown."""
    if not samples:
        return None
    more, took = grown(samples, counter), samples[-1].mono_ns - samples[0].mono_ns
    return None if more is None or took <= 0 else more / took


def others_share(samples: Sequence[TelemetrySample]) -> float | None:
    """Return the CPU time used by others than the job and page reclaim, as a share of one CPU.

    The job includes all processes that it started.
    """
    known = [s for s in samples if None not in (s.cpu_busy_ns, s.tree_cpu_ns)]
    busy, job = share(known, lambda s: s.cpu_busy_ns), share(known, lambda s: s.tree_cpu_ns)
    if busy is None or job is None:
        return None
    return max(0.0, busy - job - (reclaim_share(known) or 0.0))


def reclaim_share(samples: Sequence[TelemetrySample]) -> float | None:
    """Return the CPU time of the kernel threads that free memory, as a share of one CPU."""
    return share([s for s in samples if s.reclaim_cpu_ns is not None], lambda s: s.reclaim_cpu_ns)


#: The job's file of counters.
COUNTERS = "counters"
#: CPUs that fell below this share of their highest frequency did not run at full speed.
_SLOWED = 0.97
#: Share of one CPU (on a host: of all CPUs) that other programs may use in a quiet measurement.
LOUD = 0.2
#: Share of one CPU from which the kernel's page reclaim is worth a note.
RECLAIMING = 0.05
#: Share of CPU time that the host of a virtual machine may keep for itself.
STOLEN = 0.02
#: Share of the memory below which a kernel takes pages away from programs. Memory that it can free
#: at once, for example pages of a mapped model, counts as available.
_SHORT = 0.05


def summarise_telemetry(
    telemetry: Path, job: JobStatus | None, timing: TimingRecord | None
) -> TelemetrySummary | None:
    """Summarise the telemetry of a job, and the ``counters`` in the same folder.

    None without telemetry. Raises ConfigError.
    """
    samples = read_telemetry(telemetry).samples
    if not samples:
        return None
    heats = [heat for sample in samples if (heat := sample.hottest_mc) is not None]
    # The fastest CPU at each moment: other CPUs may be idle, or of a slower type.
    clocks = [max(sample.freq_khz.values()) for sample in samples if sample.freq_khz]
    return TelemetrySummary(
        samples=len(samples),
        start_temperature_mc=heats[0] if heats else None,
        highest_temperature_mc=max(heats, default=None),
        untrusted_zones={z: t for s in reversed(samples) for z, t in s.untrusted_zones.items()},
        unmoved_zones=dict(_unmoved(samples)),
        lowest_khz=min(clocks, default=None),
        highest_khz=max(clocks, default=None),
        memory_hz=_memory_hz(samples, job, timing),
        limited=_limited(samples, job),
        major_faults=job.major_faults if job else None,
        read_bytes=grown(samples, lambda sample: sample.read_bytes),
        read_bytes_per_token=_read_per_token(samples, job, timing),
        least_available_bytes=min(
            (s.mem_available_bytes for s in samples if s.mem_available_bytes is not None),
            default=None,
        ),
        others_share=others_share(samples),
        reclaim_share=reclaim_share(samples),
        steal_share=share(samples, lambda sample: sample.cpu_steal_ns),
        runqueue_wait_ns=max(
            (s.runqueue_wait_ns for s in samples if s.runqueue_wait_ns is not None), default=None
        ),
        **_counted(telemetry.with_name(COUNTERS), job, timing),
        **_quarters(timing),
    )


def steadiness(evidence: TelemetrySummary | None, facts: BoardFacts) -> tuple[Check, ...]:
    """Check that the board's state did not change; unreported states are not judged.

    A host that runs an emulated board, or is the board, has its own memory; its other programs and
    its hypervisor take CPU time from the trial, as on a board.
    """
    if evidence is None:
        return ()
    found = []
    low, high = evidence.lowest_khz, evidence.highest_khz
    if evidence.limited is None and not (low and high):
        found.append(_open("frequency"))
    else:
        slowed = bool(evidence.limited) or bool(low and high and _reached_less(evidence))
        detail = f"{low / 1000:.0f} to {high / 1000:.0f} MHz" if low and high else "limits lowered"
        if evidence.memory_hz is not None:
            detail += f", DRAM {evidence.memory_hz / 1e6:.0f} MHz"
        if slowed and evidence.highest_temperature_mc is not None:
            detail += f", up to {evidence.highest_temperature_mc / 1000:.0f} °C"
        found.append(Check(name="frequency", ok=not slowed, detail=detail))
    if doubts := {**evidence.untrusted_zones, **evidence.unmoved_zones}:
        found.append(_open("temperature", named_zones(doubts)))
    least, total = evidence.least_available_bytes, facts.memory_total_bytes
    is_board = facts.execution is Execution.BOARD
    if not is_board:
        found.append(_open("memory", f"{facts.execution}, the memory is that of its host"))
    elif least is None or not total:
        found.append(_open("memory"))
    else:
        detail = f"{size(least)} of {size(total)} was available at the least"
        found.append(Check(name="memory", ok=least >= _SHORT * total, detail=detail))
    # A board is measured alone. A host always does other work too, and has CPUs for it.
    cpus = 1 if is_board else max(1, sum(cpu.count for cpu in facts.cpus))
    of = "one CPU" if is_board else f"the host's CPUs ({cpus})"
    if evidence.others_share is None:
        found.append(_open("quiet"))
    else:
        others = evidence.others_share / cpus
        detail = f"everything else used {others:.0%} of {of}"
        if evidence.reclaim_share is not None:
            reclaim = evidence.reclaim_share / cpus
            detail += f", the kernel's page reclaim (kswapd, kcompactd) {reclaim:.0%}"
        found.append(Check(name="quiet", ok=others <= LOUD, detail=detail))
    if evidence.steal_share is None:
        found.append(_open("steal"))
    else:
        stolen = evidence.steal_share / cpus
        detail = f"{stolen:.1%} of {of} stolen"
        found.append(Check(name="steal", ok=stolen <= STOLEN, detail=detail))
    return tuple(found)


def _open(name: str, why: str = "the board does not report it") -> Check:
    return Check(name=name, ok=None, detail=f"{NOT_JUDGED}{why}")


#: A zone is doubtful if its value stays the same for this time (ns), ...
_STILL_NS = 60 * 10**9
#: ... another zone moves by more than this, one step of a coarse sensor, ...
_MOVED_MC = 1000
#: ... and the number of busy CPUs changes by this share of its maximum, and by this number, ...
_LOAD_CHANGE, _LOAD_CPUS = 0.5, 0.5
#: ... in means of this time (ns).
_LOAD_NS = 5 * 10**9


def _unmoved(samples: Sequence[TelemetrySample]) -> Iterator[tuple[str, str]]:
    """Yield zones whose value stayed the same though load and other zones changed, with details."""
    for zone in dict.fromkeys(zone for sample in samples for zone in sample.temperatures_mc):
        if text := next(_still(samples, zone), None):
            yield zone, text


def _still(samples: Sequence[TelemetrySample], zone: str) -> Iterator[str]:
    known = [sample for sample in samples if zone in sample.temperatures_mc]
    for value, group in groupby(known, lambda sample: sample.temperatures_mc[zone]):
        same = list(group)
        took = same[-1].mono_ns - same[0].mono_ns
        loads = list(_loads(same)) if took >= _STILL_NS else []
        if not loads:
            continue
        low, high = min(loads), max(loads)
        if high - low >= max(_LOAD_CPUS, _LOAD_CHANGE * high):
            moved = _most_moved(same)
            if moved > _MOVED_MC:
                yield (
                    f"{value / 1000:g} °C for {duration(took)} while {low:.1f} to {high:.1f} CPUs"
                    f" were busy and another zone moved by {moved / 1000:.1f} °C"
                )


def _loads(samples: Sequence[TelemetrySample]) -> Iterator[float]:
    """Yield the mean number of busy CPUs in each interval of time."""
    begin: tuple[int, int] | None = None
    for sample in samples:
        if (busy := sample.cpu_busy_ns) is None:
            continue
        if begin is None:
            begin = sample.mono_ns, busy
        elif (took := sample.mono_ns - begin[0]) >= _LOAD_NS:
            yield (busy - begin[1]) / took
            begin = sample.mono_ns, busy


def _most_moved(samples: Sequence[TelemetrySample]) -> int:
    """Return the largest change of one zone, in thousandths of a degree."""
    lowest: dict[str, int] = {}
    highest: dict[str, int] = {}
    for sample in samples:
        for zone, value in sample.temperatures_mc.items():
            lowest[zone] = min(value, lowest.get(zone, value))
            highest[zone] = max(value, highest.get(zone, value))
    return max((high - lowest[zone] for zone, high in highest.items()), default=0)


def awake(job: JobStatus | None) -> tuple[Check, ...]:
    """Check that the board did not sleep: its clock stops during sleep, so times are too short."""
    slept = job.suspended_ns if job else None
    if not slept:
        return ()
    return (Check(name="awake", ok=False, detail=f"the board slept for {duration(slept)}"),)


def _quarters(timing: TimingRecord | None) -> dict[str, int]:
    """Return the median gaps of the first and the last quarter."""
    found = quarters(single_gaps(timing)) if timing else None
    if found is None:
        return {}
    first, last = found
    return {
        "first_quarter_ns": round(first.median_ns),
        "last_quarter_ns": round(last.median_ns),
    }


def _reached_less(evidence: TelemetrySummary) -> bool:
    """Return True if the clock was reduced by heat; a low clock of an idle CPU does not count."""
    low, high, heat = evidence.lowest_khz, evidence.highest_khz, evidence.highest_temperature_mc
    hot = heat is not None and heat >= 80_000
    return bool(low and high and hot and low < _SLOWED * high)


def _limited(samples: Sequence[TelemetrySample], job: JobStatus | None) -> bool | None:
    """Return True if the board throttled, also between two samples; None if not reported."""
    limits = [sample for sample in samples if sample.limits]
    cooled = [cooling for s in samples if (cooling := _without_fans(s.cooling))]
    counted = {
        f"{one.device} {state}": int(state != "0" and time > 0)
        for one in (job.state.cooling if job and job.state else ())
        for state, time in one.time_in_state_ms.items()
    }
    counted = _without_fans(counted)
    if not limits and not cooled and not counted:
        return None
    return any(held_down(samples)) or any(state > 0 for state in counted.values())


def held_down(samples: Sequence[TelemetrySample]) -> list[bool]:
    """Return for each sample whether the board throttled.

    Throttled: a cooling device was active, or the limit of a CPU or of the memory was below its
    maximum in these samples.
    """
    highest = _highest([sample.limits for sample in samples])
    return [
        any(most < highest[clock] for clock, most in sample.limits.items())
        or any(state > 0 for state in _without_fans(sample.cooling).values())
        for sample in samples
    ]


def held_down_share(samples: Sequence[TelemetrySample]) -> float | None:
    """Return the share of the samples in which the board throttled; None if unknown."""
    if not any(sample.limits or sample.cooling for sample in samples):
        return None
    return sum(held_down(samples)) / len(samples)


def _without_fans(cooling: Mapping[str, int]) -> dict[str, int]:
    """Leave out fans: a running fan does not reduce speed."""
    return {name: state for name, state in cooling.items() if "fan" not in name.lower()}


def _highest(limits: Iterable[Mapping[str, int]]) -> dict[str, int]:
    found: dict[str, int] = {}
    for limit in limits:
        for clock, most in limit.items():
            found[clock] = max(most, found.get(clock, 0))
    return found


def _read_per_token(
    samples: Sequence[TelemetrySample], job: JobStatus | None, timing: TimingRecord | None
) -> int | None:
    """Return the bytes read from storage per token, between the first and the last token."""
    during = [s for s in _generating(samples, job, timing) if s.read_bytes is not None]
    read = grown(during, lambda sample: sample.read_bytes)
    took = during[-1].mono_ns - during[0].mono_ns if during else 0
    if read is None or took <= 0 or timing is None or not timing.mean_ns:
        return None
    return round(read * timing.mean_ns / took)


def _counted(
    path: Path, job: JobStatus | None, timing: TimingRecord | None
) -> dict[str, float | int | None]:
    """Return what the counters tell of the phases that the stamps of tokens separate."""
    counters = job.counters if job else None
    lines, _ = _lines(path, CounterLine)
    during = _generating(lines, job, timing)
    if counters is None or not during or timing is None or not timing.mean_ns:
        return {}
    first, last = during[0], during[-1]
    grown = {name: n - first.counts.get(name, 0) for name, n in last.counts.items()}
    refills, took = grown.get("last_level_refills"), last.mono_ns - first.mono_ns
    read = None
    if refills is not None and counters.line_bytes and took > 0:
        read = round(refills * counters.line_bytes * timing.mean_ns / took)
    used = ("cycles", "instructions", "last_level_refills")
    return {
        "instructions_per_cycle": _per_cycle(grown),
        "prompt_instructions_per_cycle": _per_cycle(first.counts),
        "dram_bytes_per_token": read,
        "counted_permille": min(
            (counters.counted_permille[name] for name in used if name in counters.counted_permille),
            default=None,
        ),
    }


def _per_cycle(counts: Mapping[str, int]) -> float | None:
    cycles, instructions = counts.get("cycles"), counts.get("instructions")
    return instructions / cycles if cycles and instructions is not None else None


def _memory_hz(
    samples: Sequence[TelemetrySample], job: JobStatus | None, timing: TimingRecord | None
) -> int | None:
    """Return the mean clock of the memory while tokens were generated, else while the job ran."""
    for some in (_generating(samples, job, timing), samples):
        clocks = [sample.memory_hz for sample in some if sample.memory_hz is not None]
        if clocks:
            return round(sum(clocks) / len(clocks))
    return None


def _generating(
    samples: Sequence[_Line], job: JobStatus | None, timing: TimingRecord | None
) -> list[_Line]:
    """Return the samples between the first and the last token; none if these are not known."""
    if job is None or timing is None or not timing.ttft_ns or not timing.mean_ns:
        return []
    first = job.start_mono_ns + timing.ttft_ns
    last = first + timing.mean_ns * ((timing.generated_tokens or 1) - 1)
    return [sample for sample in samples if first <= sample.mono_ns <= last]
