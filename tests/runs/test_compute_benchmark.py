"""The rate of a board's arithmetic, from what a benchmark printed."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from records_made import model

from labctl.board.measuring import MeasuredJob
from labctl.engines.base import Tool
from labctl.engines.llama_cpp.bench import LlamaBench
from labctl.engines.registry import COMPUTE_BENCHMARK
from labctl.models.cache import ModelFile
from labctl.records.board import BoardFacts, Execution
from labctl.records.trial import JobStatus
from labctl.runs.board.compute_benchmark import compute_rate

FACTS = BoardFacts(execution=Execution.BOARD, machine="aarch64", kernel="5.10", boot_id="b1")
ENDED = JobStatus(
    outcome="exited", exit_status=0, start_mono_ns=0, end_mono_ns=1, wall_ns=1, stdout_bytes=0,
    stderr_bytes=0, boot_id="b1", epoch=1,
)  # fmt: skip
BENCH = Path(__file__).parents[1] / "fixtures" / "llama_cpp" / "bench" / "new.jsonl"


@pytest.mark.parametrize("others", [None, 0.03, 2.5])
def test_what_else_the_board_did_meanwhile_is_kept(others: float | None) -> None:
    asked = COMPUTE_BENCHMARK.parameters
    prompt, decode = (json.loads(line) for line in BENCH.read_text().splitlines())
    prompt["n_prompt"], decode["n_gen"] = asked["prompt_tokens"], asked["tokens"]
    stdout = f"{json.dumps(prompt)}\n{json.dumps(decode)}\n".encode()
    identity = model()
    prepared = SimpleNamespace(
        engine=LlamaBench(),
        tool=Tool("llama-bench", "new"),
        program=None,
        revision=None,
        models={"small": ModelFile(Path("small.gguf"), identity)},
    )
    measuring = SimpleNamespace(job=lambda *_: MeasuredJob(ENDED, {"stdout": stdout}, others))
    rate = compute_rate(
        SimpleNamespace(facts=FACTS),  # type: ignore[arg-type]
        prepared,  # type: ignore[arg-type]
        measuring,  # type: ignore[arg-type]
        {identity.sha256: "/w/store/small"},
    )
    assert rate.others_share == others
