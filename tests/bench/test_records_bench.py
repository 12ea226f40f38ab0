import resource
import sys
from dataclasses import replace
from pathlib import Path
from statistics import median

import pytest
from interleaved import medians, show
from postgres_server import PostgresServer
from records_made import BEGAN, model, plan, planned_run, run, trial
from test_startup_bench import LABCTL
from test_startup_bench import run as run_command

from labctl.index.entry import entry_of
from labctl.index.filters import Filter
from labctl.records.run import Annotations, RunEnd
from labctl.runs.record.repository import RunRepository, stamp_of

pytestmark = pytest.mark.bench

TRIALS = 100_000
#: Trials of a run: ten variants, ten repeats.
OF_A_RUN = 100


def cpu_seconds(*words: str | Path) -> float:
    """Median CPU time of a command: on a busy machine, elapsed time is that of the others too."""

    def spent() -> float:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    times = []
    for _ in range(11):
        before = spent()
        run_command(*words)
        times.append(spent() - before)
    return median(times)


def lab_of(folder: Path, trials: int, server: PostgresServer | None = None) -> Path:
    """A lab of so many trials, whose index holds them: their own records are left out."""
    folder.mkdir()
    board = "{target: rk3568, transport: {kind: local}, workdir: w}"
    shared = f"lab: {server.new_lab()}\ndatabase: {server.url}\n" if server else ""
    (folder / "devices.yaml").write_text(f"{shared}boards: {{rk1: {board}}}\n")
    models = (model("q2", "Q2_K"), model("q8", "Q8_0"))
    records = [
        trial(
            n + 1,
            repeat=n // 10 + 1,
            variant=f"v{n % 10}",
            model=models[n % 2],
            parameters={f"parameter{k}": k for k in range(12)},
            comparability={f"key{k}": "0" * 40 for k in range(24)},
        )
        for n in range(OF_A_RUN)
    ]
    end = RunEnd(state="finished", finished=BEGAN)
    entries = []
    for number in range(trials // OF_A_RUN):
        record = run(
            f"20261122T{number:06d}Z-q2-{number:06x}", board=f"rk{number % 20}", models=models
        )
        directory = planned_run(folder / "runs", record, plan())
        (directory.path / "records.jsonl").write_text("")
        directory.finish(end)
        made = entry_of(record.id, record, records, end, annotations=Annotations(), stamp="")
        stamp = stamp_of(directory.path)
        assert stamp
        entries.append(replace(made, run=replace(made.run, stamp=stamp)))
    RunRepository(folder / "runs")._index.add(entries)
    return folder


@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_a_hundred_thousand_trials_are_found_at_once(
    tmp_path: Path, database: str, request: pytest.FixtureRequest
) -> None:
    server = request.getfixturevalue("postgres") if database == "postgresql" else None
    small, large = (
        lab_of(tmp_path / name, count, server)
        for name, count in (("small", 1_000), ("large", TRIALS))
    )
    print(f"\n{database}")
    if server is None:
        size = (large / "runs" / "index.sqlite").stat().st_size
        print(f"index of {TRIALS} trials: {size / 1e6:.0f} MB")
    index = RunRepository(large / "runs")._index
    one_run = index.runs(limit=1)[0].run.id
    asked = {
        "newest 50": lambda: index.runs(limit=50),
        "by board and quantization": lambda: index.runs(
            Filter(board="rk7", quantization="Q8_0"), limit=50
        ),
        "by parameters": lambda: index.runs(
            Filter(parameters=(("parameter3", "3"), ("parameter4", "4"))), limit=50
        ),
        "trials of a run": lambda: index.trials(Filter(ids=(one_run,))),
        "compare stamps": RunRepository(large / "runs").tags,
    }
    found = medians(11, asked)
    show("queries", found, "newest 50")
    assert len(index.trials(Filter(ids=(one_run,)))) == OF_A_RUN
    spent = {
        "import click": cpu_seconds(sys.executable, "-c", "import click"),
        "runs, 1,000 trials": cpu_seconds(LABCTL, "--lab", small, "runs"),
        "runs, 100,000 trials": cpu_seconds(LABCTL, "--lab", large, "runs"),
    }
    show("CPU time of labctl runs", spent, "import click")
    if server is None:
        assert spent["runs, 100,000 trials"] < 0.6
    for question in asked:
        assert found[question] < 0.1, question
