"""Why a number is what it is, as a person reads it: every kind of sentence, whole."""

from dataclasses import replace
from typing import Any

import pytest
from records_made import model, timing

from labctl.engines.base import MemoryNeed
from labctl.gguf.adapter import adapted
from labctl.performance.bottleneck import Baseline, explain
from labctl.performance.prediction import ModelWorkload, Rate, Rates, memory_clock_doubt
from labctl.records.board import BoardFacts, Execution
from labctl.records.telemetry import DeviceClock
from labctl.records.timing import BenchTest, TimingRecord
from labctl.records.trial import AdapterIdentity, TelemetrySummary, TrialBound

GB = 10**9
PROBE = "the probe of 2026-11-20"
RATES = Rates(Rate(178e6, PROBE), {1: Rate(2.0 * GB, PROBE), 4: Rate(5.0 * GB, PROBE)})
FACTS = BoardFacts(
    execution=Execution.BOARD,
    machine="aarch64",
    kernel="5.10",
    boot_id="b",
    memory_total_bytes=2 * GB,
    memory_available_bytes=round(1.6 * GB),
)
LARGE = ModelWorkload(
    model("q2_k", "Q2_K", tensor_bytes=3_180_000_000, bytes_per_token=3_180_000_000),
    MemoryNeed(3_180_000_000, 0, 0, 0),
    threads=4,
)
SMALL = ModelWorkload(
    model("small", "Q4_K", bytes_per_token=630_000_000, parameters=1_200_000_000),
    MemoryNeed(630_000_000, 0, 0, 0, kv_bytes_per_position=100_000),
    threads=4,
)


def baseline(work: ModelWorkload = LARGE, rates: Rates = RATES, **facts: Any) -> Baseline:
    return Baseline(work, FACTS.model_copy(update=facts), rates)


def seen(read: int | None = 0, **changes: Any) -> TelemetrySummary:
    return TelemetrySummary(samples=100, read_bytes_per_token=read, **changes)


def took(seconds: float) -> TimingRecord:
    return timing(
        [seconds * 1e3] * 4, mean_ns=round(seconds * 1e9), prompt_tokens=None, generated_tokens=None
    )


def told(
    seconds: float | TimingRecord, against: Baseline, evidence: TelemetrySummary | None
) -> TrialBound:
    measured = seconds if isinstance(seconds, TimingRecord) else took(seconds)
    found = explain(measured, against, evidence)
    assert found is not None
    return found


def test_a_model_that_does_not_fit_is_bound_by_storage() -> None:
    found = told(18.18, baseline(), seen(3_180_000_000))
    assert (found.kind, round(found.share, 2)) == ("storage", 0.98)
    assert {kind: round(share, 3) for kind, share in found.shares.items()} == {
        "storage": 0.983, "dram": 0.035,
    }  # fmt: skip
    assert found.sentence == (
        "storage-bound: every token re-reads 3.18 GB at 175 MB/s, 98% of this board's 178 MB/s"
        " (the probe of 2026-11-20); with 4.06 GB of RAM it would not be storage-bound"
    )


def test_where_nobody_counts_reads_the_sentence_says_so() -> None:
    unsure = replace(LARGE, need=MemoryNeed(3_180_000_000, 0, None, None))
    found = told(18.18, baseline(unsure), None)
    assert found.kind == "storage"
    assert found.sentence.endswith(
        "; with at least 4.06 GB of RAM it would not be storage-bound (reads were"
        " not counted: inferred from the memory size)"
    )


def test_what_others_take_of_the_memory_is_needed_too() -> None:
    found = told(18.18, baseline(memory_available_bytes=None), seen(3_180_000_000))
    assert found.sentence.endswith("; with at least 3.66 GB of RAM it would not be storage-bound")
    silent = baseline(memory_available_bytes=None, memory_total_bytes=None)
    assert told(18.18, silent, seen(3_180_000_000)).sentence.endswith("(the probe of 2026-11-20)")


