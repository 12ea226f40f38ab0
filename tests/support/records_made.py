"""Records for tests of what is made from records."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from labctl.records.board import BoardFacts, Execution
from labctl.records.energy import EnergyRecord
from labctl.records.probe import BoardProbe, MemoryRate, Slowdown
from labctl.records.run import PlanRecord, RunRecord
from labctl.records.timing import TimingRecord
from labctl.records.trial import Check, ModelIdentity, TrialRecord, TrialState
from labctl.runs.record.directory import RunDirectory

BEGAN = datetime(2026, 11, 20, 22, 30, tzinfo=UTC)
MS = 1_000_000


def planned_run(runs: Path, record: RunRecord, plan: PlanRecord) -> RunDirectory:
    """The directory of a run whose first trial can begin."""
    directory = RunDirectory(runs / record.id)
    directory.begin(is_own=False)  # by its date
    directory.start(record, plan)
    return directory


def recorded_run(runs: Path, run_id: str, **changes: Any) -> RunDirectory:
    """The directory of a run as `labctl run` records it; the id has what its clock said."""
    directory = RunDirectory(runs / run_id)
    directory.begin()
    started = datetime.strptime(run_id[:16], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    directory.start(run(run_id, started=started, **changes), plan())
    return directory


def model(key: str = "q2_k", quantization: str = "Q2_K", **changes: Any) -> ModelIdentity:
    values: dict[str, Any] = {
        "key": key,
        "file": f"{key}.gguf",
        "sha256": key.encode().hex().ljust(64, "0"),
        "size_bytes": 88_000_000,
        "architecture": "llama",
        "quantization": quantization,
        "parameters": 134_515_008,
        "bits_per_weight": 5.2,
        "tensor_bytes": 87_000_000,
        "bytes_per_token": 60_000_000,
    }
    return ModelIdentity(**{**values, **changes})


def timing(gaps_ms: list[float], **changes: Any) -> TimingRecord:
    gaps = [round(gap * MS) for gap in gaps_ms]
    values: dict[str, Any] = {
        "generated_tokens": len(gaps) + 1,
        "ttft_ns": 2_000 * MS,
        "prompt_tokens": 7,
        "prompt_eval_ns": 500 * MS,
        "token_ns": tuple(gaps),
        "p50_ns": sorted(gaps)[len(gaps) // 2],
        "mean_ns": round(sum(gaps) / len(gaps)),
        "tokens_per_second": 1e9 * len(gaps) / sum(gaps),
    }
    return TimingRecord(**{**values, **changes})


def energy(**changes: Any) -> EnergyRecord:
    values: dict[str, Any] = {
        "source": "played",
        "readings": 9,
        "failed_readings": 0,
        "joules": 40.0,
        "mean_watts": 5.0,
        "peak_watts": 6.5,
        "joules_per_token": 1.25,
        "coverage": 1.0,
    }
    return EnergyRecord(**{**values, **changes})


def trial(number: int = 1, **changes: Any) -> TrialRecord:
    values: dict[str, Any] = {
        "number": number,
        "slug": f"q2_k-r{number}",
        "variant": "q2_k",
        "repeat": number,
        "model": model(),
        "parameters": {"tokens": 4},
        "board": "rk1",
        "target": "rk3568",
        "execution": Execution.BOARD,
        "state": TrialState.OK,
        "started": BEGAN + timedelta(minutes=number),
        "finished": BEGAN + timedelta(minutes=number, seconds=30),
        "timing": timing([100, 110, 120]),
        "checks": (Check(name="span", ok=True, detail="0.99"),),
    }
    return TrialRecord(**{**values, **changes})


def run(run_id: str = "20261120T223000Z-q2-abcdef", **changes: Any) -> RunRecord:
    values: dict[str, Any] = {
        "id": run_id,
        "recipe": "q2",
        "recipe_resolved": {"name": "q2"},
        "board": "rk1",
        "target": "rk3568",
        "facts": BoardFacts(
            execution=Execution.BOARD, machine="aarch64", kernel="5.10", boot_id="b1"
        ),
        "artifacts": (),
        "models": (model(),),
        "trials_planned": 3,
        "labctl_version": "0",
        "host": "h",
        "started": BEGAN,
        "epoch": 1,
    }
    return RunRecord(**{**values, **changes})


def probe(**changes: Any) -> BoardProbe:
    values: dict[str, Any] = {
        "board": "rk1",
        "taken": BEGAN,
        "agent_version": "1",
        "labctl_version": "0",
        "facts": run().facts,
        "memory": (MemoryRate(threads=4, bytes_per_second=3_000),),
        "slower": (Slowdown(what="memory read, 4 threads", before=9, now=1),),
    }
    return BoardProbe.model_validate({**values, **changes})


def plan() -> PlanRecord:
    return PlanRecord(trials=(), max_seconds=60, prompt_sha256="0")
