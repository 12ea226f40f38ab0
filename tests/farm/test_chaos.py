"""Three lab hosts, a PostgreSQL and boards, broken at random: nothing is lost, doubled or unfenced.

``LABCTL_CHAOS_SEED`` repeats a seed; each trial is written out.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from chaos import ChaosLab, chaos_lab, check_all, run_trial
from postgres_server import postgres_server

SEED = int(os.environ.get("LABCTL_CHAOS_SEED", "20261122"))


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[ChaosLab]:
    with postgres_server() as server, chaos_lab(tmp_path, server) as made:
        yield made


def _break(lab: ChaosLab, trials: int, *, together: int = 20) -> None:
    for trial in range(trials):
        sys.stdout.write(f"seed {SEED}, {run_trial(lab, trial, SEED)}\n")
        sys.stdout.flush()
        if trial % together == together - 1:
            check_all(lab)
    check_all(lab)
    sys.stdout.write(
        f"{trials} trials, {len(lab.submitted)} jobs; a dead worker's job was free again"
        f" {lab.slowest_freeing:.1f} s after it expired at the latest\n"
    )


def test_three_hosts_are_broken_at_random(lab: ChaosLab) -> None:
    _break(lab, 20)
    assert lab.slowest_freeing < 30  # beside a busy neighbour


@pytest.mark.soak
def test_three_hosts_are_broken_a_thousand_times(lab: ChaosLab) -> None:
    _break(lab, int(os.environ.get("LABCTL_CHAOS_TRIALS", "1000")))
    assert lab.slowest_freeing < 5