def test_near_the_border_the_memory_that_surely_is_enough_is_told() -> None:
    """By the estimate it fits in the 3.3 GB that are free; it was read again all the same."""
    near = baseline(memory_total_bytes=4 * GB, memory_available_bytes=3_300_000_000)
    assert (near.fits, near.surely_fits) == (True, False)
    found = told(18.18, near, seen(3_180_000_000))
    assert found.sentence.endswith("; with 4.36 GB of RAM it would not be storage-bound")
    unseen = told(18.18, near, None)
    assert unseen.kind == "storage"
    assert told(0.9, near, None).kind == "dram"


def test_a_part_that_is_read_again_counts_for_what_it_takes() -> None:
    """An eighth of the weights from storage takes longer than all of them from memory."""
    found = told(2.5, baseline(), seen(400_000_000))
    assert found.kind == "storage"
    assert found.sentence.startswith(
        "storage-bound: every token re-reads 400 MB of its 3.18 GB at 160 MB/s, 90% of"
    )
    more = told(24, baseline(), seen(4 * GB))
    assert "every token reads 4.00 GB, more than its 3.18 GB, at 167 MB/s, 94% of" in more.sentence


def test_weights_that_are_read_again_though_they_should_fit() -> None:
    found = told(3.6, baseline(SMALL), seen(630_000_000, least_available_bytes=90_000_000))
    assert found.kind == "storage"
    assert found.sentence.endswith(
        "(the probe of 2026-11-20); its 630 MB should fit in the 1.60 GB that were free, of which"
        " 90.0 MB were left at the least"
    )


def test_what_is_seen_not_to_be_read_is_not_blamed_on_storage() -> None:
    found = told(18.18, baseline(), seen(1000))
    assert found.kind is None
    assert found.storage_bytes_per_token == 1000
    assert found.sentence == (
        "not bound by DRAM: every token moves 3.18 GB at 175 MB/s, 3% of this board's 5.00 GB/s"
        " (the probe of 2026-11-20); most likely by arithmetic, whose rate for Q2_K weights with 4"
        " threads was not measured"
    )


def test_a_guess_that_is_too_slow_to_be_true_is_dropped() -> None:
    """It should not fit, and is ten times as fast as storage: so most of it did."""
    found = told(1.8, baseline(), None)
    assert found.kind is None
    assert "storage" not in found.shares
    assert found.sentence.endswith(
        "; its weights do not fit in memory, and repeated reads were not counted"
    )


def test_reads_from_a_storage_that_nobody_measured_are_told() -> None:
    unmeasured = replace(RATES, storage=None)
    found = told(18.18, baseline(rates=unmeasured), seen(3_180_000_000))
    assert found.kind is None
    assert found.sentence.endswith(
        "; it read 3.18 GB for each from storage, whose speed was not measured"
    )
    assert explain(took(18), baseline(rates=Rates()), seen(3_180_000_000)) is None


def test_a_model_that_fits_is_held_against_memory_at_its_number_of_threads() -> None:
    found = told(0.18, baseline(SMALL), seen())
    assert (found.kind, round(found.share, 2)) == ("dram", 0.70)
    assert found.sentence == (
        "DRAM-bound: every token moves 630 MB at 3.50 GB/s, 70% of this board's 5.00 GB/s"
        " (the probe of 2026-11-20)"
    )
    one = told(0.4, baseline(replace(SMALL, threads=1)), seen())
    assert (one.kind, one.ceiling_bytes_per_second) == ("dram", 2.0 * GB)


