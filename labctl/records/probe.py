"""Measured rates of a board: the probe that bounds and predictions use.

Rates are whole numbers of bytes per second. Missing measurements are not in the lists; ``notes``
give the reasons.
"""

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from labctl.records.base import FileRecord, Moment, Record
from labctl.records.board import BoardFacts, Execution

_OTHERS = "CPU time of everything else meanwhile, over the time of one CPU"

ReadPattern = Literal["sequential", "random", "mapping"]


class MemoryRate(Record):
    """DRAM rate of the best pass; each of the threads reads its own part of the buffer."""

    threads: int
    bytes_per_second: int


class StorageRate(Record):
    """One way to read a file of the work directory."""

    pattern: ReadPattern = Field(description="mapping: by page faults, as a mapped model is read")
    method: Literal["direct", "dropped"] = Field(
        description="direct: O_DIRECT; dropped: through a page cache that was emptied before"
    )
    threads: int
    block_bytes: int
    bytes_read: int
    bytes_per_second: int
    resident_bytes: int | None = Field(
        None,
        description="share of the file in the page cache. dropped: before reading; direct: after"
        " it. None: unknown",
    )
    storage_bytes: int | None = Field(
        None,
        description="bytes that storage delivered to the process meanwhile, as the kernel reports",
    )
    uncached: bool | None = Field(
        None, description="True: shown to come from storage; None: cannot be shown on this board"
    )


class ComputeRate(Record):
    """llama-bench on a small model that stays in memory: the upper limit of the arithmetic.

    For another model of this quantization, a token takes at least the time to read its bytes at
    ``bytes_per_second``. Only used bytes count: not idle experts, and not a table of which only one
    row is read.
    """

    quantization: str
    threads: int | None = Field(None, description="None: the board does not report its cores")
    parameters: int
    bytes_per_token: int
    prompt_tokens_per_second: float | None = None
    eval_tokens_per_second: float | None = None
    model_file: str
    build_commit: str | None = None
    others_share: float | None = Field(None, description=_OTHERS)

    @property
    def bytes_per_second(self) -> int | None:
        """Bytes of weights that decoding reads per second."""
        rate = self.eval_tokens_per_second
        return None if rate is None else round(rate * self.bytes_per_token)

    @property
    def prompt_bytes_per_second(self) -> int | None:
        """Bytes per second for a prompt. Its tokens share each read: only arithmetic limits it."""
        rate = self.prompt_tokens_per_second
        return None if rate is None else round(rate * self.bytes_per_token)


class CpuClock(Record):
    """Clock of one CPU, in kHz (cpufreq of sysfs)."""

    cpu: int
    governor: str | None = None
    current_khz: int | None = None
    lowest_khz: int | None = None
    highest_khz: int | None = None


class Slowdown(Record):
    """A rate that is lower than in earlier probes by more than their scatter."""

    what: str = Field(description="`memory read, 4 threads`")
    before: int = Field(description="bytes per second, the median of the last probes")
    now: int = Field(description="bytes per second")


class BoardProbe(FileRecord):
    """``boards/<name>/probe-<UTC>.json`` in the lab."""

    board: str
    taken: Moment
    agent_version: str
    labctl_version: str
    facts: BoardFacts
    page_size_bytes: int | None = None
    last_cache_bytes: int | None = Field(None, description="size of the largest CPU cache")
    clocks: tuple[CpuClock, ...] = ()
    temperatures_before_mc: Mapping[str, int] = Field(
        default_factory=dict, description="thermal zone -> thousandths of a degree Celsius"
    )
    temperatures_after_mc: Mapping[str, int] = Field(default_factory=dict)
    storage_device: str | None = Field(None, description="device of the work directory")
    memory: tuple[MemoryRate, ...] = ()
    memory_instructions: str | None = Field(None, description="neon, sse2")
    memory_buffer_bytes: int | None = None
    memory_others_share: float | None = Field(None, description=_OTHERS)
    storage: tuple[StorageRate, ...] = ()
    storage_file_bytes: int | None = None
    storage_others_share: float | None = Field(None, description=_OTHERS)
    compute: tuple[ComputeRate, ...] = ()
    held_down_share: float | None = Field(
        None,
        description="share of the samples while memory and storage were measured in which a limit"
        " or cooling held a clock down; the larger of both. None: the board does not report it",
    )
    slower: tuple[Slowdown, ...] = Field(
        (),
        description="rates that are lower than in the last probes of the same board in the same"
        " execution",
    )
    compared_with: Moment | None = Field(None, description="time of the last of them")
    notes: tuple[str, ...] = Field((), description="missing measurements, each with its reason")

    @property
    def execution(self) -> Execution:
        """Kind of machine that ran the measured instructions."""
        return self.facts.execution

    def memory_bytes_per_second(self, threads: int | None = None) -> int | None:
        """Return the DRAM rate with ``threads`` threads (None: the best), or None."""
        rates = [
            rate.bytes_per_second
            for rate in self.memory
            if threads is None or rate.threads == threads
        ]
        return max(rates, default=None)

    def storage_bytes_per_second(self, pattern: ReadPattern = "mapping") -> int | None:
        """Return the best rate of a pattern that was proven to come from storage, or None.

        ``mapping`` bounds a model that does not fit in memory.
        """
        rates = [
            rate.bytes_per_second
            for rate in self.storage
            if rate.pattern == pattern and rate.uncached
        ]
        return max(rates, default=None)
