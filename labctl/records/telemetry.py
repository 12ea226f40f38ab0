"""Samples of a job, its board and their state. ``None`` = not known.

``toolchains/agent/telemetry.h`` explains the fields as the agent writes them. Counters (times,
faults, bytes read) only grow: use their differences.
"""

from collections.abc import Iterable, Mapping

from pydantic import Field

from labctl.records.base import Record

#: Parts of the names under which kernels show the clock of the memory: Rockchip (dmc), Samsung
#: (mif), Nvidia (emc) and others.
MEMORY_NAMES = ("dmc", "ddr", "dram", "mif", "emc", "memory")
#: Parts of other names: Qualcomm shows votes for bandwidth and latency, in MB/s, not clocks.
NO_MEMORY_NAMES = ("-bw", "-lat", "qcom,", "npu")
#: No clock of a memory is lower.
_LEAST_HZ = 10_000_000


def memory_of(clocks: Mapping[str, int | None]) -> str | None:
    """Return the device of devfreq that is the main memory, of all with their clocks in Hz.

    The first in the order of the names, if there are several; None if no device is the memory.
    """
    return min((d for d, hz in clocks.items() if is_memory(d) and _is_clock(hz)), default=None)


def is_memory(device: str) -> bool:
    """Return True if a device of devfreq has the name of a main memory."""
    is_other = any(part in device for part in NO_MEMORY_NAMES)
    return not is_other and any(part in device for part in MEMORY_NAMES)


def _is_clock(hz: int | None) -> bool:
    return hz is None or hz >= _LEAST_HZ


class StreamSoFar(Record):
    """Output of a program on one stream so far."""

    pieces: int = Field(ge=0, description="reads from the pipe that brought something")
    lines: int = Field(ge=0)
    bytes: int = Field(ge=0)
    first_ns: int | None = Field(None, description="time of the first piece; None before it")
    last_ns: int | None = None


class TelemetrySample(Record):
    """A line of the job's ``telemetry``."""

    mono_ns: int = Field(description="the board's monotonic clock")

    # its output
    stdout: StreamSoFar | None = None
    stderr: StreamSoFar | None = None

    # the job's main process
    rss_bytes: int | None = None
    pss_bytes: int | None = Field(None, description="in some samples only: it is expensive to read")
    locked_bytes: int | None = Field(None, description="in memory; in some samples only")
    user_ns: int | None = Field(None, alias="utime_ns")
    system_ns: int | None = Field(None, alias="stime_ns")
    minor_faults: int | None = Field(None, alias="minflt")
    major_faults: int | None = Field(None, alias="majflt")
    threads: Mapping[str, tuple[int, int]] = Field(
        default_factory=dict, description="thread id -> user and system time in ns"
    )
    runqueue_wait_ns: int | None = Field(
        None, description="time in which its living threads were ready but had no CPU"
    )
    read_bytes: int | None = Field(None, description="from storage")
    write_bytes: int | None = Field(None, description="to storage")

    # everything that the job started
    tree_cpu_ns: int | None = Field(
        None, description="CPU time of all its processes, ended ones included"
    )

    # the board
    device_read_bytes: int | None = None
    device_write_bytes: int | None = None
    device_busy_ns: int | None = None
    mem_available_bytes: int | None = None
    swap_used_bytes: int | None = None
    zram_original_bytes: int | None = None
    zram_memory_bytes: int | None = None
    pressure_ns: Mapping[str, int] = Field(
        default_factory=dict, description="`cpu_some`, `memory_full`, `io_full` ... -> stalled time"
    )
    cpu_busy_ns: int | None = Field(
        None, description="busy time of all CPUs, without idle and storage wait"
    )
    reclaim_cpu_ns: int | None = Field(
        None, description="CPU time of the kernel's threads that free memory: kswapd, kcompactd"
    )
    cpu_steal_ns: int | None = None
    temperatures_mc: Mapping[str, int] = Field(default_factory=dict, alias="temps_mc")
    untrusted_zones: Mapping[str, str] = Field(
        default_factory=dict,
        alias="temps_untrusted",
        description="thermal zone -> what it reads, and why that is not a temperature",
    )
    cooling: Mapping[str, int] = Field(
        default_factory=dict, description="cooling device -> state, 0 when it does not throttle"
    )
    freq_khz: Mapping[str, int] = Field(default_factory=dict, description="CPU -> frequency")
    freq_limit_khz: Mapping[str, int] = Field(
        default_factory=dict, description="CPU -> highest allowed frequency"
    )
    devfreq_hz: Mapping[str, int] = Field(
        default_factory=dict, description="memory (`dmc`), GPU, NPU -> frequency"
    )
    devfreq_limit_hz: Mapping[str, int] = Field(
        default_factory=dict, description="the same -> highest allowed frequency"
    )

    @property
    def hottest_mc(self) -> int | None:
        """The temperature of the hottest zone; None if no zone reports a temperature."""
        return max(self.temperatures_mc.values(), default=None)

    @property
    def memory_hz(self) -> int | None:
        """The memory's clock; None if the board does not show it."""
        device = memory_of(self.devfreq_hz)
        return None if device is None else self.devfreq_hz[device]

    @property
    def limits(self) -> dict[str, int]:
        """Highest allowed frequencies of the CPUs and of the memory."""
        device = memory_of(self.devfreq_limit_hz)
        memory = {} if device is None else {device: self.devfreq_limit_hz[device]}
        return {**self.freq_limit_khz, **memory}

    @property
    def untrusted(self) -> str:
        """Name the zones that are not trusted, with their values, in one line; else empty."""
        return named_zones(self.untrusted_zones)


