"""CPU time and size of the report of many runs: 6 trials of 128 tokens each.

Drawing is left out, for a process draws a picture once; test_figures_bench.py has the whole.
"""

import time
from pathlib import Path

import pytest
from measured_runs import measured
from stored_runs import stored

from labctl.report.page.build import build_report
from labctl.report.page.html import html
from labctl.report.page.language import Language

pytestmark = pytest.mark.bench

RUNS = 100
ROUNDS = 5


def test_the_report_of_many_runs_is_written_soon_and_is_small(tmp_path: Path) -> None:
    words = Language("en")
    runs = [
        stored(
            tmp_path / "runs",
            measured(
                run_id=f"20261120T22{n // 60:02d}{n % 60:02d}Z-q2-{n:06x}", tokens=128, seed=n
            ),
        )
        for n in range(RUNS)
    ]
    taken: dict[int, float] = {}
    sizes: dict[int, int] = {}
    for count in (RUNS // 4, RUNS // 2, RUNS) * ROUNDS:
        began = time.process_time()
        page = html(build_report(runs[:count], words), words)
        (tmp_path / "report.html").write_text(page)
        taken[count] = min(taken.get(count, 1e9), time.process_time() - began)
        sizes[count] = len(page.encode())
        print(f"\n  {count:4} runs: {taken[count]:6.2f} s of CPU, {sizes[count] / 1e6:5.1f} MB")
    assert taken[RUNS] < 3
    assert sizes[RUNS] < 15e6
    # From here on a run costs what it costs: no run is looked at for another one.
    steps = [(taken[b] - taken[a]) / (b - a) for a, b in ((25, 50), (50, 100))]
    assert steps[1] < 1.5 * steps[0]
