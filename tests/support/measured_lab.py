"""A lab with runs that have tokens and telemetry, for what reads records from outside."""

import json
from datetime import timedelta
from pathlib import Path

from records_made import BEGAN, model, plan, planned_run, run, timing, trial

from labctl.records.run import RunEnd
from labctl.records.trial import JobStatus, ModelIdentity
from labctl.runs.record.annotations import add_tags

RUNS = ("20261120T223000Z-q8-q2-abcdef", "20261121T223000Z-q8-q2-123456")
START_NS = 5_000_000_000


def measured_lab(root: Path) -> Path:
    """Two runs of two models, three repeats each; of the second run one repeat failed."""
    root.mkdir(exist_ok=True)
    board = "{target: rk3568, transport: {kind: local}, workdir: w}"
    (root / "devices.yaml").write_text(f"boards: {{rk1: {board}}}\n")
    models = (model("q8_0", "Q8_0"), model("q2_k", "Q2_K"))
    for day, run_id in enumerate(RUNS):
        record = run(
            run_id,
            recipe="q8-q2",
            models=models,
            recipe_resolved={"engine": {"name": "llama_cpp", "task": "completion"}},
            started=BEGAN + timedelta(days=day),
        )
        directory = planned_run(root / "runs", record, plan())
        for number in range(1, 7):
            _add(directory, number, models[(number - 1) % 2], day)
        directory.finish(RunEnd(state="finished", finished=BEGAN + timedelta(days=day, hours=1)))
    add_tags(directory, ["nightly"])
    return root


def _add(directory, number: int, identity: ModelIdentity, day: int) -> None:  # type: ignore[no-untyped-def]
    repeat = (number + 1) // 2
    base = 50 if identity.key == "q8_0" else 20
    failed = day == 1 and number == 6
    job = JobStatus(
        outcome="exited", exit_status=0, start_mono_ns=START_NS, end_mono_ns=START_NS + 10**10,
        wall_ns=10**10, stdout_bytes=9, stderr_bytes=9, boot_id="b1", epoch=1,
    )  # fmt: skip
    one = trial(
        number,
        slug=f"{identity.key}-r{repeat}",
        variant=identity.key,
        repeat=repeat,
        model=identity,
        parameters={"tokens": 32, "threads": 4, "mmap": True},
        comparability={"threads": 4},
        state="failed" if failed else "ok",
        job=job,
        timing=None
        if failed
        else timing([base + (i * 7 + repeat) % 5 for i in range(31)], eval_runs=31),
    )
    directory.add(one)
    lines = [
        {
            "mono_ns": START_NS + second * 10**9,
            "rss_bytes": 88_000_000 + second * 1000,
            "temps_mc": {"soc": 40_000 + 500 * second},
            "freq_khz": {"0": 1_992_000},
            **({"majflt": 10 * second} if second else {}),
        }
        for second in range(10)
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (directory.trial_path(number, one.slug) / "telemetry").write_text(text)
