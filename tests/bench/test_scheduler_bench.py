"""The order of jobs: choices a second, and the time until all are done, at full size."""

import heapq
import random
import sys
import time
from dataclasses import replace

import pytest

from labctl.state.group_shares import deal
from labctl.state.job_order import hand_out
from labctl.state.waiting import Waiting

pytestmark = [pytest.mark.bench, pytest.mark.timeout(900)]
BOARDS, JOBS, SEED = 200, 2000, 15
#: Jobs that end within this time (s) are handed out together, as a busy worker does.
LOOK_SECONDS = 0.2


def test_two_thousand_jobs_are_spread_over_two_hundred_boards() -> None:
    random.seed(SEED)
    boards = tuple(f"rk{number}" for number in range(BOARDS))
    lengths = [random.uniform(20, 40) for _ in range(JOBS)]
    waiting = {
        f"j{n}": Waiting(f"j{n}", boards, 0, float(n), "ann", expected_seconds=one, group="g")
        for n, one in enumerate(lengths)
    }
    homes = deal([*waiting.values()])
    waiting = {name: replace(job, home=homes[name]) for name, job in waiting.items()}
    free, running, now, looks = set(boards), list[tuple[float, str]](), 0.0, 0
    began = time.process_time()
    while waiting or running:
        looks += 1
        for job, board in list(hand_out([*waiting.values()], {}, sorted(free))):
            del waiting[job.id]
            free.remove(board)
            heapq.heappush(running, (now + job.expected_seconds, board))
        until = running[0][0] + LOOK_SECONDS
        while running and running[0][0] <= until:
            now, board = heapq.heappop(running)
            free.add(board)
    used = time.process_time() - began
    least = max(sum(lengths) / BOARDS, *lengths)
    print(
        f"\nseed {SEED}: {JOBS} jobs on {BOARDS} boards in {now:.0f} s of simulated time, at least"
        f" {least:.0f} s: {least / now:.1%}; {1000 * used / looks:.1f} ms of CPU a look",
        file=sys.stderr,
    )
    assert least / now >= 0.95
    assert used < 0.05 * JOBS  # a job lasts hundreds of times as long
