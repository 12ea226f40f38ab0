"""Facts of a board. ``None`` = the board does not report it."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Literal

from pydantic import Field

from labctl.config.recipe_parts import CpuList, cpu_numbers
from labctl.records.base import Record
from labctl.records.telemetry import DeviceClock, memory_clock
from labctl.units import ranges


class Execution(StrEnum):
    """Kind of machine that ran the measured instructions."""

    BOARD = "board"
    EMULATED = "emulated"
    NATIVE_HOST = "native-host"
    #: An imported file does not name the machine.
    UNKNOWN = "unknown"


class CpuFacts(Record):
    """One kind of core, from ``/proc/cpuinfo``."""

    count: int
    implementer: str | None = None
    part: str | None = None
    model: str | None = None
    features: tuple[str, ...] = ()


class PhoneFacts(Record):
    """An Android device, by its system properties."""

    manufacturer: str | None = None
    model: str | None = None
    soc: str | None = Field(None, description="maker and model of its chip")
    sdk: int | None = Field(None, description="API level")

    @property
    def text(self) -> str:
        """Return the known values in one line."""
        name = " ".join(filter(None, (self.manufacturer, self.model)))
        level = None if self.sdk is None else f"API level {self.sdk}"
        return ", ".join(filter(None, (name, self.soc, level)))


class PhoneState(Record):
    """Battery and screen of a phone at one moment."""

    level_percent: int | None = Field(None, ge=0, le=100)
    temperature_mc: int | None = Field(None, description="of the battery")
    status: Literal["charging", "discharging", "not charging", "full"] | None = None
    power_source: Literal["ac", "usb", "wireless", "dock", "battery"] | None = None
    screen: Literal["on", "off"] | None = None

    @property
    def charging(self) -> bool | None:
        """True if the battery is being charged; None if the phone does not report it."""
        return None if self.status is None else self.status == "charging"

    @property
    def text(self) -> str:
        """Return the known values in one line."""
        level = None if self.level_percent is None else f"{self.level_percent}%"
        heat = None if self.temperature_mc is None else f"{self.temperature_mc / 1000:.1f} °C"
        source = self.power_source and f"power: {self.power_source}"
        screen = self.screen and f"screen {self.screen}"
        return ", ".join(filter(None, (level, self.status, source, heat, screen)))


class BoardFacts(Record):
    """A board at one moment."""

    execution: Execution
    machine: str = Field(description="`uname -m` of the kernel: aarch64, x86_64")
    kernel: str
    boot_id: str
    os_version: str | None = Field(
        None, description="OpenHarmony's product software version, or Android's version and build"
    )
    shell: str | None = None
    emulator: str | None = Field(None, description="the emulator's command line, when emulated")
    cpus: tuple[CpuFacts, ...] = ()
    cpus_allowed: CpuList | None = Field(
        None, description="numbers of the CPUs that a job may use, `0-3,5` for instance"
    )
    may_raise_priority: bool | None = Field(
        None, description="True if its shell may raise a program's priority, as root may"
    )
    memory_total_bytes: int | None = None
    memory_available_bytes: int | None = None
    storage_free_bytes: int | None = None
    serial: str | None = Field(None, description="the board's serial number, from its device tree")
    compatible: tuple[str, ...] = Field(
        (), description="the board's names in its device tree; the last one is its chip's"
    )
    storage_kind: str | None = Field(None, description="file system type of the work directory")
    devfreq: tuple[DeviceClock, ...] | None = Field(
        None, description="clocks of memory, GPU and NPU that the kernel shows; None: not asked"
    )

    highest_khz: Mapping[str, int] = Field(
        default_factory=dict, description="CPU -> highest frequency of its hardware"
    )
    phone: PhoneFacts | None = Field(None, description="None: not Android")
    phone_state: PhoneState | None = Field(None, description="battery and screen of a phone")

    @property
    def cpu_names(self) -> str | None:
        """Return the CPUs by name, ``4 x Cortex-A55``; None if the board does not report them."""
        known = {cpu.model or cpu.part: cpu.count for cpu in self.cpus if cpu.model or cpu.part}
        return ", ".join(f"{count} x {name}" for name, count in known.items()) or None

    def cluster(self, name: Literal["big", "little"]) -> str | None:
        """Return the CPUs of a cluster: ``little`` are the ones with the lowest maximum frequency.

        ``big`` are all others, or all CPUs if their maximum is the same; then there are no little
        ones. Only CPUs that a job may use count. None if there are none, or if the maximum of a
        CPU is unknown.
        """
        if self.cpus_allowed is None:
            return None
        allowed = cpu_numbers(self.cpus_allowed)
        known = {cpu: self.highest_khz.get(str(cpu)) for cpu in allowed}
        speeds = {khz for khz in known.values() if khz is not None}
        if None in known.values() or not speeds:
            return None
        slow = frozenset[int]()
        if len(speeds) > 1:
            slow = frozenset(cpu for cpu in allowed if known[cpu] == min(speeds))
        chosen = slow if name == "little" else allowed - slow
        return ranges(chosen) if chosen else None

    @property
    def memory_clock(self) -> DeviceClock | None:
        """The clock of the memory; None if the kernel does not show it, or was not asked."""
        return memory_clock(self.devfreq or ())

    @property
    def cores(self) -> int:
        """Number of CPUs that a job may use; the CPUs online if the board does not report it."""
        if self.cpus_allowed is not None:
            return len(cpu_numbers(self.cpus_allowed))
        return sum(cpu.count for cpu in self.cpus)
