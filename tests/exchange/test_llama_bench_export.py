"""Exports that llama.cpp's own script reads: its real text runs on them, from the pinned source."""

import json
import sqlite3
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from records_made import plan, planned_run, run, timing, trial

from labctl.build.plan import source_now
from labctl.cli.root import run_cli
from labctl.engines.base import RawOutput
from labctl.engines.llama_cpp.bench import LlamaBench
from labctl.engines.llama_cpp.bench_results import sql_text
from labctl.records.board import BoardFacts, CpuFacts, Execution
from labctl.records.run import ArtifactIdentity
from labctl.records.trial import TrialState
from labctl.runs.record.directory import RunDirectory

RECORDED = Path(__file__).parents[1] / "fixtures" / "llama_cpp" / "bench" / "new.jsonl"
FACTS = BoardFacts(
    execution=Execution.BOARD,
    machine="aarch64",
    kernel="5.10",
    boot_id="b",
    cpus=(CpuFacts(count=4, model="ARMv8 Processor rev 0"),),
)
OLD, NEW = "4227c9b", "0c1e570"


def build(commit: str) -> ArtifactIdentity:
    return ArtifactIdentity(
        product="llama.cpp", version="v", target="rk3568", key="k" * 64,
        commit=commit.ljust(40, "0"), toolchain="zig", tools={},
    )  # fmt: skip


def bench_run(runs: Path, number: int, lines: list[dict[str, Any]]) -> RunDirectory:
    """A run whose trial printed these lines of llama-bench."""
    stdout = "".join(json.dumps(line) + "\n" for line in lines).encode()
    engine = LlamaBench()
    parameters = {"prompt_tokens": 16, "tokens": 8, "repetitions": 3, "threads": 2}
    parsed = engine.parse(RawOutput(stdout, b"", b""), engine.parameters(parameters))
    record = run(
        f"2026112{number}T223000Z-bench-00000{number}",
        recipe_resolved={"engine": {"name": "llama_cpp", "task": "bench"}},
        facts=FACTS,
        artifacts=(build(lines[0]["build_commit"]),),
    )
    directory = planned_run(runs, record, plan())
    one = trial(1, parameters=parameters, timing=parsed)
    directory.add(one)
    (directory.trial_path(1, one.slug) / "stdout").write_bytes(stdout)
    return directory


def completion_run(runs: Path, number: int, commit: str, eval_ns: int) -> RunDirectory:
    record = run(
        f"2026112{number}T223000Z-text-00000{number}",
        recipe_resolved={"engine": {"name": "llama_cpp", "task": "completion"}},
        facts=FACTS,
        artifacts=(build(commit),),
    )
    directory = planned_run(runs, record, plan())
    for repeat in (0, 1, 2):
        directory.add(
            trial(
                repeat + 1,
                repeat=repeat,
                parameters={"tokens": 5, "threads": 4, "batch": 2048, "ubatch": 512},
                comparability={"build_key": "k" * 64},
                argv=("/store/1", "-m", "/store/2", "-fit", "off", "--no-repack", "-p", "-lm", "x"),
                timing=timing([100, 110, 120, 130], eval_ns=eval_ns, eval_runs=4),
            )
        )
    return directory


@dataclass
class Lab:
    root: Path
    capsys: pytest.CaptureFixture[str]

    def __call__(self, *words: str, status: int = 0) -> tuple[str, str]:
        assert run_cli(["--lab", str(self.root), "export", *words]) == status
        return self.capsys.readouterr()


