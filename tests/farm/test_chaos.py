"""Three lab hosts, a PostgreSQL and boards, broken at random: nothing is lost, doubled or unfenced.

``LABCTL_CHAOS_SEED`` repeats a seed; each trial is written out.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from chaos import ChaosLab, chaos_lab
from chaos_checks import check_all
from chaos_faults import run_trial
from chaos_history import freeing_times
from postgres_server import postgres_server

from labctl.errors import Blame

#: Its first trials, one of each fault, have a backup to restore, a broken program, and workers that
#: are killed, stopped and cut off for longer than their lease.
SEED = int(os.environ.get("LABCTL_CHAOS_SEED", "20261113"))


@pytest.fixture
def lab(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[ChaosLab]:
    seconds = 3.0 if request.node.get_closest_marker("soak") else 2.0
    with postgres_server() as server, chaos_lab(tmp_path, server, seconds) as made:
        yield made


def _break(lab: ChaosLab, trials: int, *, together: int = 20) -> float:
    """Run trials; return the longest time (s) for which a lost worker's job was not free."""
    for trial in range(trials):
        _say(run_trial(lab, trial, SEED))
        if trial % together == together - 1 or trial == trials - 1:
            check_all(lab)
            _say(_result(lab, trial + 1))
    return max(freeing_times(lab.history.changes()).values(), default=0.0)


def _result(lab: ChaosLab, trials: int) -> str:
    """Return words on all trials so far, which were good."""
    freed = freeing_times(lab.history.changes()).values()
    blames = [lab.job(job).blame for job in lab.submitted]
    return (
        f"{trials} trials are good: {len(lab.submitted)} jobs, {len(lab.broken)} of a broken"
        f" program, {len(lab.clients.made)} commands of people ({lab.clients.waited} waited for the"
        f" database, {len(lab.clients.jobs)} submitted jobs),"
        f" {blames.count(Blame.INFRA)} given up for infra; {len(freed)} times a lost"
        f" worker's job was free again, {max(freed, default=0.0):.1f} s after it expired at the"
        f" latest; {lab.refused()} times a stale worker was refused"
    )


def _say(line: str) -> None:
    sys.stdout.write(f"seed {SEED}, {line}\n")
    sys.stdout.flush()


def test_three_hosts_are_broken_at_random(lab: ChaosLab) -> None:
    assert _break(lab, 20) < 30  # beside a busy neighbour


@pytest.mark.soak
def test_three_hosts_are_broken_a_thousand_times(lab: ChaosLab) -> None:
    assert _break(lab, int(os.environ.get("LABCTL_CHAOS_TRIALS", "1000"))) < 5
