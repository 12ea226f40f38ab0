"""MindSpore Lite and Neural Network Runtime, with the form of output that is known of them."""

import time
from typing import Any

import pytest
from records_made import model

from labctl.config.recipe import EngineChoice
from labctl.engines.base import Engine, Inputs, RawOutput, Tool
from labctl.engines.registry import make_engine
from labctl.errors import ConfigError, OutputNotUnderstood, ProgramFailed
from labctl.records.board import BoardFacts, CpuFacts, Execution
from labctl.records.timing import TimingRecord
from labctl.records.trial import JobStatus

VALUES = " ".join(f"{n / 1e6:f}" for n in range(51))
DEMO = (
    "Tensor name: Softmax-65, tensor size is 4004 ,elements num: 1001.\n"
    f"output data is:\n{VALUES} \n"
)
BENCHMARK = (
    "ModelPath = /b/m.ms\nPrepareTime = 12.5 ms\nRunning benchmark loops...\n"
    "Model = m.ms, NumThreads = 4, MinRunTime = 40.125000 ms, MaxRuntime = 50.500000 ms,"
    " AvgRunTime = 42.250000 ms\nRun Benchmark m.ms Success.\n"
)


def chosen(name: str, task: str, **more: Any) -> Engine[Any]:
    values = {"name": name, "task": task, "program": {"board": "/data/p"}, **more}
    return make_engine(EngineChoice.model_validate(values))


def parse(engine: Engine[Any], stdout: str, **parameters: Any) -> TimingRecord:
    return engine.parse(RawOutput(stdout.encode(), b"", b""), engine.parameters(parameters))


def failure(engine: Engine[Any], stdout: str, stderr: str = "", status: int = 0) -> str | None:
    job = JobStatus(
        outcome="exited", exit_status=status, start_mono_ns=0, end_mono_ns=1, wall_ns=1,
        stdout_bytes=1, stderr_bytes=1, boot_id="b", epoch=1,
    )  # fmt: skip
    found = engine.diagnose(job, RawOutput(stdout.encode(), stderr.encode(), b""))
    assert found is None or isinstance(found, ProgramFailed)
    return found.message if found else None


def test_the_demos_output_tensors() -> None:
    engine = chosen("mindspore_lite", "demo")
    first, second = parse(engine, DEMO + DEMO.replace("Softmax-65", "Other")).measures
    assert (first.name, second.name) == ("tensor Softmax-65", "tensor Other")
    assert len(first.values) == 51
    assert first.value == 25e-6
    assert failure(engine, DEMO) is None
    words = engine.command(Tool("/data/p", "demo"), engine.parameters({}), Inputs("/data/p", "/m"))
    assert words == ["/data/p", "/m"]


def test_a_small_tensor_is_shown_whole() -> None:
    text = "Tensor name: t, tensor size is 8 ,elements num: 2.\noutput data is:\n-1.5 2e-3\n"
    assert parse(chosen("mindspore_lite", "demo"), text).measures[0].values == (-1.5, 0.002)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Tensor name:", "Tensor:"),
        ("output data is:", "data:"),
        ("4004", "2002"),
        ("1001", "40"),
        ("0.000003", "nan"),
        ("0.000003", "x"),
        (VALUES, "0.5 0.5"),
        (VALUES, ""),
    ],
)
def test_a_demo_that_prints_something_else_is_refused(old: str, new: str) -> None:
    assert old in DEMO
    with pytest.raises(OutputNotUnderstood):
        parse(chosen("mindspore_lite", "demo"), DEMO.replace(old, new))


def test_numbers_of_every_kind() -> None:
    text = "Tensor name: t, tensor size is 20 ,elements num: 5.\noutput data is:\n"
    found = parse(chosen("mindspore_lite", "demo"), text + "-1.5 2e-3 0 -0.000000 3.4E+38 \r\n")
    assert found.measures[0].values == (-1.5, 2e-3, 0, 0, 3.4e38)


@pytest.mark.parametrize("word", ["nan", "-nan", "inf", "-inf", "NaN", "Infinity"])
def test_a_model_that_computes_nonsense_is_told(word: str) -> None:
    with pytest.raises(OutputNotUnderstood, match=r"1 values of 51 .* computed nonsense"):
        parse(chosen("mindspore_lite", "demo"), DEMO.replace("0.000003", word))


@pytest.mark.parametrize("word", ["0,5", "1_0", "1e999", "0x1p3", "1.#IND", "\u0661"])
def test_what_only_looks_like_a_number_is_refused(word: str) -> None:
    with pytest.raises(OutputNotUnderstood, match="is not a number"):
        parse(chosen("mindspore_lite", "demo"), DEMO.replace("0.000003", word))


