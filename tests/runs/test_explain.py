"""Why a number is what it is, as a person reads it."""

from dataclasses import replace
from typing import Any

import pytest
from records_made import model, timing

from labctl.engines import MemoryNeed
from labctl.records import BoardFacts, Execution, TrialEvidence
from labctl.runs.explain import Ground, explain
from labctl.runs.rates import Rates

GB = 10**9
RATES = Rates(5.0 * GB, 178e6, "the probe of 2026-11-20")
Q2 = model("q2_k", "Q2_K", tensor_bytes=3_180_000_000, bytes_per_token=3_180_000_000)


def ground(**changes: Any) -> Ground:
    facts = BoardFacts(
        execution=Execution.BOARD,
        machine="aarch64",
        kernel="5.10",
        boot_id="b",
        memory_total_bytes=2 * GB,
        memory_available_bytes=round(1.6 * GB),
    )
    return replace(Ground(Q2, MemoryNeed(3_180_000_000, 0, None, None), facts, RATES), **changes)


def evidence(**changes: Any) -> TrialEvidence:
    return TrialEvidence(**{"samples": 100, "read_bytes_per_token": 3_180_000_000, **changes})


SLOW = timing([18_180] * 4, mean_ns=18_180_000_000)
FAST = timing([200] * 4, mean_ns=200_000_000)
SMALL = model("small", "Q4_K", bytes_per_token=630_000_000, parameters=1_200_000_000)
FITS = MemoryNeed(630_000_000, 0, None, None)


def test_a_model_that_does_not_fit_is_bound_by_storage() -> None:
    found = explain(SLOW, ground(), evidence())
    assert found is not None
    assert (found.kind, round(found.share, 2)) == ("storage", 0.98)
    assert found.sentence == (
        "storage-bound: every token re-reads 3.18 GB at 175 MB/s, 98% of this board's 178 MB/s"
        " (the probe of 2026-11-20); with 3.58 GB of RAM it would not be storage-bound"
    )


def test_where_nobody_counts_reads_the_sentence_says_so() -> None:
    found = explain(SLOW, ground(), None)
    assert found is not None
    assert found.kind == "storage"
    assert "told from what fits in memory" in found.sentence


def test_what_is_seen_not_to_be_read_is_not_blamed_on_storage() -> None:
    found = explain(SLOW, ground(), evidence(read_bytes_per_token=1000))
    assert found is not None
    assert found.kind is None
    assert found.storage_bytes_per_token == 1000


def test_a_model_that_fits_is_held_against_dram() -> None:
    found = explain(FAST, ground(model=SMALL, need=FITS), evidence(read_bytes_per_token=0))
    assert found is not None
    assert (found.kind, round(found.share, 2)) == ("dram", 0.63)
    assert found.sentence.startswith("DRAM-bound: every token moves 630 MB at 3.15 GB/s, 63%")


def test_arithmetic_is_suspected_until_its_ceiling_is_measured() -> None:
    slow = timing([984] * 4, mean_ns=984_000_000)
    resident = ground(model=SMALL, need=FITS)
    found = explain(slow, resident, evidence(read_bytes_per_token=0))
    assert found is not None
    assert found.kind is None
    assert "most likely arithmetic" in found.sentence
    measured = replace(RATES, weights={"Q4_K": 1.3e9})
    known = explain(slow, replace(resident, rates=measured), evidence(read_bytes_per_token=0))
    assert known is not None
    assert (known.kind, round(known.share, 2)) == ("compute", 0.94)


def test_a_clock_that_was_held_back_is_told() -> None:
    found = explain(SLOW, ground(), evidence(limited=True))
    assert found is not None
    assert "held its clock back" in found.sentence


@pytest.mark.parametrize("execution", [Execution.EMULATED, Execution.NATIVE_HOST])
def test_what_did_not_run_on_a_board_is_not_judged(execution: Execution) -> None:
    facts = ground().facts.model_copy(update={"execution": execution})
    assert explain(SLOW, ground(facts=facts), evidence()) is None