@pytest.fixture
def lab(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Lab:
    (tmp_path / "devices.yaml").write_text("boards: {}\n")
    return Lab(tmp_path, capsys)


def lines() -> list[dict[str, Any]]:
    return [json.loads(line) for line in RECORDED.read_text().splitlines()]


def of_commit(commit: str, speed: int) -> list[dict[str, Any]]:
    """The recorded tests, of another build that takes ``speed`` times as long."""
    found = lines()
    for line in found:
        samples = [speed * sample for sample in line["samples_ns"]]
        rates = [1e9 * (line["n_prompt"] + line["n_gen"]) / sample for sample in samples]
        line |= {
            "build_commit": commit,
            "samples_ns": samples,
            "avg_ns": sum(samples) // len(samples),
            "avg_ts": sum(rates) / len(rates),
        }
    return found


@pytest.fixture(scope="module")
def script() -> Path:
    source = source_now("rk3568", "llama.cpp", "new", None)
    assert source is not None
    return source.fetch(lambda _progress: None) / "scripts" / "compare-llama-bench.py"


def compared(script: Path, given: Path) -> list[list[str]]:
    """The cells of the table that the script prints of both builds."""
    words = ("-t", "llama-bench", "-b", OLD, "-c", NEW, "-i", given, "-o", "tsv")
    command = [sys.executable, script, *words]
    done = subprocess.run(command, cwd=given.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [[cell.strip() for cell in line.split("\t")] for line in done.stdout.splitlines()]


def test_trials_of_llama_bench_are_its_own_rows_value_for_value(lab: Lab) -> None:
    bench_run(lab.root / "runs", 1, lines())
    rows = json.loads(lab("--format", "llama-bench-json")[0])
    assert [{k: v for k, v in row.items() if k != "labctl"} for row in rows] == lines()
    assert rows[0]["labctl"]["run"] == "20261121T223000Z-bench-000001"
    assert (rows[0]["labctl"]["trial"], rows[0]["labctl"]["execution"]) == (1, "board")


@pytest.mark.parametrize("form", ["llama-bench-json", "llama-bench-sql"])
def test_the_script_of_llama_cpp_reads_it(lab: Lab, script: Path, form: str) -> None:
    bench_run(lab.root / "runs", 1, of_commit(OLD, 2))
    bench_run(lab.root / "runs", 2, lines())
    file = lab.root / "export.json"
    if form == "llama-bench-json":
        lab("--format", form, "-o", str(file))
    else:
        file = lab.root / "export.sqlite"
        database = sqlite3.connect(file)
        database.executescript(lab("--format", form)[0])
        database.close()
    heading, *rows = compared(script, file)
    assert heading[-4:] == ["Test", f"t/s {OLD}", f"t/s {NEW}", "Speedup"]
    assert {row[-4]: row[-2:] for row in rows} == {
        "pp16": ["599.10", "2.00"],
        "tg8": ["402.76", "2.00"],
    }


def test_completions_are_the_tests_that_they_contain(lab: Lab, script: Path) -> None:
    completion_run(lab.root / "runs", 1, OLD, 800_000_000)
    completion_run(lab.root / "runs", 2, NEW, 400_000_000)
    file = lab.root / "export.json"
    err = lab("--format", "llama-bench-json", "-o", str(file))[1]
    assert "left out: 20261121T223000Z-text-000001/1: a warm-up" in err
    assert f"wrote 8 tests to {file}" in err
    prompt, generation = json.loads(file.read_text())[:2]
    shape = ("n_prompt", "n_gen", "n_depth", "samples_ns")
    assert [prompt[key] for key in shape] == [7, 0, 0, [500_000_000]]
    assert [generation[key] for key in shape] == [0, 4, 7, [800_000_000]]
    assert generation["avg_ts"] == pytest.approx(5)
    assert (generation["n_threads"], generation["repack"], generation["load_mode"]) == (
        4, False, "auto",
    )  # fmt: skip
    assert generation["cpu_info"] == "ARMv8 Processor rev 0"
    for unknown in ("stddev_ts", "stddev_ns", "build_number"):
        assert unknown not in generation
    assert {row[-4]: row[-3:] for row in compared(script, file)[1:]} == {
        "pp7": ["14.00", "14.00", "1.00"],
        "tg4@d7": ["5.00", "10.00", "2.00"],
    }


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"state": TrialState.FAILED, "timing": None}, "failed"),
        ({"comparability": {}}, "not built by labctl"),
        ({"parameters": {"tokens": 5}}, "threads is unknown"),
        ({"timing": timing([100.0], prompt_eval_ns=None)}, "neither of its prompt"),
        ({"engine": "command"}, "measured by command, not by llama.cpp"),
    ],
)
def test_what_the_format_cannot_hold_is_left_out_with_the_reason(
    lab: Lab, changes: dict[str, Any], reason: str
) -> None:
    engine = changes.pop("engine", "llama_cpp")
    record = run(
        recipe_resolved={"engine": {"name": engine, "task": "completion"}}, artifacts=(build(NEW),)
    )
    good: dict[str, Any] = {"parameters": {"threads": 4}, "comparability": {"build_key": "k"}}
    planned_run(lab.root / "runs", record, plan()).add(trial(1, **good | changes))
    out, err = lab("--format", "llama-bench-json")
    assert (json.loads(out), f"left out: {record.id}/1: " in err) == ([], True)
    assert reason in err
    assert lab("--format", "llama-bench-sql")[0] == ""


def test_output_that_is_gone_or_damaged_is_told(lab: Lab) -> None:
    directory = bench_run(lab.root / "runs", 1, lines())
    (stdout,) = directory.path.glob("trials/*/stdout")
    stdout.write_text("{")
    assert "its output is damaged" in lab("--format", "llama-bench-json")[1]
    stdout.unlink()
    assert "its output cannot be read" in lab("--format", "llama-bench-json")[1]


def test_what_was_emulated_says_so(lab: Lab) -> None:
    record = run(facts=FACTS.model_copy(update={"execution": Execution.EMULATED}))
    planned_run(lab.root / "runs", record, plan()).add(trial(1, execution=Execution.EMULATED))
    err = lab("--format", "llama-bench-sql")[1]
    assert "EMULATED: llama-bench's format does not show it" in err


def test_no_text_ends_a_value_of_sql() -> None:
    hostile = "'); DROP TABLE llama_bench; --"
    text = sql_text([{"model_filename": hostile, "n_gen": 8, "x); --": 1, "embeddings": True}])
    database = sqlite3.connect(":memory:")
    database.executescript(text)
    assert database.execute("SELECT * FROM llama_bench").fetchall() == [(hostile, 8, 1)]
    database.close()


def test_the_name_of_a_file_chooses_the_format(lab: Lab) -> None:
    bench_run(lab.root / "runs", 1, lines())
    for name, begins in (("x.jsonl", "{"), ("x.csv", "run,"), ("x.sql", "CREATE TABLE")):
        lab("-o", str(lab.root / name))
        assert (lab.root / name).read_text().startswith(begins)
    for name in ("x.json", "x.sqlite"):
        assert "choose a --format" in lab("-o", str(lab.root / name), status=2)[1]
