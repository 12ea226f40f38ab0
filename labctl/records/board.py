"""Facts of a board. ``None`` = the board does not report it."""

from enum import StrEnum

from pydantic import Field

from labctl.config.recipe_parts import CpuList, cpu_numbers
from labctl.records.base import Record
from labctl.records.telemetry import DeviceClock, memory_clock


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


class BoardFacts(Record):
    """A board at one moment."""

    execution: Execution
    machine: str = Field(description="`uname -m` of the kernel: aarch64, x86_64")
    kernel: str
    boot_id: str
    os_version: str | None = Field(None, description="OpenHarmony's product software version")
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
