"""Explain a result: the bound that limits it, and how close the trial came to it.

Each bound needs its own time per token: storage for repeated reads, DRAM for weights and KV cache,
arithmetic for the weights. The nearest bound has the largest share of the measured time. It limits
the result if that share is large enough; above 100 %, its rate must be wrong.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from labctl.performance.prediction import (
    NEAR,
    ModelWorkload,
    Rate,
    Rates,
    memory_clock_doubt,
)
from labctl.records.board import BoardFacts, Execution
from labctl.records.timing import TimingRecord
from labctl.records.trial import TelemetrySummary, TrialBound
from labctl.results.telemetry import LOUD, RECLAIMING, STOLEN
from labctl.stats.roofline import UNSURE, surely_fits
from labctl.units import size

#: No trial is faster than its bound: above this, the bound's rate is too low, not just noisy.
_WRONG_FROM = 1.1
#: A bound also explains the time if its share is less than this below the largest share: a probe's
#: rates are not more precise.
_AS_MUCH = 0.15
#: Mention a bound only above this share.
_WORTH_A_WORD = 0.1
#: Relative difference up to which repeated reads count as reads of all weights.
_ALL = 0.05
#: Names of bounds for people.
NAMES = {"storage": "storage", "dram": "DRAM", "compute": "arithmetic"}


@dataclass(frozen=True)
class Baseline:
    """Inputs of an explanation: the work in a board's memory, and the board's rates."""

    work: ModelWorkload
    facts: BoardFacts
    rates: Rates

    @property
    def available_bytes(self) -> int | None:
        """Memory for the work; None if the board does not report it."""
        return self.facts.memory_available_bytes or self.facts.memory_total_bytes

    @property
    def fits(self) -> bool | None:
        """True if the estimate says that no weight must be read twice; None without an estimate."""
        there = self.available_bytes
        return None if there is None else self.work.need.resident_bytes <= there

    @property
    def surely_fits(self) -> bool | None:
        """True if :attr:`fits` holds even if the estimate is too low."""
        there = self.available_bytes
        return None if there is None else surely_fits(self.work.need.resident_bytes, there)


@dataclass(frozen=True)
class _Bound:
    """A bound's share of the measured time, with the words for a sentence."""

    kind: Literal["storage", "dram", "compute"]
    share: float
    rate: Rate
    head: str
    moves: str
    bytes_per_token: int
    bytes_per_second: float
    tail: str = ""

    @property
    def text(self) -> str:
        """``98% of this board's 178 MB/s (the probe of 2026-11-20)``."""
        return f"{self.share:.0%} of {self.rate.text}"


def explain(
    timing: TimingRecord | None, baseline: Baseline, evidence: TelemetrySummary | None
) -> TrialBound | None:
    """Return the bound of a trial's tokens, with one sentence about it.

    None if the trial did not run on a board, generated nothing, or has no known bound.
    """
    if baseline.facts.execution is not Execution.BOARD:
        return None
    if timing is None or not timing.mean_ns:
        return None
    read = evidence.read_bytes_per_token if evidence else None
    seconds = timing.mean_ns / 1e9
    found = list(_bounds(baseline, seconds, _mean_position(timing), read, evidence))
    if not found:
        return None
    nearest = max(found, key=lambda bound: bound.share)
    if nearest.share > _WRONG_FROM:
        kind = None
        sentence = (
            f"faster than {NAMES[nearest.kind]} should allow: {nearest.moves}, {nearest.text};"
            " that rate is too low: `labctl boards probe` measures it"
        )
    elif nearest.share >= NEAR:
        kind = nearest.kind
        sentence = f"{nearest.head}: {nearest.moves}, {nearest.text}{nearest.tail}"
        others = nearest_bounds({bound.kind: bound.share for bound in found})[1:]
        sentence += "".join(
            f"; {NAMES[bound.kind]} explains nearly as much: {bound.moves}, {bound.text}"
            for bound in found
            if bound.kind in others
        )
    else:
        kind = None
        sentence = _held_by_none(found, nearest, baseline, evidence)
    predicted = baseline.work.bytes_at(_mean_position(timing))
    if evidence and (text := _counted(evidence, predicted)):
        sentence += f"; {text}"
    if clock := _memory_clock(baseline, evidence):
        sentence += f"; {clock}"
    if evidence and evidence.limited:
        sentence += "; the board lowered its clock meanwhile"
    return TrialBound(
        kind=kind,
        share=nearest.share,
        shares={bound.kind: bound.share for bound in found},
        bytes_per_token=nearest.bytes_per_token,
        bytes_per_second=nearest.bytes_per_second,
        ceiling_bytes_per_second=nearest.rate.value,
        storage_bytes_per_token=read,
        measured=nearest.rate.measured,
        sentence=sentence,
    )


