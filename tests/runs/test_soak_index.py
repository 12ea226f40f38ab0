"""The index under many writers, and under writers that are killed at any moment."""

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from postgres_server import rows
from records_made import plan, planned_run, run, trial

from labctl.runs.record.directory import RunDirectory
from labctl.runs.record.repository import RunRepository

pytestmark = pytest.mark.soak

WRITERS, ROUNDS, KILLS = 50, 4, 40
WRITES = """
import sys
from pathlib import Path
from labctl.runs.record.directory import RunDirectory
from labctl.runs.record.repository import RunRepository
for _ in range(int(sys.argv[1])):
    for path in sys.argv[2:]:
        RunRepository(Path(path).parent).add(RunDirectory(Path(path)))
    print("written", flush=True)
"""


def measured(runs: Path, number: int) -> RunDirectory:
    directory = planned_run(runs, run(f"20261123T{number:06d}Z-q2-{number:06x}"), plan())
    for n in range(1, 4):
        directory.add(trial(n))
    return directory


def writer(rounds: int, *directories: RunDirectory) -> subprocess.Popen[bytes]:
    paths = [str(directory.path) for directory in directories]
    return subprocess.Popen(
        [sys.executable, "-c", WRITES, str(rounds), *paths], stdout=subprocess.PIPE
    )


def assert_whole(runs: Path, count: int) -> None:
    assert len(RunRepository(runs).trials()) == 3 * count
    if (runs / "index.sqlite").exists():
        assert rows(runs, "PRAGMA integrity_check") == [("ok",)]


def is_in_a_transaction(runs: Path) -> bool:
    """Whether a writer that stands still had begun to write."""
    if (runs / "index.sqlite").exists():
        return (runs / "index.sqlite-journal").exists()
    locks = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND granted"
    return rows(runs, locks) != []


def test_fifty_writers_lose_nothing(folder: Path) -> None:
    made = [measured(folder, number) for number in range(2 * WRITERS)]
    began = time.monotonic()
    running = [writer(ROUNDS, *made[2 * n : 2 * n + 2]) for n in range(WRITERS)]
    reads = 0
    while any(one.poll() is None for one in running):
        seen = RunRepository(folder).query()
        assert {one.run.trials_recorded for one in seen} == {3}
        reads += 1
    for one in running:
        one.communicate()
    assert [one.returncode for one in running] == [0] * WRITERS
    assert_whole(folder, 2 * WRITERS)
    seconds = time.monotonic() - began
    print(f"\n{WRITERS} writers, {2 * ROUNDS * WRITERS} writes, {reads} reads: {seconds:.0f} s")


def test_a_writer_that_is_killed_leaves_the_index_whole(folder: Path) -> None:
    made = [measured(folder, number) for number in range(10)]
    chance = random.Random(1)
    in_transactions = 0
    for _ in range(KILLS):
        with writer(1_000, *made) as running:
            assert running.stdout
            assert running.stdout.readline() == b"written\n"
            time.sleep(chance.random() / 2)  # anywhere: most of its life it writes
            running.send_signal(signal.SIGSTOP)
            in_transactions += is_in_a_transaction(folder)
            running.send_signal(signal.SIGKILL)
        assert_whole(folder, 10)
    print(f"\n{KILLS} kills, {in_transactions} of them in a transaction: index whole each time")
    assert in_transactions