def test_the_cache_of_the_positions_before_moves_too() -> None:
    generated = timing([200] * 40, mean_ns=GB // 5, prompt_tokens=80, generated_tokens=40)
    assert told(generated, baseline(SMALL), seen()).bytes_per_token == 630_000_000 + 100 * 100_000
    tests = (
        BenchTest.of(prompt_tokens=512, generated_tokens=0, depth=0, samples_ns=(1,)),
        BenchTest.of(prompt_tokens=0, generated_tokens=128, depth=1000, samples_ns=(1,) * 5),
    )
    bench = TimingRecord(mean_ns=GB // 5, prompt_tokens=512, generated_tokens=5 * 128, tests=tests)
    assert told(bench, baseline(SMALL), seen()).bytes_per_token == 630_000_000 + 1064 * 100_000


def test_arithmetic_is_suspected_until_its_rate_is_measured() -> None:
    found = told(0.984, baseline(SMALL), seen())
    assert found.kind is None
    assert "; most likely by arithmetic" in found.sentence
    rates = replace(RATES, decode={("Q4_K", 4): Rate(0.68e9, f"{PROBE}, small.gguf")})
    known = told(0.984, baseline(SMALL, rates), seen())
    assert (known.kind, round(known.share, 2)) == ("compute", 0.94)
    assert known.sentence == (
        "bound by the arithmetic of Q4_K weights: every token goes through 630 MB at 640 MB/s,"
        " 94% of this board's 680 MB/s (the probe of 2026-11-20, small.gguf)"
    )
    other = told(0.984, baseline(replace(SMALL, threads=2), rates), seen())
    assert "compute" not in other.shares  # measured with four


def test_two_bounds_that_explain_the_time_are_both_named() -> None:
    rates = replace(RATES, decode={("Q4_K", 4): Rate(5.21e9, f"{PROBE}, small.gguf")})
    found = told(0.126, baseline(SMALL, rates), seen())
    assert (found.kind, round(found.shares["compute"], 2)) == ("dram", 0.96)
    assert found.sentence.startswith("DRAM-bound: every token moves 630 MB at 5.00 GB/s, 100% of")
    assert found.sentence.endswith(
        "; arithmetic explains nearly as much: every token goes through 630 MB at 5.00 GB/s, 96% of"
        " this board's 5.21 GB/s (the probe of 2026-11-20, small.gguf)"
    )
    far = replace(RATES, decode={("Q4_K", 4): Rate(6.3e9, PROBE)})
    assert "explains" not in told(0.126, baseline(SMALL, far), seen()).sentence


def test_what_nothing_measured_comes_near_to_is_bound_by_none_of_it() -> None:
    rates = replace(RATES, decode={("Q4_K", 4): Rate(0.68e9, PROBE)})
    found = told(2.0, baseline(SMALL, rates), seen(others_share=1.5, steal_share=0.3))
    assert found.kind is None
    assert found.sentence == (
        "not bound by arithmetic alone: every token goes through 630 MB at 315 MB/s, 46% of this"
        " board's 680 MB/s (the probe of 2026-11-20); everything else used 150% of a CPU;"
        " a hypervisor took 30% of a CPU"
    )
    freed = told(2.0, baseline(SMALL, rates), seen(reclaim_share=0.18))
    assert freed.sentence.endswith("the kernel used 18% of a CPU to free memory for reads")
    both = told(1.2, baseline(SMALL), seen(100_000_000))
    assert both.sentence.startswith(
        "not bound by storage or DRAM alone: every token re-reads 100 MB of its 630 MB at 83.3 MB/s"
    )
    assert "arithmetic" not in both.sentence


def test_a_number_above_its_bound_says_that_the_bound_is_wrong() -> None:
    found = told(0.1, baseline(SMALL), seen())
    assert (found.kind, round(found.share, 2)) == (None, 1.26)
    assert found.sentence == (
        "faster than DRAM should allow: every token moves 630 MB at 6.30 GB/s, 126% of this board's"
        " 5.00 GB/s (the probe of 2026-11-20); that rate is too low: `labctl boards probe` measures"
        " it"
    )
    assert told(0.12, baseline(SMALL), seen()).kind == "dram"  # 105 %: noise


def test_an_expectation_is_not_called_the_boards_own() -> None:
    expected = Rates(Rate(175e6, "the target's expectations", measured=False))
    found = told(18.18, baseline(rates=expected), seen(3_180_000_000))
    assert "100% of the expected 175 MB/s (the target's expectations)" in found.sentence
    assert found.measured is False
    assert told(18.18, baseline(), seen(3_180_000_000)).measured is True


def test_a_clock_that_was_held_back_is_told() -> None:
    assert told(18.18, baseline(), seen(limited=True)).sentence.endswith(
        "; the board lowered its clock meanwhile"
    )


@pytest.mark.parametrize("execution", [Execution.EMULATED, Execution.NATIVE_HOST])
def test_what_did_not_run_on_a_board_is_not_judged(execution: Execution) -> None:
    assert explain(took(18), baseline(execution=execution), seen()) is None


DMC = DeviceClock(device="dmc", governor="dmc_ondemand", highest_hz=1_560_000_000)


def test_the_clock_of_the_memory_is_named() -> None:
    found = told(0.18, baseline(SMALL, devfreq=(DMC,)), seen(memory_hz=528_000_000))
    assert found.sentence.endswith(" (the probe of 2026-11-20); DRAM at 528 of 1,560 MHz")


def test_a_memory_clock_that_is_not_visible_is_doubted_if_the_memory_is_slow() -> None:
    found = told(0.18, baseline(SMALL, devfreq=()), seen())
    assert "memory clock" not in found.sentence
    slow = Rates(memory={4: Rate(2.1 * GB, PROBE)}, expected_memory=5 * GB)
    found = told(0.4, baseline(SMALL, slow, devfreq=()), seen())
    assert found.sentence.endswith(
        "; memory clock not visible; the probe of 2026-11-20 read 2.1 of 5.0 GB/s: DRAM is probably"
        " at a low fixed clock"
    )


@pytest.mark.parametrize(
    ("clock", "rate", "doubt"),
    [
        (DMC, 5.0, None),
        (DMC, 2.0, "DRAM's governor is dmc_ondemand; the probe of 2026-11-20 read 2.0 of 5.0 GB/s"),
        (
            DMC.model_copy(update={"max_hz": 528_000_000}),
            5.0,
            "DRAM is limited to 528 of 1,560 MHz",
        ),
    ],
)
def test_a_slow_memory_is_named_before_a_run(
    clock: DeviceClock, rate: float, doubt: str | None
) -> None:
    facts = FACTS.model_copy(update={"devfreq": (clock,)})
    rates = Rates(memory={4: Rate(rate * GB, PROBE)}, expected_memory=5 * GB)
    found = memory_clock_doubt(facts, rates)
    assert found == doubt or (doubt and found and found.startswith(doubt))
    host = facts.model_copy(update={"execution": Execution.NATIVE_HOST})
    assert memory_clock_doubt(host, rates) is None


def test_the_weights_of_adapters_are_read_for_every_token() -> None:
    work = baseline(SMALL).work
    adapter = AdapterIdentity(file="x.gguf", sha256="5" * 64, tensor_bytes=9_000_000, scale=1.0)
    with_it = replace(work, model=adapted(work.model, [adapter]))
    assert with_it.bytes_per_token == work.bytes_per_token + 9_000_000
    assert with_it.bytes_at(10) == work.bytes_at(10) + 9_000_000


def test_what_was_counted_stands_beside_what_was_predicted() -> None:
    counted = {"instructions_per_cycle": 0.842, "dram_bytes_per_token": 590_000_000}
    found = told(0.18, baseline(SMALL), seen(**counted))
    assert found.sentence.endswith(
        "; counted: 0.84 instructions per cycle, about 590 MB a token from DRAM (estimate;"
        " predicted 630 MB)"
    )
    found = told(0.18, baseline(SMALL), seen(**counted, counted_permille=480))
    assert found.sentence.endswith(", counted 48% of the time")