def _counted(evidence: TelemetrySummary, predicted: int) -> str:
    """Describe what the CPU's counters tell; empty without counters."""
    found = []
    if evidence.instructions_per_cycle is not None:
        found.append(f"{evidence.instructions_per_cycle:.2f} instructions per cycle")
    if evidence.dram_bytes_per_token is not None:
        read = size(evidence.dram_bytes_per_token)
        found.append(f"about {read} a token from DRAM (estimate; predicted {size(predicted)})")
    if found and evidence.counted_permille is not None:
        found.append(f"counted {evidence.counted_permille / 1000:.0%} of the time")
    return f"counted: {', '.join(found)}" if found else ""


def _memory_clock(baseline: Baseline, evidence: TelemetrySummary | None) -> str | None:
    """Describe the memory's clock during the trial; None if nothing is known about it."""
    clock = baseline.facts.memory_clock
    hz = evidence.memory_hz if evidence else None
    if clock is None or hz is None:
        return memory_clock_doubt(baseline.facts, baseline.rates)
    highest = clock.highest_hz or clock.max_hz
    of = f" of {highest / 1e6:,.0f}" if highest else ""
    return f"DRAM at {hz / 1e6:,.0f}{of} MHz"


def nearest_bounds(shares: Mapping[str, float]) -> list[str]:
    """Return the bounds that explain a time, the nearest first; none if no share is large enough.

    Several bounds explain it if their shares differ by less than the uncertainty of rates.
    """
    ordered = sorted(shares, key=lambda kind: -shares[kind])
    least = max(NEAR, shares[ordered[0]] - _AS_MUCH) if ordered else NEAR
    return [kind for kind in ordered if shares[kind] >= least]


def _mean_position(timing: TimingRecord) -> float:
    """Return the mean number of positions before a generated token."""
    for test in timing.tests:
        if test.generated_tokens:
            return test.depth + test.prompt_tokens + test.generated_tokens / 2
    return (timing.prompt_tokens or 0) + (timing.generated_tokens or 0) / 2


def _bounds(
    baseline: Baseline,
    seconds: float,
    position: float,
    read: int | None,
    evidence: TelemetrySummary | None,
) -> Iterator[_Bound]:
    work, rates = baseline.work, baseline.rates
    weights = work.bytes_per_token
    again = weights if read is None and baseline.surely_fits is False else read
    if again and rates.storage:
        speed = again / seconds
        share = speed / rates.storage.value
        # Drop a guess that the measurement contradicts; a counted value stays.
        if read is not None or share <= _WRONG_FROM:
            yield _Bound(
                "storage",
                share,
                rates.storage,
                "storage-bound",
                f"every token {_reads(again, weights)} at {size(speed)}/s",
                weights,
                speed,
                _enough(baseline, evidence, counted=read is not None),
            )
    moved = weights + work.kv_bytes(position)
    speed = moved / seconds
    moves = f"every token moves {size(moved)} at {size(speed)}/s"
    if dram := rates.dram(work.threads):
        yield _Bound("dram", speed / dram.value, dram, "DRAM-bound", moves, moved, speed)
    quantization = work.model.quantization or ""
    if decode := rates.decode.get((quantization, work.threads)):
        head = f"bound by the arithmetic of {quantization} weights"
        goes = f"every token goes through {size(weights)} at {size(weights / seconds)}/s"
        share = weights / seconds / decode.value
        yield _Bound("compute", share, decode, head, goes, weights, weights / seconds)


