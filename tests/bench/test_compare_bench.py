"""Comparison: its CPU time, and how often it is right where noise is as boards have it."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from interleaved import show
from records_made import BEGAN, model, plan, planned_run, run, timing, trial
from simulated_comparisons import (
    Way,
    coverage,
    false_verdicts,
    grouped,
    interleaved,
    naive,
    realistic,
    sessions,
)
from test_records_bench import cpu_seconds, lab_of
from test_startup_bench import LABCTL

from labctl.records.run import RunEnd

pytestmark = pytest.mark.bench

RUNS = 4_000
WAYS: dict[str, Way] = {
    "two variants of one run, interleaved": interleaved,
    "two variants of one run, grouped": grouped,
    "two runs, 5 others known": sessions(5),
    "two runs, 10 others known": sessions(10),
    "two runs, a plain t test (not shown)": naive,
}


def test_coverage_and_false_verdicts_under_the_noise_of_boards() -> None:
    """The tables of docs/comparing.md. No promise: intervals hold what their noise is."""
    parts = {
        "all of it": realistic,
        "no throttling, no slow board": lambda sigma: replace(
            realistic(sigma), throttled=0, slow_board=0
        ),
    }
    found: dict[tuple[str, str], float] = {}
    for name, way in WAYS.items():
        for part, made in parts.items():
            for repeats in (3, 5, 10):
                cells = []
                for sigma in (0.01, 0.02, 0.03):
                    of_95, _ = coverage(way, made(sigma), repeats, runs=RUNS)
                    told, beyond = false_verdicts(way, made(sigma), repeats, runs=RUNS)
                    cells.append(f"{of_95:5.1%} / {told:5.1%} / {beyond:5.1%}")
                    found[name, part] = min(of_95, found.get((name, part), 1.0))
                print(f"{name}; {part}; {repeats} repeats: {'; '.join(cells)}")
    quiet = "no throttling, no slow board"
    assert found["two runs, 10 others known", quiet] > 0.93
    assert found["two runs, a plain t test (not shown)", quiet] < 0.75


def test_a_hundred_trials_are_compared_soon(tmp_path: Path) -> None:
    """In a lab of 100,000, whose runs are the history of these two."""
    lab = lab_of(tmp_path / "lab", 100_000)
    models = (model("q2", "Q2_K"), model("q8", "Q8_0"))
    names = []
    for day in (24, 25):
        record = run(
            f"202611{day}T000000Z-q2-{day:06x}",
            board="rk1",
            models=models,
            variants=tuple(f"v{n}" for n in range(10)),
        )
        directory = planned_run(lab / "runs", record, plan())
        for n in range(50):
            directory.add(
                trial(
                    n + 1,
                    slug=f"t{n}",
                    board="rk1",
                    repeat=n // 10 + 1,
                    variant=f"v{n % 10}",
                    model=models[n % 2],
                    timing=timing([100 + (n * 7919 + day) % 13 / 10] * 128),
                    comparability={f"key{k}": "0" * 40 for k in range(24)},
                )
            )
        directory.finish(RunEnd(state="finished", finished=BEGAN))
        names.append(record.id)
    spent = {
        "import click": cpu_seconds(sys.executable, "-c", "import click"),
        "compare two runs of 50": cpu_seconds(LABCTL, "--lab", lab, "compare", *names),
        "compare variants of one": cpu_seconds(LABCTL, "--lab", lab, "compare", names[0]),
    }
    show("CPU time of labctl compare", spent, "import click")
    assert max(spent.values()) < 1.5
