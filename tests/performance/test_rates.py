"""What is known of a board's speed, and where from."""

from datetime import UTC, datetime
from typing import Any

import pytest

from labctl.config.target import Expectations
from labctl.performance.prediction import Rate, Rates, rates_of
from labctl.records.board import BoardFacts, Execution
from labctl.records.probe import BoardProbe, ComputeRate, MemoryRate, StorageRate

PROBE = "the probe of 2026-11-20"
EXPECTED = Expectations(
    cores=4, storage_read_bytes_per_s=175e6, dram_read_bytes_per_s=5.5e9, source="a report"
)


def probe(**parts: Any) -> BoardProbe:
    facts = BoardFacts(execution=Execution.BOARD, machine="aarch64", kernel="5.10", boot_id="b")
    return BoardProbe.model_validate(
        {
            "board": "one",
            "taken": datetime(2026, 11, 20, tzinfo=UTC),
            "agent_version": "1",
            "labctl_version": "0",
            "facts": facts,
            **parts,
        }
    )


def read(pattern: str, rate: int, *, uncached: bool = True) -> StorageRate:
    return StorageRate.model_validate(
        {
            "pattern": pattern,
            "method": "dropped",
            "threads": 1,
            "block_bytes": 4096,
            "bytes_read": 1 << 20,
            "bytes_per_second": rate,
            "uncached": uncached,
        }
    )


def decoding(tokens: float, **changes: Any) -> ComputeRate:
    values = {
        "quantization": "Q4_K", "threads": 4, "parameters": 1_000_000_000,
        "bytes_per_token": 600_000_000, "eval_tokens_per_second": tokens,
        "prompt_tokens_per_second": 3 * tokens, "model_file": "small.gguf",
    }  # fmt: skip
    return ComputeRate.model_validate({**values, **changes})


MEMORY = tuple(
    MemoryRate(threads=threads, bytes_per_second=rate)
    for threads, rate in ((1, 2 * 10**9), (2, 4 * 10**9), (4, 5 * 10**9))
)


def test_what_was_not_measured_is_expected_and_called_so() -> None:
    assert rates_of([], None) is None
    found = rates_of([probe(memory=MEMORY)], EXPECTED)
    assert found is not None
    assert found.storage is not None
    assert found.storage.text == "the expected 175 MB/s (the target's expectations)"
    dram = found.dram()
    assert dram is not None
    assert dram.text == "this board's 5.00 GB/s (the probe of 2026-11-20)"


def test_only_an_uncached_mapping_or_else_an_uncached_file_bounds() -> None:
    cached = read("mapping", 9 * 10**9, uncached=False)
    found = rates_of([probe(storage=(cached, read("sequential", 190)))], EXPECTED)
    assert found is not None
    assert found.storage is not None
    assert found.storage.value == 190
    both = rates_of([probe(storage=(read("sequential", 190), read("mapping", 178)))], None)
    assert both is not None
    assert both.storage is not None
    assert both.storage.value == 178


@pytest.mark.parametrize(("threads", "rate"), [(1, 2), (2, 4), (3, 5), (4, 5), (8, 5), (None, 5)])
def test_memory_is_bounded_by_what_so_many_threads_read(threads: int | None, rate: int) -> None:
    found = rates_of([probe(memory=MEMORY)], None)
    assert found is not None
    dram = found.dram(threads)
    assert dram is not None
    assert dram.value == rate * 10**9


def test_threads_that_nobody_measured_are_held_against_what_is_expected() -> None:
    rates = Rates(memory={None: Rate(5e9, "expected", measured=False)})
    assert rates.dram(4) == rates.dram() == rates.memory[None]
    assert Rates().dram(4) is None


def test_arithmetic_is_in_bytes_of_weights_the_faster_model_counts() -> None:
    found = rates_of([probe(memory=MEMORY, compute=(decoding(1.0), decoding(1.5)))], None)
    assert found is not None
    assert found.decode["Q4_K", 4].value == 0.9e9
    assert found.prompt["Q4_K", 4].value == 2.7e9
    assert found.decode["Q4_K", 4].source == "the probe of 2026-11-20, small.gguf"


def test_a_model_that_decodes_as_fast_as_memory_is_read_says_nothing_of_arithmetic() -> None:
    found = rates_of([probe(memory=MEMORY, compute=(decoding(6.0),))], None)
    assert found is not None
    assert found.decode == {}
    assert found.prompt["Q4_K", 4].value == 18 * 600e6


def test_more_threads_are_not_bounded_by_a_worse_measurement() -> None:
    rates = Rates(memory={1: Rate(9.2e9, PROBE), 2: Rate(8.4e9, PROBE), 4: Rate(9.0e9, PROBE)})
    assert rates.dram(2) == rates.dram(4) == rates.memory[1]


def test_arithmetic_that_had_to_share_the_cpus_is_no_ceiling() -> None:
    disturbed = probe(memory=MEMORY, compute=(decoding(1.0, others_share=1.7),))
    found = rates_of([disturbed], None)
    assert found is not None
    assert (found.decode, found.prompt) == ({}, {})
    quiet = rates_of([probe(memory=MEMORY, compute=(decoding(1.0, others_share=0.05),))], None)
    assert quiet is not None
    assert list(quiet.decode) == [("Q4_K", 4)]


def test_each_rate_is_that_of_the_newest_probe_which_has_it() -> None:
    """Nobody names the model, or frees the space, every time."""
    old = probe(memory=MEMORY, storage=(read("mapping", 178),), compute=(decoding(1.0),))
    new = probe(
        memory=(MemoryRate(threads=4, bytes_per_second=4 * 10**9),),
        storage=(read("mapping", 9, uncached=False), read("sequential", 190)),
        taken=datetime(2026, 11, 21, tzinfo=UTC),
    )
    found = rates_of([new, old], EXPECTED)
    assert found is not None
    assert found.memory == {4: Rate(4e9, "the probe of 2026-11-21")}
    assert found.storage == Rate(178, PROBE)
    assert found.decode["Q4_K", 4].source == f"{PROBE}, small.gguf"
    newest = probe(compute=(decoding(0.5),), taken=datetime(2026, 11, 22, tzinfo=UTC))
    again = rates_of([newest, new, old], None)
    assert again is not None
    assert again.decode["Q4_K", 4].value == 0.3e9  # the board got slower since