def _reads(read: int, weights: int) -> str:
    """Describe the share of its weights that a token reads from storage."""
    if read < weights * (1 - _ALL):
        return f"re-reads {size(read)} of its {size(weights)}"
    if read > weights * (1 + _ALL):
        return f"reads {size(read)}, more than its {size(weights)},"
    return f"re-reads {size(read)}"


def _enough(baseline: Baseline, evidence: TelemetrySummary | None, *, counted: bool) -> str:
    """Return a text with the memory that would avoid repeated reads."""
    there, total = baseline.available_bytes, baseline.facts.memory_total_bytes
    need = baseline.work.need
    text = ""
    if baseline.surely_fits is False and there is not None and total is not None:
        parts = (need.kv_bytes, need.compute_bytes, baseline.facts.memory_available_bytes)
        least = "at least " if None in parts else ""
        needed = size(need.resident_bytes * (1 + UNSURE) + total - there)
        text = f"; with {least}{needed} of RAM it would not be storage-bound"
    elif baseline.fits:
        text = f"; its {size(need.resident_bytes)} should fit in the {size(there)} that were free"
        least_left = evidence.least_available_bytes if evidence else None
        if least_left is not None:
            text += f", of which {size(least_left)} were left at the least"
    if not counted:
        text += " (reads were not counted: inferred from the memory size)"
    return text


def _held_by_none(
    found: list[_Bound], nearest: _Bound, baseline: Baseline, evidence: TelemetrySummary | None
) -> str:
    """Explain a result that is not close to any measured bound."""
    worth = sorted(found, key=lambda bound: -bound.share)
    worth = [bound for bound in worth if bound.share >= _WORTH_A_WORD or bound is nearest]
    names = " or ".join(NAMES[bound.kind] for bound in worth)
    shares = "; ".join(f"{bound.moves}, {bound.text}" for bound in worth)
    reasons = list(_reasons(baseline, evidence))
    unmeasured = all(bound.kind != "compute" for bound in found)
    if not reasons and unmeasured and nearest.kind == "dram":
        threads = f" with {baseline.work.threads} threads" if baseline.work.threads else ""
        weights = f"{baseline.work.model.quantization} weights{threads}"
        reasons.append(f"most likely by arithmetic, whose rate for {weights} was not measured")
    why = "".join(f"; {reason}" for reason in reasons)
    alone = " alone" if nearest.share >= NEAR / 2 else ""
    return f"not bound by {names}{alone}: {shares}{why}"


def _reasons(baseline: Baseline, evidence: TelemetrySummary | None) -> Iterator[str]:
    """Yield the other known reasons for lost time."""
    read = evidence.read_bytes_per_token if evidence else None
    if read is None and baseline.surely_fits is False:
        do = "may" if baseline.fits else "do"
        yield f"its weights {do} not fit in memory, and repeated reads were not counted"
    elif read and read >= _ALL * baseline.work.bytes_per_token and not baseline.rates.storage:
        yield f"it read {size(read)} for each from storage, whose speed was not measured"
    others = evidence.others_share if evidence else None
    if others is not None and others > LOUD:
        yield f"everything else used {others:.0%} of a CPU"
    reclaim = evidence.reclaim_share if evidence else None
    if reclaim is not None and reclaim >= RECLAIMING:
        yield f"the kernel used {reclaim:.0%} of a CPU to free memory for reads"
    stolen = evidence.steal_share if evidence else None
    if stolen is not None and stolen > STOLEN:
        yield f"a hypervisor took {stolen:.0%} of a CPU"
