import json
import time
from pathlib import Path

import pytest
from measured_runs import measured
from stored_runs import stored

from labctl.report.figures.catalogue import figures_of
from labctl.report.figures.measured import measured_run
from labctl.report.page.files import write_report
from labctl.report.page.language import Language

pytestmark = pytest.mark.bench

RUNS, REPEATS, TOKENS = 100, 3, 128


def test_a_report_of_a_hundred_runs_is_written_at_once(tmp_path: Path) -> None:
    """A hundred runs of two variants, three repeats each, 128 tokens; CPU time beside elapsed."""
    directories = [
        stored(
            tmp_path / "runs",
            measured(
                run_id=f"20261120T{n:06d}Z-q2-{n:06x}", repeats=REPEATS, tokens=TOKENS, seed=n
            ),
        )
        for n in range(RUNS)
    ]
    print()
    began, spent = time.perf_counter(), time.process_time()
    runs = [measured_run(directory) for directory in directories]
    read, read_cpu = time.perf_counter(), time.process_time()
    found = figures_of(runs)
    drawn, drawn_cpu = time.perf_counter(), time.process_time()
    data = sum(len(json.dumps(one.chart())) for one in found.drawn)
    print(f"read {RUNS} runs: {read - began:.2f} s ({read_cpu - spent:.2f} s of CPU)")
    print(f"{len(found.drawn)} figures: {drawn - read:.2f} s ({drawn_cpu - read_cpu:.2f} s of CPU)")
    print(f"their rows: {sum(len(one.rows) for one in found.drawn)}, {data / 1e6:.2f} MB")
    page = tmp_path / "report.html"
    began, spent = time.perf_counter(), time.process_time()
    write_report(directories, page, words=Language("en"))
    took, cpu = time.perf_counter() - began, time.process_time() - spent
    print(
        f"the whole report: {took:.2f} s ({cpu:.2f} s of CPU), {page.stat().st_size / 1e6:.2f} MB"
    )
    assert cpu < 3
    assert page.stat().st_size < 15e6
