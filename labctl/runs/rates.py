"""How fast a board moves and computes: from its last probe, else from what its target promises."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from labctl.board.probes import latest_probe
from labctl.config.target import Expectations, Target
from labctl.records import BoardProbe, Execution
from labctl.runs.evidence import LOUD
from labctl.units import size

#: A trial that is slower than this share of a bound is not held by it. What is bound by DRAM
#: reaches 70 to 90 % of what a loop does that only reads.
NEAR = 0.7


@dataclass(frozen=True)
class Rate:
    """Bytes per second, and where that comes from, for people.

    ``measured``: on the board itself; else it is only expected of it.
    """

    value: float
    source: str
    measured: bool = True

    @property
    def told(self) -> str:
        """As a part of a sentence."""
        whose = "this board's" if self.measured else "the expected"
        return f"{whose} {size(self.value)}/s ({self.source})"


@dataclass(frozen=True)
class Rates:
    """What is known of a board; None, or absent = not known.

    ``memory`` is by number of threads, None where it was not said. ``decode`` and ``prompt`` are
    how fast the arithmetic of a token goes through weights, by quantisation and number of threads.
    """

    storage: Rate | None = None
    memory: Mapping[int | None, Rate] = field(default_factory=dict)
    decode: Mapping[tuple[str, int | None], Rate] = field(default_factory=dict)
    prompt: Mapping[tuple[str, int | None], Rate] = field(default_factory=dict)

    def dram(self, threads: int | None = None) -> Rate | None:
        """The most that so many threads read (None: any number).

        What fewer of them read, more can read too; and between two numbers that were measured it is
        the next: what is a bound may be too high, not too low.
        """
        counts = [count for count in self.memory if count is not None]
        if threads is None or not counts:
            usable = list(self.memory.values())
        else:
            enough = min((count for count in counts if count >= threads), default=max(counts))
            usable = [rate for count, rate in self.memory.items() if count and count <= enough]
        return max(usable, key=lambda rate: rate.value, default=None)


def known_rates(lab_root: Path, board: str, target: Target) -> Rates | None:
    """What is known of a board's speed. Only what was measured on a board counts as that."""
    return rates_of(latest_probe(lab_root, board, Execution.BOARD), target.expectations)


def rates_of(probe: BoardProbe | None, expectations: Expectations | None) -> Rates | None:
    """What is known; what was measured wins. None when that is nothing.

    Weights are read by page faults on a mapping, so that is the storage's rate where it was
    measured and proven to be uncached. A program that decodes nearly as fast as DRAM can be read
    says nothing about arithmetic, nor does one that had to share the CPUs: that is no ceiling.
    """
    promised = _expected(expectations.storage_read_bytes_per_s if expectations else None)
    expected = _expected(expectations.dram_read_bytes_per_s if expectations else None)
    memory: dict[int | None, Rate] = {} if expected is None else {None: expected}
    if probe is None:
        found = Rates(promised, memory)
        return found if promised or memory else None
    source = f"the probe of {probe.taken:%Y-%m-%d}"
    if probe.memory:
        memory = {rate.threads: Rate(rate.bytes_per_second, source) for rate in probe.memory}
    mapped = probe.storage_bytes_per_second("mapping")
    straight = probe.storage_bytes_per_second("sequential")
    storage = mapped if mapped is not None else straight
    measured = Rates(promised if storage is None else Rate(storage, source), memory)
    decode: dict[tuple[str, int | None], Rate] = {}
    prompt: dict[tuple[str, int | None], Rate] = {}
    for rate in probe.compute:
        if rate.others_share is not None and rate.others_share > LOUD:
            continue
        key = (rate.quantization, rate.threads)
        on = f"{source}, {rate.model_file}"
        dram = measured.dram(rate.threads)
        if rate.bytes_per_second and not (dram and _bound_by(dram, rate.bytes_per_second)):
            _keep(decode, key, Rate(rate.bytes_per_second, on))
        if rate.prompt_bytes_per_second:
            _keep(prompt, key, Rate(rate.prompt_bytes_per_second, on))
    return Rates(measured.storage, memory, decode, prompt)


def _expected(value: float | None) -> Rate | None:
    return None if value is None else Rate(value, "the target's expectations", measured=False)


def _bound_by(dram: Rate, bytes_per_second: float) -> bool:
    return dram.measured and bytes_per_second >= NEAR * dram.value


def _keep(
    rates: dict[tuple[str, int | None], Rate], key: tuple[str, int | None], rate: Rate
) -> None:
    """Of several models of one quantisation the faster one counts."""
    if key not in rates or rates[key].value < rate.value:
        rates[key] = rate
