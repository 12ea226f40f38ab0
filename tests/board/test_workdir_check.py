from pathlib import Path

import pytest

from labctl.board.workdir_check import survey
from labctl.transport.base import Transport


def test_a_workdir_that_is_not_there_yet(transport: Transport, tmp_path: Path) -> None:
    before = sorted(tmp_path.iterdir())
    found = survey(transport, f"{tmp_path}/a/b c")
    assert (found.why_not_written, found.why_not_executed) == (None, None)
    assert (found.used_bytes, found.reserved_bytes) == (0, {})
    assert sorted(tmp_path.iterdir()) == before


def test_what_is_begun_has_its_room(transport: Transport, workdir: str) -> None:
    store = Path(workdir) / "store"
    store.mkdir(parents=True)
    (store / f".part-{'a' * 64}").write_bytes(bytes(1 << 20))
    half = f"labctl-partial 1 {1 << 20} {1 << 18}\n0 {'b' * 64}\n2 {'c' * 64}\n"
    (store / f".part-{'a' * 64}.journal").write_text(half)
    (store / ".part-odd").write_text("x")
    found = survey(transport, workdir)
    assert found.reserved_bytes == {"a" * 64: 1 << 20}
    assert found.arrived_bytes == {"a" * 64: 2 << 18}
    assert found.used_bytes >= 1 << 20


def test_a_place_that_cannot_be_written_is_told_in_the_boards_words(
    transport: Transport, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    found = survey(transport, "/proc/labctl")
    assert found.why_not_written
    assert "labctl-probe" in found.why_not_written
    assert found.why_not_executed


def test_a_limit_of_file_sizes_is_read(
    transport: Transport, workdir: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = transport.run
    monkeypatch.setattr(
        transport, "run", lambda words, timeout: run(f"ulimit -f 2048\n{words}", timeout=timeout)
    )
    assert survey(transport, workdir).largest_file_bytes in (2048 * 512, 2048 * 1024)
