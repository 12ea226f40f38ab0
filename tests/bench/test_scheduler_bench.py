"""The choices of the scheduler: jobs a second, and the time until all are done, at full size."""

import random
import sys
import time

import pytest

from labctl.farm.dispatcher import simulate
from labctl.farm.job import FarmJob, JobResult
from labctl.farm.schedule import Schedule

pytestmark = [pytest.mark.bench, pytest.mark.timeout(600)]
BOARDS, JOBS, SEED = 200, 2000, 15


class Simulated:
    """An executor whose jobs take as long as they are expected to."""

    def run(self, job: FarmJob, board: str) -> JobResult:
        return JobResult(0, seconds=job.expected_seconds)

    def stop(self) -> None:
        raise AssertionError


def test_two_thousand_jobs_are_spread_over_two_hundred_boards() -> None:
    random.seed(SEED)
    boards = tuple(f"rk{number}" for number in range(BOARDS))
    lengths = [random.uniform(20, 40) for _ in range(JOBS)]
    schedule = Schedule(dict.fromkeys(boards, ()), {})
    schedule.add(*(FarmJob(f"j{n}", f"j{n}", boards, one) for n, one in enumerate(lengths)))
    began = time.process_time()
    makespan = simulate(schedule, Simulated())
    used = time.process_time() - began
    least = max(sum(lengths) / BOARDS, *lengths)
    print(
        f"\nseed {SEED}: {JOBS} jobs on {BOARDS} boards in {makespan:.0f} s of simulated time, at"
        f" least {least:.0f} s: {least / makespan:.1%}; {JOBS / used:.0f} choices a second of CPU",
        file=sys.stderr,
    )
    assert least / makespan >= 0.95
    assert used < 0.05 * JOBS  # a job lasts hundreds of times as long