@pytest.mark.parametrize(
    "piece", ["OH_AI_", "Tensor name: ", "x" * 5000 + "\n", "a, tensor size is "]
)
def test_megabytes_of_anything_are_read_in_no_time(piece: str) -> None:
    """Each took minutes when patterns could begin anywhere in a line."""
    engine, text = chosen("mindspore_lite", "demo"), piece * ((8 << 20) // len(piece))
    began = time.process_time()
    assert failure(engine, text) is None
    with pytest.raises(OutputNotUnderstood):
        parse(engine, text)
    assert time.process_time() - began < 20


def test_a_failure_is_shown_with_its_line() -> None:
    engine = chosen("mindspore_lite", "demo")
    said = failure(engine, "first\n[E] 12: OH_AI_ModelPredict failed, ret: 3\nlast\n")
    assert said == "MindSpore Lite failed: [E] 12: OH_AI_ModelPredict failed, ret: 3"


def test_the_time_of_an_inference() -> None:
    engine = chosen("mindspore_lite", "benchmark")
    timing = parse(engine, BENCHMARK, threads=4)
    assert timing.load_ns == 12_500_000
    assert {m.name: m.value for m in timing.measures} == {
        "inference_min": 40_125_000, "inference_mean": 42_250_000, "inference_max": 50_500_000,
    }  # fmt: skip
    assert {m.unit for m in timing.measures} == {"ns"}


def test_the_least_time_of_slow_inferences_is_none() -> None:
    slow = BENCHMARK.replace("40.125000", "1000.000000")
    slow = slow.replace("42.25", "2000.25").replace("50.5", "3000.5")
    found = parse(chosen("mindspore_lite", "benchmark"), slow, threads=4)
    assert {m.name for m in found.measures} == {"inference_mean", "inference_max"}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            BENCHMARK.replace("NumThreads = 4", "NumThreads = 2"),
            "4 threads were requested, it used 2",
        ),
        (BENCHMARK.replace("42.25", "52.25"), "a mean of"),
        (BENCHMARK.replace("AvgRunTime", "AverageTime"), "is missing in the program's output"),
        (BENCHMARK * 2, "is 2 times in"),
        ("", "is missing in the program's output"),
    ],
)
def test_a_benchmark_that_cannot_be_is_refused(text: str, why: str) -> None:
    with pytest.raises(OutputNotUnderstood, match=why):
        parse(chosen("mindspore_lite", "benchmark"), text, threads=4)


def test_the_benchmark_is_told_everything() -> None:
    engine = chosen("mindspore_lite", "benchmark")
    facts = BoardFacts(
        execution=Execution.BOARD, machine="aarch64", kernel="5", boot_id="b",
        cpus=(CpuFacts(count=4),),
    )  # fmt: skip
    parameters = engine.resolve_defaults(engine.parameters({"loops": 5}), facts, model()).parameters
    words = engine.command(Tool("/data/p", "benchmark"), parameters, Inputs("/data/p", "/m.ms"))
    assert words == [
        "/data/p", "--modelFile=/m.ms", "--loopCount=5", "--warmUpLoopCount=3", "--numThreads=4",
    ]  # fmt: skip
    silent = facts.model_copy(update={"cpus": ()})
    with pytest.raises(ConfigError, match="does not report its cores"):
        engine.resolve_defaults(engine.parameters({}), silent, model())


def test_failures_that_mindspore_names() -> None:
    engine = chosen("mindspore_lite", "demo")
    said = failure(engine, "OH_AI_ModelBuildFromFile failed, ret: -1.\n")
    assert said == "MindSpore Lite failed: OH_AI_ModelBuildFromFile failed, ret: -1."
    assert "status 3" in str(failure(engine, "", status=3))


def test_a_sample_of_the_runtime() -> None:
    output = [
        {
            "pattern": r"^run (?P<t>\d+) us$",
            "occurs": "every",
            "values": {"t": {"metric": "inference", "unit": "us"}},
        }
    ]
    engine = chosen("nnrt", "sample", output=output)
    assert parse(engine, "run 5 us\nrun 7 us\n").measures[0].values == (5000.0, 7000.0)
    assert failure(engine, "run 5 us\n") is None
    said = failure(engine, "", "OH_NNCompilation_Build: OH_NN_UNAVALIDABLE_DEVICE\n")
    assert said == "Neural Network Runtime failed: OH_NN_UNAVALIDABLE_DEVICE"


@pytest.mark.parametrize(
    ("name", "task", "more", "why"),
    [
        ("nnrt", "sample", {}, "engine.output: this key is required"),
        ("mindspore_lite", "demo", {"program": {}}, "engine.program: a program comes from"),
        ("mindspore_lite", "demo", {"arguments": ["x"]}, "engine.arguments: unknown key"),
    ],
)
def test_what_a_recipe_must_and_must_not_say(
    name: str, task: str, more: dict[str, Any], why: str
) -> None:
    with pytest.raises(ConfigError, match=why):
        chosen(name, task, **more)
