"""Runs with tokens, telemetry and a probe, as figures are made of: all numbers from a seed."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from records_made import BEGAN, MS, model, run, timing, trial

from labctl.records.board import BoardFacts, Execution
from labctl.records.probe import BoardProbe, ComputeRate, MemoryRate, StorageRate
from labctl.records.telemetry import TelemetrySample
from labctl.records.trial import JobStatus, TelemetrySummary, TrialBound, TrialRecord
from labctl.report.figures.measured import MeasuredRun

SECOND = 1_000_000_000
#: Where the board's clock is when the first process starts.
START = 34_000 * SECOND
PERIOD_NS = 500 * MS


@dataclass(frozen=True)
class Made:
    """A variant: its name, the time of a token, its weights."""

    name: str = "q8_0"
    token_ms: float = 380.0
    quantization: str = "Q8_0"
    bits: float = 8.5
    ttft_ms: float = 1_600.0
    parameters: tuple[tuple[str, float], ...] = ()


PAIR = (Made(), Made("q2_k", 190.0, "Q2_K", 3.2))


def measured(
    variants: Sequence[Made] = PAIR,
    *,
    run_id: str = "20261120T223000Z-q2-abcdef",
    repeats: int = 3,
    tokens: int = 32,
    execution: Execution = Execution.BOARD,
    seed: int = 1,
    throttled: int | None = None,
    board: str = "rk1",
) -> MeasuredRun:
    """A run whose repeats are interleaved; the trial of number ``throttled`` slows down inside."""
    rnd = random.Random(seed)
    trials: list[TrialRecord] = []
    samples: dict[int, list[TelemetrySample]] = {}
    begin = START
    for number in range(1, repeats * len(variants) + 1):
        variant = variants[(number - 1) % len(variants)]
        slow = number == throttled
        gaps = [
            variant.token_ms * rnd.lognormvariate(0, 0.02) * (1.2 if slow and n > tokens / 2 else 1)
            for n in range(tokens)
        ]
        found = trial_of(
            variant,
            number,
            (number - 1) // len(variants) + 1,
            gaps,
            begin=begin,
            execution=execution,
        )
        samples[number] = telemetry(found, slow=slow)
        found = found.model_copy(
            update={
                "board": board,
                "evidence": TelemetrySummary(samples=len(samples[number]), limited=slow),
            }
        )
        trials.append(found)
        assert found.job
        begin = found.job.end_mono_ns + 20 * SECOND
    facts = BoardFacts(
        execution=execution,
        machine="aarch64",
        kernel="5.10",
        boot_id="b1",
        memory_total_bytes=2_000_000_000,
    )
    names = tuple(variant.name for variant in variants)
    axes = {key: None for variant in variants for key, _ in variant.parameters}
    record = run(
        run_id,
        recipe_resolved={"name": "q2", "matrix": {"model": list(names), **axes}},
        variants=names,
        facts=facts,
        board=board,
    )
    return MeasuredRun(record, trials, (probe(facts, board),), lambda one: samples[one.number])


def trial_of(
    variant: Made,
    number: int,
    repeat: int,
    gaps_ms: Sequence[float],
    *,
    begin: int,
    execution: Execution,
) -> TrialRecord:
    wall = round((variant.ttft_ms + sum(gaps_ms) + 30) * MS)
    weights = round(variant.bits / 8 * 135e6)
    timed = timing(list(gaps_ms), ttft_ns=round(variant.ttft_ms * MS))
    assert timed.mean_ns
    rate = weights / timed.mean_ns * 1e9
    return trial(
        number,
        slug=f"{number}",
        variant=variant.name,
        repeat=repeat,
        parameters=dict(variant.parameters),
        model=model(
            variant.name,
            variant.quantization,
            bits_per_weight=variant.bits,
            bytes_per_token=weights,
        ),
        timing=timed,
        execution=execution,
        job=JobStatus(
            outcome="exited",
            exit_status=0,
            start_mono_ns=begin,
            end_mono_ns=begin + wall,
            wall_ns=wall,
            stdout_bytes=1,
            stderr_bytes=1,
            boot_id="b1",
            epoch=1,
        ),
        bound=TrialBound(
            measured=True,
            kind=None,
            share=0.6,
            shares={"dram": rate / 5.9e9, "compute": 0.6, "storage": 0.02},
            bytes_per_token=weights,
            bytes_per_second=rate,
            sentence="not bound",
        ),
    )


def telemetry(of: TrialRecord, *, slow: bool = False) -> list[TelemetrySample]:
    """Samples of a trial: it loads by page faults, then computes; ``slow``: hot after a while."""
    assert of.job
    assert of.timing
    assert of.timing.ttft_ns
    count = max(4, of.job.wall_ns // PERIOD_NS)
    step = of.job.wall_ns // count
    moments = [of.job.start_mono_ns + n * step for n in range(count + 1)]
    loaded = of.job.start_mono_ns + of.timing.ttft_ns * 6 // 10
    loading = [moment < loaded for moment in moments]
    read = list(accumulate(40_000_000 if one else 100_000 for one in loading))
    faults = list(accumulate(900 if one else 2 for one in loading))
    busy = list(accumulate(step * (8 if one else 36) // 10 for one in loading))
    made = []
    for n, moment in enumerate(moments):
        hot = slow and n > 0.5 * count
        khz = 1_416_000 if hot else 1_992_000
        made.append(
            TelemetrySample.model_validate(
                {
                    "mono_ns": moment,
                    "rss_bytes": 145_000_000 * min(n + 1, 4) // 4,
                    "mem_available_bytes": 1_600_000_000 - 25_000_000 * min(n, 4),
                    "majflt": faults[n],
                    "minflt": 100 * n,
                    "read_bytes": read[n],
                    "device_read_bytes": read[n] * 21 // 20,
                    "tree_cpu_ns": busy[n],
                    "cpu_busy_ns": busy[n] + n * step // 50,
                    "temps_mc": {"soc-thermal": 50_000 + 300 * n, "gpu-thermal": 47_000 + 200 * n},
                    "cooling": {"thermal-cpufreq-0": 2 if hot else 0},
                    "freq_khz": {f"cpu{cpu}": khz for cpu in range(4)},
                    "freq_limit_khz": {f"cpu{cpu}": khz for cpu in range(4)},
                }
            )
        )
    return made


def probe(facts: BoardFacts, board: str = "rk1") -> BoardProbe:
    """Ceilings of a board like RK3568; the numbers are made up."""

    def compute(quantization: str, bits: float, prompt: float, decode: float) -> ComputeRate:
        return ComputeRate(
            quantization=quantization,
            threads=4,
            parameters=135_000_000,
            bytes_per_token=round(bits / 8 * 135e6),
            prompt_tokens_per_second=prompt,
            eval_tokens_per_second=decode,
            model_file="small.gguf",
        )

    return BoardProbe(
        board=board,
        taken=BEGAN,
        agent_version="1",
        labctl_version="0",
        facts=facts,
        memory=tuple(
            MemoryRate(threads=threads, bytes_per_second=rate)
            for threads, rate in ((1, 3_100_000_000), (4, 5_900_000_000))
        ),
        storage=(
            StorageRate(
                pattern="mapping",
                method="dropped",
                threads=1,
                block_bytes=4096,
                bytes_read=100_000_000,
                bytes_per_second=178_000_000,
                uncached=True,
            ),
        ),
        compute=(compute("Q8_0", 8.5, 21.0, 8.7), compute("Q2_K", 3.2, 14.0, 9.9)),
    )
