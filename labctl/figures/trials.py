"""Figures of a trial, and of a variant's good trials together.

A figure that records already contain needs only a line here. A newly measured figure also needs a
field of its record.
"""

import math
from collections.abc import Callable
from typing import TypeAlias

from labctl.figures.figure import Figure, Place, estimate, greatest, middle, total
from labctl.records.energy import EnergyRecord
from labctl.records.timing import TimingRecord
from labctl.records.trial import JobStatus, TelemetrySummary, TrialRecord
from labctl.stats.describe import percentile

TrialFigure: TypeAlias = Figure[TrialRecord]
_Value = Callable[[TrialRecord], float | None]


def _timing(get: Callable[[TimingRecord], float | None]) -> _Value:
    return lambda trial: None if trial.timing is None else get(trial.timing)


def _job(get: Callable[[JobStatus], float | None]) -> _Value:
    return lambda trial: None if trial.job is None else get(trial.job)


def _evidence(get: Callable[[TelemetrySummary], float | None]) -> _Value:
    return lambda trial: None if trial.evidence is None else get(trial.evidence)


def _energy(get: Callable[[EnergyRecord], float | None]) -> _Value:
    # A board that charges meanwhile, or a meter that counts in steps, may report 0 J or less.
    return lambda trial: None if not has_energy(trial) or not trial.energy else get(trial.energy)


def has_energy(trial: TrialRecord) -> bool:
    """Return True if a meter reported an energy above 0 for the trial."""
    return trial.energy is not None and (trial.energy.joules or 0) > 0


def _tenth(timing: TimingRecord) -> float | None:
    """Return the 10th percentile of the gaps of single tokens; gaps of several tokens do not count.

    None without ``p50_ns``: too many tokens came together.
    """
    merged = set(timing.merged_chunks)
    single = [gap for index, gap in enumerate(timing.token_ns) if index not in merged]
    return None if timing.p50_ns is None or not single else percentile(single, 10)


def _prefill(timing: TimingRecord) -> float | None:
    if not timing.prompt_tokens or not timing.prompt_eval_ns:
        return None
    return timing.prompt_tokens * 1e9 / timing.prompt_eval_ns


def token_time(trial: TrialRecord) -> int | None:
    """Return a trial's mean time per token in ns, the reciprocal of its tokens per second.

    The median of its single tokens is another figure, and never replaces this one.
    """
    return None if trial.timing is None else trial.timing.mean_ns


