"""Probes of boards are kept, found again and compared."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from labctl.board.probes import compare_probes, latest_probe, probe_folder, save_probe
from labctl.records import BoardFacts, BoardProbe, Execution, MemoryRate, StorageRate

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
    assert not emulated.bounds_boards
    found = latest_probe(tmp_path, "one", Execution.BOARD)
    assert found is not None
    assert found.taken == WHEN
    assert latest_probe(tmp_path, "one") == emulated


@pytest.mark.parametrize("content", ["", "{", '{"schema_version": 2}'])
def test_a_probe_that_cannot_be_read_counts_as_absent(tmp_path: Path, content: str) -> None:
    save_probe(tmp_path, _probe())
    (probe_folder(tmp_path, "one") / "probe-20300101T000000.000000Z.json").write_text(content)
    found = latest_probe(tmp_path, "one")
    assert found is not None
    assert found.taken == WHEN


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
        before,
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
    slower = compare_probes(_probe(storage=(_mapping(1, uncached=False),)), probe)
    assert slower.slower == ()
