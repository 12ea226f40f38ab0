"""Times of the dashboard's pages in a lab of 200 boards and 100,000 runs."""

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from dashboards import board_names, made_lab, served

from labctl.database.sqlite import SqliteDatabase
from labctl.index.index import Index
from labctl.index.rows import Entry, ModelRow, RunRow
from labctl.runs.record.repository import stamp_of

pytestmark = pytest.mark.bench

BOARDS, RUNS = 200, 100_000
PATHS = (
    "/",
    "/runs",
    "/runs?page=1900",
    "/runs?recipe=recipe-7&board=rk7",
    "/runs?tag=release",
    "/queue",
    "/audit",
    "/accuracy",
    "/boards/rk7",
    "/trends",
    "/metrics",
)
REPEATS = 5


def fill(runs: Path) -> None:
    """Make run directories with nothing in them, and an index that knows them."""
    index = Index(SqliteDatabase(runs / "index.sqlite", "the index", ""))
    began = datetime(2024, 1, 1, tzinfo=UTC)
    entries: list[Entry] = []
    for number in range(RUNS):
        when = began + timedelta(minutes=7 * number)
        run_id = f"{when:%Y%m%dT%H%M%SZ}-recipe-{number % 40}-{number:06x}"
        (runs / run_id).mkdir(parents=True)
        for name in ("run.json", "end.json"):
            (runs / run_id / name).touch()
        stamp = stamp_of(runs / run_id)
        assert stamp is not None
        row = RunRow(
            run_id, stamp, "finished", f"recipe-{number % 40}", when.isoformat(),
            board=f"rk{number % BOARDS + 1}", verdict="passed", trials_planned=9, trials_ok=9,
            trials_recorded=9, figures={"token_low_ns": 50_000_000, "token_high_ns": 60_000_000},
        )  # fmt: skip
        model = ModelRow(run_id, "q2_k", "q2.gguf", "0" * 64, "model", "Q2_K")
        tags = ("release",) if number % 1000 == 0 else ()
        entries.append(Entry(row, (model,), tags))
        if len(entries) == 2000:
            index.add(entries)
            entries.clear()
    index.add(entries)


def test_pages_of_a_large_lab(tmp_path: Path) -> None:
    lab = made_lab(tmp_path / "kitchen", boards=BOARDS)
    assert len(board_names(BOARDS)) == BOARDS
    fill(lab.root / "runs")
    with served(lab) as dashboard, dashboard.client() as client:
        began = time.perf_counter()
        assert client.get("/").status_code == 200
        print(f"first page: {time.perf_counter() - began:.3f} s")
        end = time.monotonic() + 600
        while "100000" not in client.get("/runs").text:
            assert time.monotonic() < end
        print(f"index compared with {RUNS} folders: {time.perf_counter() - began:.1f} s")
        for path in PATHS:
            times = []
            for _ in range(REPEATS):
                began = time.perf_counter()
                answer = client.get(path)
                times.append(time.perf_counter() - began)
                assert answer.status_code == 200
            print(f"{path}: {sorted(times)[REPEATS // 2]:.3f} s, {len(answer.content)} bytes")
