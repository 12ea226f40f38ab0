"""Predict the time of a trial from the known rates of the board's hardware.

The rates come from the board's last probes, or else from the target's expectations. Only boards are
predicted: an emulator does not follow the target's physics.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from labctl.board.probe_files import last_probes
from labctl.config.target import Expectations, Target
from labctl.engines.base import MemoryNeed, TokenCounts
from labctl.records.board import BoardFacts, Execution
from labctl.records.probe import BoardProbe, ReadPattern
from labctl.records.trial import ModelIdentity, Workload
from labctl.results.telemetry import LOUD
from labctl.stats.roofline import Machine, Prediction, Work, experts_read, predict
from labctl.units import size

#: A trial slower than this share of a bound is not limited by it. Trials limited by DRAM reach 70
#: to 90 % of the rate of a loop that only reads.
NEAR = 0.7


@dataclass(frozen=True)
class Rate:
    """Bytes per second, with its source, for messages.

    ``measured``: True if measured on the board itself, False if only expected.
    """

    value: float
    source: str
    measured: bool = True

    @property
    def text(self) -> str:
        """Text with the rate, for a sentence."""
        whose = "this board's" if self.measured else "the expected"
        return f"{whose} {size(self.value)}/s ({self.source})"


@dataclass(frozen=True)
class Rates:
    """Known rates of a board; None or missing = unknown.

    ``memory``: by number of threads (None: unknown number). ``decode`` and ``prompt``: rates at
    which the arithmetic of a token processes weights, by quantization and number of threads.
    ``expected_memory``: what the target expects, also if the memory was measured.
    """

    storage: Rate | None = None
    memory: Mapping[int | None, Rate] = field(default_factory=dict)
    decode: Mapping[tuple[str, int | None], Rate] = field(default_factory=dict)
    prompt: Mapping[tuple[str, int | None], Rate] = field(default_factory=dict)
    expected_memory: float | None = None

    def dram(self, threads: int | None = None) -> Rate | None:
        """Return the highest read rate of ``threads`` threads (None: any number).

        More threads can read at least as fast as fewer. Between two measured numbers of threads,
        the higher rate is used: a bound may be too high, but not too low.
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
    """Return each rate from the newest probe that has it, otherwise the expected one.

    ``probes``: newest first. None if nothing is known. Weights are read by page faults on a
    mapping; the rate of that is the storage's rate, if it was measured and proven to be uncached.
    Two programs say nothing about arithmetic: one that decodes nearly as fast as DRAM, and one that
    had to share the CPUs.
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
    found = Rates(storage, memory, decode, prompt, expected.value if expected else None)
    return None if found == Rates() else found


def memory_clock_doubt(facts: BoardFacts, rates: Rates | None) -> str | None:
    """Return a sentence if the memory may run slowly, or its clock is unknown; else None.

    Only boards whose agent was asked are judged.
    """
    if facts.execution is not Execution.BOARD or facts.devfreq is None:
        return None
    read, expected = rates.dram() if rates else None, rates.expected_memory if rates else None
    slow = None
    if read and read.measured and expected and read.value < NEAR * expected:
        slow = f"{read.source} read {read.value / 1e9:.1f} of {expected / 1e9:.1f} GB/s"
    clock = facts.memory_clock
    if clock is None:
        if slow:
            return f"memory clock not visible; {slow}: DRAM is probably at a low fixed clock"
        return None if read and read.measured else "memory clock not visible"
    limit, highest = clock.max_hz, clock.highest_hz
    if limit and highest and limit < highest:
        return f"DRAM is limited to {limit / 1e6:,.0f} of {highest / 1e6:,.0f} MHz"
    if slow is None:
        return None
    advice = ": `conditions: {memory_governor: performance}` would keep its clock high"
    fast = clock.governor == "performance"
    return f"DRAM's governor is {clock.governor or 'unknown'}; {slow}{'' if fast else advice}"


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
    """Keep the fastest of several models with the same quantization."""
    if key not in rates or rates[key].value < rate.value:
        rates[key] = rate


#: Default for engines without this parameter.
_USUAL_BATCH = 512


@dataclass(frozen=True)
class ModelWorkload:
    """Work of a variant; ``None`` = its engine has no such parameter, or leaves it unset."""

    model: ModelIdentity
    need: MemoryNeed
    threads: int | None = None
    tokens: int | None = None
    batch: int = _USUAL_BATCH
    prompt_tokens: int = 1

    @classmethod
    def of(
        cls,
        model: ModelIdentity,
        need: MemoryNeed,
        workload: Workload,
        counts: TokenCounts | None = None,
    ) -> "ModelWorkload":
        """Return the work of a resolved variant; ``passes``: counts of one run, if known."""
        return cls(
            model,
            need,
            workload.threads,
            workload.tokens,
            workload.batch or _USUAL_BATCH,
            max(1, counts.prompt_tokens if counts else 1),
        )

    @property
    def bytes_per_token(self) -> int:
        """Bytes of weights read per token. The model must report them."""
        assert self.model.bytes_per_token is not None
        return self.model.bytes_per_token + sum(one.tensor_bytes for one in self.model.adapters)

    @property
    def prompt_bytes(self) -> int:
        """Bytes of weights for a batch of the prompt: each token chooses its own experts."""
        experts, used = self.model.experts, self.model.experts_per_token
        if not experts or not used or experts == used or self.model.reused_bytes is None:
            return self.bytes_per_token
        idle = max(
            0, self.model.reused_bytes - self.bytes_per_token
        )  # share of experts that a single token does not use
        others = min(self.batch, self.prompt_tokens) - 1
        return self.bytes_per_token + round(idle * experts_read(experts, used, others))

    def kv_bytes(self, positions: float) -> int:
        """Return the cache bytes that a token after ``positions`` positions reads; 0 if unknown."""
        return round((self.need.kv_bytes_per_position or 0) * positions)

    def bytes_at(self, positions: float) -> int:
        """Return the bytes that a token after ``positions`` positions reads: weights and cache."""
        return self.bytes_per_token + self.kv_bytes(positions)

    def seconds(self, rate: Rate | None) -> float | None:
        """Return the time in s of one pass through its weights; None if the rate is unknown."""
        return self.bytes_per_token / rate.value if rate else None


def predictions(
    workloads: Mapping[str, ModelWorkload], facts: BoardFacts, rates: Rates | None
) -> dict[str, Prediction]:
    """Return the prediction for each variant, by slug; leave out variants without a prediction."""
    memory = facts.memory_available_bytes or facts.memory_total_bytes
    if facts.execution is not Execution.BOARD or rates is None or not memory:
        return {}
    found = {slug: _prediction(work, memory, rates) for slug, work in workloads.items()}
    return {slug: prediction for slug, prediction in found.items() if prediction is not None}


def _prediction(work: ModelWorkload, memory: int, rates: Rates) -> Prediction | None:
    dram, quantization = rates.dram(work.threads), work.model.quantization or ""
    if work.model.size_bytes is None:
        return None
    machine = Machine(
        memory,
        dram=dram.value if dram else None,
        storage=rates.storage.value if rates.storage else None,
        compute=work.seconds(rates.decode.get((quantization, work.threads))),
        prompt_compute=work.seconds(rates.prompt.get((quantization, work.threads))),
    )
    amount = Work(
        bytes_per_token=work.bytes_per_token,
        resident_bytes=work.need.resident_bytes,
        load_bytes=work.model.size_bytes,
        kv_bytes=work.kv_bytes(work.prompt_tokens + (work.tokens or 0) / 2),
        prompt_tokens=work.prompt_tokens,
        prompt_bytes=work.prompt_bytes,
        ubatch=work.batch,
    )
    return predict(amount, machine)


def tells_reading(prediction: Prediction, work: ModelWorkload, rates: Rates | None) -> bool:
    """Return True if a prediction includes the time to read a text, not only its bytes.

    A batch reads the weights once for all of its tokens, far below the bound of DRAM.
    """
    key = (work.model.quantization or "", work.threads)
    return prediction.bound == "storage" or (rates is not None and key in rates.prompt)


def source_of(prediction: Prediction, work: ModelWorkload, rates: Rates) -> str:
    """Return the source of the rate that a prediction uses."""
    rate = {
        "storage": rates.storage,
        "dram": rates.dram(work.threads),
        "compute": rates.decode.get((work.model.quantization or "", work.threads)),
    }[prediction.bound]
    assert rate is not None  # otherwise it would not be a bound
    return rate.source