def named_zones(zones: Mapping[str, str]) -> str:
    """Name thermal zones, each with its text, in one line."""
    return "; ".join(f"{zone}: {text}" for zone, text in zones.items())


class ClockState(Record):
    """CPUs that are clocked together: setting at the job's begin, and clock while it ran."""

    cpus: str = Field(description="as kernels list them, `0-3`")
    governor: str | None = None
    min_khz: int | None = Field(None, description="between which frequencies they might run")
    max_khz: int | None = None
    time_in_state_ms: Mapping[str, int] = Field(
        default_factory=dict, description="kHz -> time at it while the job ran; empty: not counted"
    )


class DeviceClock(Record):
    """A device of the kernel's devfreq (memory, GPU, NPU): its clock, and how it is set."""

    device: str
    governor: str | None = None
    governors: str | None = Field(None, description="the available ones, separated by blanks")
    current_hz: int | None = None
    min_hz: int | None = Field(None, description="between which frequencies it may run")
    max_hz: int | None = None
    highest_hz: int | None = Field(None, description="highest frequency that it can have")


def memory_clock(devices: Iterable[DeviceClock]) -> DeviceClock | None:
    """Return the clock of the main memory; None if none of the devices is."""
    clocks = {one.device: one for one in devices}
    device = memory_of({name: one.current_hz for name, one in clocks.items()})
    return None if device is None else clocks[device]


class CoolingState(Record):
    """A cooling device that counts its states; state 0 does not cool."""

    device: str
    time_in_state_ms: Mapping[str, int] = Field(
        default_factory=dict, description="state -> time in it while the job ran"
    )


class ResidentFile(Record):
    """Part of a file that was in memory (page cache) before the job began."""

    file_bytes: int = Field(gt=0)
    resident_bytes: int = Field(ge=0)

    @property
    def share(self) -> float:
        """From 0 to 1."""
        return self.resident_bytes / self.file_bytes


class CounterLine(Record):
    """A line of the job's ``counters``: counts so far, read at a piece of its output."""

    mono_ns: int
    counts: Mapping[str, int]


class JobCounters(Record):
    """Perf events of the job and all that it started, counted by CPU and kernel."""

    counts: Mapping[str, int] = Field(
        default_factory=dict,
        description="cycles, instructions, last_level_refills, bus_accesses, stalled_cycles,"
        " task_clock_ns, page_faults, context_switches",
    )
    counted_permille: Mapping[str, int] = Field(
        default_factory=dict,
        description="event -> share of the time in which it was counted, if less than 1000: the"
        " CPU's counters took turns, and the count is scaled",
    )
    absent: Mapping[str, str] = Field(
        default_factory=dict, description="event that is not counted -> reason"
    )
    user_only: bool = Field(default=False, description="the kernel's own work is not counted")
    refill_event: str | None = Field(None, description="event of last_level_refills")
    line_bytes: int | None = Field(None, description="bytes of a refill")


class BoardState(Record):
    """The measured state of the board. Records are comparable only if its classes agree."""

    cpufreq: tuple[ClockState, ...] = ()
    cooling: tuple[CoolingState, ...] = ()
    devfreq: tuple[DeviceClock, ...] = ()
    resident: ResidentFile | None = Field(None, description="the model's file")