TOKEN: TrialFigure = Figure(
    "token_ns", "ns", "Time per token", token_time, estimate, Place.RESULTS, "per token",
    tip="Geometric mean over the trials of each one's mean.",
    column="mean_ns", may_gate=True, gate="tpot_ms", better="lower", is_compared=True,
    needs_token_times=True, listed="brief",
)  # fmt: skip
TTFT: TrialFigure = Figure(
    "ttft_ns", "ns", "TTFT", _timing(lambda timing: timing.ttft_ns), estimate, Place.RESULTS,
    tip="Time to first token: from the start of the program, loading included.",
    may_gate=True, better="lower", is_compared=True, has_loading=True, needs_token_times=True,
    listed="wide",
)  # fmt: skip
RATE: TrialFigure = Figure(
    "tokens_per_second", "1/s", "Tokens/s", _timing(lambda timing: timing.tokens_per_second),
    estimate, Place.RESULTS, may_gate=True, better="higher", is_compared=True,
    needs_token_times=True,
)  # fmt: skip
PREFILL: TrialFigure = Figure(
    "prefill_tokens_per_second", "1/s", "Tokens of the prompt in a second", _timing(_prefill),
    estimate, short="prompt rate", column="prompt_tokens_per_second", may_gate=True,
    better="higher", is_compared=True,
)  # fmt: skip
JOULES_PER_TOKEN: TrialFigure = Figure(
    "joules_per_token", "J", "Energy per token", _energy(lambda energy: energy.joules_per_token),
    estimate, Place.ENERGY, may_gate=True, better="lower",
)  # fmt: skip
NET_JOULES_PER_TOKEN: TrialFigure = Figure(
    "net_joules_per_token", "J", "Net energy per token",
    _energy(lambda energy: energy.decode.joules_per_token if energy.decode else None),
    estimate, Place.ENERGY, may_gate=True, better="lower",
    tip="Above the power of the idle board, between the first token and the last.",
)  # fmt: skip
PEAK_MEMORY: TrialFigure = Figure(
    "peak_memory_bytes", "bytes", "Peak memory", _job(lambda job: job.max_rss_bytes),
    greatest, Place.PHASES, tip="Greatest resident set.", better="lower",
)  # fmt: skip
#: In the order of tables and exports.
FIGURES: tuple[TrialFigure, ...] = (
    Figure(
        "generated_tokens", "count", "Tokens", _timing(lambda timing: timing.generated_tokens),
        total, Place.RESULTS, is_brief=False,
    ),
    Figure(
        "prompt_tokens", "count", "Tokens of the prompt",
        _timing(lambda timing: timing.prompt_tokens),
    ),
    Figure(
        "load_ns", "ns", "Load", _timing(lambda timing: timing.load_ns), middle, Place.PHASES,
        tip="As the program reports it.",
    ),
    Figure(
        "prompt_eval_ns", "ns", "Prompt eval", _timing(lambda timing: timing.prompt_eval_ns),
        middle, Place.PHASES, tip="Reading the prompt (prefill).",
    ),
    Figure(
        "eval_ns", "ns", "Eval", _timing(lambda timing: timing.eval_ns), middle, Place.PHASES,
        tip="Generating tokens (decode).",
    ),
    Figure(
        "end_to_end_ns", "ns", "End to end", _job(lambda job: job.wall_ns), middle, Place.PHASES,
        tip="From start to end of the program.", column="wall_ns", may_gate=True, better="lower",
        is_compared=True, has_loading=True,
    ),
    PEAK_MEMORY,
    Figure(
        "read_bytes_per_token", "bytes", "Storage read per token",
        _evidence(lambda evidence: evidence.read_bytes_per_token), middle, Place.PHASES,
    ),
    Figure(
        "instructions_per_cycle", "number", "Instructions per cycle",
        _evidence(lambda evidence: evidence.instructions_per_cycle), middle,
    ),
    Figure(
        "dram_bytes_per_token", "bytes", "Bytes from DRAM per token (estimate)",
        _evidence(lambda evidence: evidence.dram_bytes_per_token), middle,
        short="DRAM bytes per token",
    ),
    TTFT,
    TOKEN,
    # Single tokens inside a trial; intervals over trials do not include their spread.
    Figure(
        "token_p10_ns", "ns", "p10", _timing(_tenth), estimate, Place.INSIDE, "p10 token",
        column="p10_ns", may_gate=True, gate="tpot_p10_ms", needs_token_times=True,
    ),
    Figure(
        "token_p50_ns", "ns", "p50", _timing(lambda timing: timing.p50_ns), estimate,
        Place.INSIDE, "p50 token", column="p50_ns", may_gate=True, gate="tpot_p50_ms",
        better="lower", is_compared=True, needs_token_times=True,
    ),
    Figure(
        "token_p90_ns", "ns", "p90", _timing(lambda timing: timing.p90_ns), estimate,
        Place.INSIDE, "p90 token", column="p90_ns", may_gate=True, gate="tpot_p90_ms",
        better="lower", is_compared=True, needs_token_times=True,
    ),
    Figure("token_p99_ns", "ns", "p99", _timing(lambda timing: timing.p99_ns), column="p99_ns"),
    RATE,
    PREFILL,
    Figure(
        "joules", "J", "Energy of a trial", _energy(lambda energy: energy.joules), estimate,
        Place.ENERGY,
    ),
    JOULES_PER_TOKEN,
    Figure(
        "net_joules_per_prompt_token", "J", "Net energy per prompt token",
        _energy(lambda energy: energy.prompt.joules_per_token if energy.prompt else None),
        estimate, Place.ENERGY, may_gate=True, better="lower",
        tip="Above the power of the idle board, while the prompt is read.",
    ),
    NET_JOULES_PER_TOKEN,
    Figure(
        "mean_watts", "W", "Mean power", _energy(lambda energy: energy.mean_watts), estimate,
        Place.ENERGY, may_gate=True,
    ),
    Figure(
        "peak_watts", "W", "Peak power", _energy(lambda energy: energy.peak_watts), greatest,
        Place.ENERGY,
    ),
    Figure(
        "start_temperature_mc", "mC", "Temperature at the start",
        _evidence(lambda evidence: evidence.start_temperature_mc),
    ),
    Figure(
        "highest_temperature_mc", "mC", "Highest temperature",
        _evidence(lambda evidence: evidence.highest_temperature_mc),
    ),
)  # fmt: skip


#: Objective of a search -> the figure that judges it.
OBJECTIVES: dict[str, TrialFigure] = {
    "decode": RATE,
    "prefill": PREFILL,
    "memory": PEAK_MEMORY,
    "energy": JOULES_PER_TOKEN,
}


def objective_value(objective: str, trial: TrialRecord) -> float | None:
    """Return the logarithm of a trial's figure, greater for better; None if it has none above 0."""
    figure = OBJECTIVES[objective]
    value = figure.of(trial)
    if not value or value < 0:
        return None
    return math.log(value) if figure.better == "higher" else -math.log(value)
