"""Rates of a board, for memory and arithmetic: of its last probes, else as its target expects."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from labctl.board.probes import last_probes
from labctl.config.target import Expectations, Target
from labctl.records import BoardProbe, Execution
from labctl.records.probe import ReadPattern
from labctl.results.telemetry_summary import LOUD
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
    def text(self) -> str:
        """As a part of a sentence."""
        whose = "this board's" if self.measured else "the expected"
        return f"{whose} {size(self.value)}/s ({self.source})"


@dataclass(frozen=True)
class Rates:
    """Known rates of a board; None or absent = unknown.

    ``memory`` is by number of threads, None where it was not said. ``decode`` and ``prompt`` are
    how fast the arithmetic of a token goes through weights, by quantisation and number of threads.
    """

    storage: Rate | None = None
    memory: Mapping[int | None, Rate] = field(default_factory=dict)
    decode: Mapping[tuple[str, int | None], Rate] = field(default_factory=dict)
    prompt: Mapping[tuple[str, int | None], Rate] = field(default_factory=dict)

    def dram(self, threads: int | None = None) -> Rate | None:
        """Return the highest read rate of ``threads`` threads (None: any number).

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


def board_rates(lab_root: Path, board: str, target: Target) -> Rates | None:
    """Return the known rates of a board. Only rates measured on a board count as measured."""
    return rates_of(last_probes(lab_root, board, Execution.BOARD), target.expectations)


def rates_of(probes: Sequence[BoardProbe], expectations: Expectations | None) -> Rates | None:
    """Return each rate from the newest probe that has it, else the expected one.

    ``probes`` are newest first. None when nothing is known. Weights are read by page faults on a
    mapping, so that is the storage's rate where it was measured and proven to be uncached. A
    program that decodes nearly as fast as DRAM can be read says nothing about arithmetic, nor does
    one that had to share the CPUs: that is no ceiling.
    """
    promised = _expected(expectations.storage_read_bytes_per_s if expectations else None)
    expected = _expected(expectations.dram_read_bytes_per_s if expectations else None)
    storage = _storage(probes, "mapping") or _storage(probes, "sequential") or promised
    memory: dict[int | None, Rate] = {} if expected is None else {None: expected}
    if read := next((probe for probe in probes if probe.memory), None):
        memory = {m.threads: Rate(m.bytes_per_second, _source(read)) for m in read.memory}
    decode: dict[tuple[str, int | None], Rate] = {}
    prompt: dict[tuple[str, int | None], Rate] = {}
    for probe in probes:
        fresh = _arithmetic(probe, Rates(memory=memory))
        decode = {**fresh.decode, **decode}
        prompt = {**fresh.prompt, **prompt}
    found = Rates(storage, memory, decode, prompt)
    return None if found == Rates() else found


def _storage(probes: Sequence[BoardProbe], pattern: ReadPattern) -> Rate | None:
    for probe in probes:
        rate = probe.storage_bytes_per_second(pattern)
        if rate is not None:
            return Rate(rate, _source(probe))
    return None


def _arithmetic(probe: BoardProbe, known: Rates) -> Rates:
    """Return the compute rates of one probe."""
    decode: dict[tuple[str, int | None], Rate] = {}
    prompt: dict[tuple[str, int | None], Rate] = {}
    for rate in probe.compute:
        if rate.others_share is not None and rate.others_share > LOUD:
            continue
        key = (rate.quantization, rate.threads)
        source = f"{_source(probe)}, {rate.model_file}"
        dram = known.dram(rate.threads)
        if rate.bytes_per_second and not (dram and _bound_by(dram, rate.bytes_per_second)):
            _keep(decode, key, Rate(rate.bytes_per_second, source))
        if rate.prompt_bytes_per_second:
            _keep(prompt, key, Rate(rate.prompt_bytes_per_second, source))
    return Rates(decode=decode, prompt=prompt)


def _source(probe: BoardProbe) -> str:
    return f"the probe of {probe.taken:%Y-%m-%d}"


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
