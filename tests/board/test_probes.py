"""Probes of boards are kept, found again and compared."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from labctl.board.probe_files import (
    compare_probes,
    last_probes,
    latest_probe,
    probe_folder,
    save_probe,
)
from labctl.errors import ConfigError
from labctl.records.board import BoardFacts, Execution
from labctl.records.probe import BoardProbe, ComputeRate, MemoryRate, StorageRate

WHEN = datetime(2026, 10, 3, 12, 0, tzinfo=UTC)


def _probe(
    taken: datetime = WHEN, execution: Execution = Execution.BOARD, **parts: object
) -> BoardProbe:
    facts = BoardFacts(execution=execution, machine="aarch64", kernel="5.10", boot_id="b")
    return BoardProbe.model_validate(
        {
            "board": "one",
            "taken": taken,
            "agent_version": "1",
            "labctl_version": "0",
            "facts": facts,
            **parts,
        }
    )


def _mapping(rate: int, *, uncached: bool | None = True, threads: int = 4) -> StorageRate:
    return StorageRate(
        pattern="mapping",
        method="dropped",
        threads=threads,
        block_bytes=4096,
        bytes_read=1 << 20,
        bytes_per_second=rate,
        uncached=uncached,
    )


def test_a_board_without_a_probe_has_none(tmp_path: Path) -> None:
    assert latest_probe(tmp_path, "one") is None


def test_the_latest_probe_is_found(tmp_path: Path) -> None:
    newest = _probe(
        WHEN + timedelta(seconds=1), memory=(MemoryRate(threads=1, bytes_per_second=7),)
    )
    save_probe(tmp_path, newest)
    save_probe(tmp_path, _probe())
    assert latest_probe(tmp_path, "one") == newest
    assert latest_probe(tmp_path, "two") is None


def test_a_real_board_is_never_bound_by_its_stand_in(tmp_path: Path) -> None:
    save_probe(tmp_path, _probe())
    emulated = _probe(WHEN + timedelta(days=1), Execution.EMULATED)
    save_probe(tmp_path, emulated)
    found = latest_probe(tmp_path, "one", Execution.BOARD)
    assert found is not None
    assert found.taken == WHEN
    assert latest_probe(tmp_path, "one") == emulated


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"schema_version": 1}', '{"schema_version": "3"}']
)
def test_a_probe_that_cannot_be_read_counts_as_absent(tmp_path: Path, content: str) -> None:
    save_probe(tmp_path, _probe())
    (probe_folder(tmp_path, "one") / "probe-20300101T000000.000000Z.json").write_text(content)
    found = latest_probe(tmp_path, "one")
    assert found is not None
    assert found.taken == WHEN


def test_a_probe_of_a_newer_labctl_is_refused_by_name(tmp_path: Path) -> None:
    save_probe(tmp_path, _probe())
    newer = probe_folder(tmp_path, "one") / "probe-20300101T000000.000000Z.json"
    newer.write_text('{"schema_version": 3}')
    with pytest.raises(ConfigError, match=r"written by a newer labctl, schema_version 3; this one"):
        latest_probe(tmp_path, "one")


def test_what_got_slower_by_more_than_the_margin_is_flagged() -> None:
    before = _probe(
        memory=(
            MemoryRate(threads=1, bytes_per_second=1000),
            MemoryRate(threads=4, bytes_per_second=4000),
        ),
        storage=(_mapping(178),),
    )
    now = compare_probes(
        _probe(
            WHEN + timedelta(days=1),
            memory=(
                MemoryRate(threads=1, bytes_per_second=900),
                MemoryRate(threads=4, bytes_per_second=3000),
            ),
            storage=(_mapping(80),),
        ),
        [before],
    )
    assert [slow.what for slow in now.slower] == [
        "memory read, 4 threads",
        "storage read, mapping (dropped, 4096 bytes), 4 threads",
    ]
    assert (now.slower[0].before, now.slower[0].now) == (4000, 3000)
    assert now.compared_with == WHEN


def test_a_cached_read_is_no_bandwidth_of_storage() -> None:
    probe = _probe(
        storage=(_mapping(9000, uncached=False), _mapping(8000, uncached=None), _mapping(178))
    )
    assert probe.storage_bytes_per_second("mapping") == 178
    assert probe.storage_bytes_per_second("random") is None
    slower = compare_probes(_probe(storage=(_mapping(1, uncached=False),)), [probe])
    assert slower.slower == ()


def _memory(rate: int) -> BoardProbe:
    return _probe(memory=(MemoryRate(threads=4, bytes_per_second=rate),))


def _slower(now: int, *earlier: int) -> bool:
    return bool(compare_probes(_memory(now), [_memory(rate) for rate in earlier]).slower)


def test_the_first_probe_has_nothing_to_be_compared_with() -> None:
    first = compare_probes(_memory(1), [])
    assert (first.slower, first.compared_with) == ((), None)


def test_another_agent_may_measure_otherwise() -> None:
    before = _memory(1000).model_copy(update={"agent_version": "0"})
    found = compare_probes(_memory(100), [before])
    assert (found.slower, found.compared_with) == ((), None)


def test_what_always_scatters_has_to_fall_further() -> None:
    steady, scattering = (1000, 1005, 995, 1000), (1000, 800, 1200, 1050, 900)
    assert _slower(800, *steady)
    assert not _slower(860, *steady)
    assert not _slower(700, *scattering)
    assert _slower(490, *scattering)  # half is slower, however much it scatters
    assert _slower(800, 1000, 1300)  # two tell nothing of their spread


def test_one_odd_probe_is_no_measure() -> None:
    assert not _slower(1000, 2000, 1000, 1010, 990)
    assert _slower(700, 100, 1000, 1010, 990)


def test_only_the_last_few_probes_of_the_execution_count(tmp_path: Path) -> None:
    for day in range(7):
        save_probe(tmp_path, _probe(WHEN + timedelta(days=day)))
    save_probe(tmp_path, _probe(WHEN + timedelta(days=9), Execution.EMULATED))
    found = last_probes(tmp_path, "one", Execution.BOARD)
    assert [probe.taken.day for probe in found] == [9, 8, 7, 6, 5]


@pytest.mark.parametrize(("size", "flagged"), [(256 << 20, True), (1 << 30, False)])
def test_a_larger_file_is_not_a_slower_storage(size: int, flagged: bool) -> None:
    quick = _probe(storage=(_mapping(178),), storage_file_bytes=256 << 20)
    now = _probe(storage=(_mapping(80),), storage_file_bytes=size)
    assert bool(compare_probes(now, [quick]).slower) is flagged


def test_arithmetic_is_compared_for_the_same_model() -> None:
    def decoding(tokens: float, model: str = "small.gguf") -> BoardProbe:
        rate = ComputeRate(
            quantization="Q4_K", threads=4, parameters=10, bytes_per_token=10**9,
            eval_tokens_per_second=tokens, model_file=model,
        )  # fmt: skip
        return _probe(compute=(rate,))

    (slow,) = compare_probes(decoding(1), [decoding(2)]).slower
    assert (slow.what, slow.before, slow.now) == (
        "decode, Q4_K weights of small.gguf, 4 threads", 2 * 10**9, 10**9,
    )  # fmt: skip
    assert compare_probes(decoding(1), [decoding(2, "other.gguf")]).slower == ()
