"""Engines on a virtual board: benchmarks, and programs that only the recipe knows."""

import json
import math
import os
import random
from typing import Any

import agent_builds
import pytest
from labs import LabUnderTest, blamed, said
from meters import answer, serving

from labctl.file_hashes import sha256_file

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(3000)]

BENCH = """\
name: bench
target: rk3568
engine: {name: llama_cpp, task: bench}
models: {tiny: {file: models/tiny.gguf}}
parameters: {prompt_tokens: 16, tokens: 8, repetitions: 3, threads: 2}
max_time: 10m
"""
COMMAND = """\
name: counting
target: rk3568
engine:
  name: command
  program: {file: tools/count}
  arguments: ["{tokens}", "{prompt}", "{model}", "{file:words}"]
  tokens: {stream: stdout, each: line, count: tokens}
  output:
    - stream: stderr
      pattern: '^loaded (?P<bytes>[0-9]+) bytes in (?P<load>[0-9.]+) ms$'
      values:
        bytes: {metric: model_bytes, unit: bytes}
        load: {metric: load, unit: ms}
    - {stream: stderr, json_lines: true, values: {words: {metric: words, unit: number}}}
  success: {require: "^end$"}
models: {tiny: {file: models/other.bin}}
files: {words: words.txt}
prompt: "two words; $(reboot)"
parameters: {tokens: 5}
repeats: 2
max_time: 5m
"""
PERPLEXITY = f"""\
name: perplexity
target: {agent_builds.HOST}
engine: {{name: llama_cpp, task: perplexity}}
models: {{tiny: {{file: models/tiny.gguf}}}}
files: {{text: text.txt}}
parameters: {{context: 64, chunks: 3, threads: 1}}
repeats: 2
max_time: 10m
infra_retries: 30  # with so small a model, the program often ends before its log is printed
"""
COUNT = """\
#!/bin/sh
[ "$2" = 'two words; $(reboot)' ] || exit 9
echo "loaded $(wc -c < "$3") bytes in 1.5 ms" >&2
n=0
while [ "$n" -lt "$1" ]; do sleep 0.1; echo "token $n"; n=$((n + 1)); done
echo "{\\"words\\": $(wc -w < "$4")}" >&2
echo end >&2
"""


def results(lab: LabUnderTest, recipe: str, *words: str) -> dict[str, Any]:
    done = lab.run("run", recipe, *words, "--json")
    assert done.exit_status == 0, said(done)
    document: dict[str, Any] = json.loads(done.stdout)
    return document


@pytest.mark.parametrize(
    ("version", "commit"),
    [("new", "0c1e570"), pytest.param("classic", "4227c9b", marks=pytest.mark.soak)],
)
def test_llama_bench_of_both_versions(lab: LabUnderTest, version: str, commit: str) -> None:
    recipe = lab.recipe(BENCH, "bench")
    document = results(lab, recipe, "--set", f"engine.version={version}", "--set", "repeats=2")
    (row,) = document["rows"]
    assert [(test["name"], test["repetitions"]) for test in row["tests"]] == [
        ("pp16", 6),
        ("tg8", 6),
    ]
    for trial in document["trials"]:
        assert trial["timing"]["program_version"].startswith(commit)
        assert trial["comparability"]["build_commit"].startswith(commit)
        assert len(trial["comparability"]["build_key"]) == 64
        checks = {check["name"]: check["ok"] for check in trial["checks"]}
        assert {"repetitions": True, "build": True}.items() <= checks.items()
    table = lab.run("report").text
    assert "pp16" in table
    assert "tg8" in table


def test_a_model_that_llama_bench_cannot_load_is_told(lab: LabUnderTest) -> None:
    model = lab.root / "models" / "tiny.gguf"
    # The header is whole, and says something that no LLaMA can be.
    model.write_bytes(model.read_bytes().replace(b"output_norm.weight", b"output_mron.weight"))
    done = lab.run("run", lab.recipe(BENCH, "bench"))
    assert done.exit_status == 1, said(done)
    assert "llama.cpp failed: the model" in done.text


def count(lab: LabUnderTest, recipe: str = COMMAND) -> str:
    (lab.root / "tools").mkdir()
    (lab.root / "tools" / "count").write_text(COUNT)
    (lab.root / "models" / "other.bin").write_bytes(b"not a GGUF file")
    (lab.root / "words.txt").write_text("one two three\n")
    return lab.recipe(recipe, "counting")


def test_a_program_of_the_lab_with_its_files(lab: LabUnderTest) -> None:
    document = results(lab, count(lab))
    for trial in document["trials"]:
        timing = trial["timing"]
        assert timing["load_ns"] == 1_500_000
        assert {m["name"]: m["value"] for m in timing["measures"]} == {
            "model_bytes": 15,
            "words": 3,
        }
        assert timing["generated_tokens"] == 5
        assert len(timing["token_ns"]) == 4
        assert min(timing["token_ns"]) > 90_000_000
        assert trial["model"]["quantization"] is None
        conditions = trial["comparability"]
        assert len(conditions["prompt_sha256"]) == len(conditions["program_sha256"]) == 64
        assert list(conditions["files_sha256"]) == ["words"]
        assert conditions["build_key"] is None
    table = lab.run("report").text
    assert "model_bytes" in table
    assert "15 B" in table


def test_a_program_that_fails_is_told_in_the_recipes_words(lab: LabUnderTest) -> None:
    done = lab.run("run", count(lab), "--set", 'engine.success.require="^finish$"')
    assert done.exit_status == 1
    assert "tools/count did not print the recipe's success pattern: '^finish$'" in done.text


ECHO = f"""\
name: echo
target: rk3568
engine:
  name: command
  program: {{board: /bin/echo}}
  arguments: ["{{word}}"]
  output: [{{pattern: '(?P<n>(a+)+)b', values: {{n: {{metric: n, unit: number}}}}}}]
models: {{tiny: {{file: models/tiny.gguf}}}}
parameters: {{word: {"a" * 60}}}
max_time: 5m
"""


def test_a_program_of_the_board(lab: LabUnderTest) -> None:
    recipe = lab.recipe(ECHO.replace("(a+)+", "."), "echo")
    done = lab.run("run", recipe, "--set", "parameters.word=7b")
    assert done.exit_status == 0, said(done)
    assert " 7 " in done.text


@pytest.mark.soak  # ten seconds of a processor
def test_a_pattern_that_never_ends(lab: LabUnderTest) -> None:
    done = lab.run("run", lab.recipe(ECHO, "echo"))
    assert done.exit_status == 1
    assert "in this output did not end within 10 s" in done.text


def test_the_perplexity_of_a_text(native_lab: LabUnderTest, native_llama: None) -> None:
    letters = random.Random(1)
    text = "".join(letters.choice("abcdefgh ") for _ in range(4000))
    (native_lab.root / "text.txt").write_text(text)
    recipe = native_lab.recipe(PERPLEXITY, "perplexity")
    document = results(native_lab, recipe)
    first, second = document["trials"]
    (measure,) = first["timing"]["measures"]
    assert (measure["name"], len(measure["values"])) == ("perplexity", 3)
    # The weights are random: it foresees about as little as somebody who guesses.
    assert 50 < measure["value"] < 5000
    assert 0 < measure["error"] < measure["value"]
    assert [check["ok"] for check in first["checks"] if check["name"] == "chunks"] == [True]
    # One thread adds in one order.
    assert second["timing"]["measures"] == first["timing"]["measures"]
    table = native_lab.run("report").text
    assert "NATIVE HOST" in table
    assert "perplexity" in table
    native_lab.run("run", recipe, "--set", "parameters.chunks=5000", "--set", "repeats=1")
    assert "FAILED: chunks" in native_lab.run("report", "--wide").text


def test_the_divergence_of_a_model_from_itself(
    native_lab: LabUnderTest, native_llama: None
) -> None:
    letters = random.Random(1)
    text = "".join(letters.choice("abcdefgh ") for _ in range(4000))
    (native_lab.root / "text.txt").write_text(text)
    words = ("--text", "text.txt", "-o", "base.bin", "--context", "64", "--chunks", "4")
    bad = native_lab.run("models", "logits", "models/tiny.gguf", *words, "--set", "cache_typ_v=f16")
    blamed(bad, 2, "config", "parameters.cache_typ_v: unknown key (did you mean 'cache_type_v'?)")
    bad = native_lab.run("models", "logits", "models/tiny.gguf", *words, "--set", "context=128")
    blamed(bad, 2, "config", "--set context=…: use the option --context")
    words += ("--set", "flash_attention=false", "--set", "mmap=false", "--set", "cpu_strict=true")
    made = native_lab.run("models", "logits", "models/tiny.gguf", *words)
    assert made.exit_status == 0, said(made)
    about = json.loads((native_lab.root / "base.bin.json").read_text())
    assert (about["context"], about["chunks"], about["model"]) == (64, 4, "tiny.gguf")
    parameters = about["parameters"]
    assert (parameters["flash_attention"], parameters["mmap"]) == (False, False)
    # Not all on the first CPU: each thread has its own.
    assert parameters["threads"] == len(os.sched_getaffinity(0))
    assert about["sha256"] == sha256_file(native_lab.root / "base.bin")
    text = PERPLEXITY.replace("task: perplexity", "task: kl_divergence").replace(", chunks: 3", "")
    recipe = native_lab.recipe(text.replace("text: text.txt", "base_logits: base.bin"), "kld")
    document = results(native_lab, recipe)
    measures = {one["name"]: one for one in document["trials"][0]["timing"]["measures"]}
    # Probabilities are kept in 16 bits.
    assert abs(measures["kl_divergence"]["value"]) < 0.01
    assert measures["same_top_token"]["value"] > 0.9
    assert abs(measures["perplexity_ratio"]["value"] - 1) < 0.01
    assert len(measures["kl_divergence"]["values"]) == 4

    (native_lab.root / "base.bin").write_bytes(b"no logits")
    done = native_lab.run("run", recipe, "--set", "repeats=1")
    assert done.exit_status == 1, said(done)
    assert "base_logits is not a complete file of logits" in done.text


def test_a_text_that_is_too_short(native_lab: LabUnderTest, native_llama: None) -> None:
    (native_lab.root / "text.txt").write_text("short\n")
    done = native_lab.run("run", native_lab.recipe(PERPLEXITY, "perplexity"))
    assert done.exit_status == 1, said(done)
    assert "the text is too short for one chunk and its context" in done.text


def metered(lab: LabUnderTest, power: str, tokens: int) -> dict[str, Any]:
    """One trial of the program that counts, on a board with a meter."""
    with (lab.root / "devices.yaml").open("a") as devices:
        devices.write(f"    power: {power}\n")
    recipe = count(lab, COMMAND.replace("rk3568", agent_builds.HOST))
    words = ("--set", "repeats=1", "--set", f"parameters.tokens={tokens}")
    done = lab.run("run", recipe, *words, "--json")
    assert done.exit_status == 0, said(done)
    (trial,) = json.loads(done.stdout)["trials"]
    # A meter that does not answer is told before anything is measured.
    early = said(done).partition("trial 1/1")[0]
    assert ("note: energy will not be measured" in early) is (trial["energy"]["joules"] is None)
    return dict(trial)


def test_the_energy_of_a_trial_by_a_plug(native_lab: LabUnderTest) -> None:
    with serving(answer(b'{"apower": 5.0}')) as port:
        power = f"{{kind: http, address: 'http://127.0.0.1:{port}/s', field: apower, unit: W}}"
        trial = metered(native_lab, power, tokens=60)
    energy, seconds = trial["energy"], trial["job"]["wall_ns"] / 1e9
    assert energy["absent"] is None, energy
    assert seconds > 5.9
    assert math.isclose(energy["joules"], 5 * seconds, rel_tol=1e-6)
    assert (energy["mean_watts"], energy["peak_watts"]) == (5, 5)
    assert energy["coverage"] > 0.99  # on a busy host a sample may be late
    # 59 gaps of 0.1 s and a little.
    span = sum(trial["timing"]["token_ns"]) / 1e9
    assert math.isclose(energy["joules_per_token"], 5 * span / 59, rel_tol=1e-6)
    assert energy["readings"] >= 4
    # An idle board that draws as much leaves nothing for the tokens; here, 6 readings tell nothing.
    assert energy["idle_watts"] == 5
    assert energy["idle_readings"] >= 20
    assert energy["decode"]["joules_per_token"] is None
    assert "readings in the phase; 10 are the least" in energy["decode"]["absent"]
    # Both clocks are this host's.
    (folder,) = native_lab.root.glob("runs/*/trials/*")
    asked = [json.loads(line) for line in (folder / "power.jsonl").read_text().splitlines()]
    start, end = (trial["job"][f"{name}_mono_ns"] for name in ("start", "end"))
    unsure = energy["clock_uncertainty_ns"]
    assert asked[0]["answered_ns"] <= start + unsure
    assert asked[-1]["asked_ns"] >= end - unsure
    table = native_lab.run("report", "--wide").text
    assert "mean power" in table
    assert "5.00 W" in table


def test_a_meter_that_fails_costs_the_energy_alone(native_lab: LabUnderTest) -> None:
    power = "{kind: command, command: [sh, -c, 'echo no answer; exit 3'], unit: mW}"
    trial = metered(native_lab, power, tokens=3)
    assert trial["state"] == "ok"
    energy = trial["energy"]
    assert energy["joules"] is None
    assert "the meter (command sh) ended with status 3: no answer" in energy["absent"]
    assert "the energy of 1 of its trials is not known" in native_lab.run("report").text


def test_the_example_of_a_program_that_prints_json(lab: LabUnderTest) -> None:
    """As it is shipped, but for its model."""
    words = ["--set", "models.base.pypi=", "--set", "models.base.file=models/tiny.gguf"]
    document = results(lab, "command_json_lines", *words, "--set", "matrix.threads=[1]")
    for trial, folder in zip(document["trials"], lab.finished_trials(), strict=True):
        timing = trial["timing"]
        printed = json.loads((folder / "stdout").read_text())
        assert timing["generated_tokens"] == 16
        assert timing["eval_ns"] == printed["avg_ns"] > 0
        assert math.isclose(timing["tokens_per_second"], printed["avg_ts"], rel_tol=1e-6)
        assert [measure["name"] for measure in timing["measures"]] == ["first_repetition"]
    assert "tokens/s" in lab.run("report").text


#: By recipe: what stands in for the program that a user brings, and what its table has to show.
KITS = {
    "mindspore_benchmark": (
        "programs/benchmark",
        """\
#!/bin/sh
for word; do case $word in
--modelFile=*) model=${word#*=};; --numThreads=*) threads=${word#*=};; --loopCount=50) loops=50;;
esac; done
[ -s "$model" ] && [ -n "$loops" ] || exit 1
echo "ModelPath = $model"
echo "PrepareTime = 12.5 ms"
echo "Model = mobilenetv2.ms, NumThreads = $threads, MinRunTime = 40.125000 ms," \\
  "MaxRuntime = 50.500000 ms, AvgRunTime = 42.250000 ms"
""",
        "inference_mean",
        "42.2 ms",
    ),
    "mindspore_demo": (
        "programs/demo",
        """\
#!/bin/sh
[ -s "$1" ] || { echo "OH_AI_ModelBuildFromFile failed, ret: -1."; exit 0; }
printf 'Tensor name: Softmax-65, tensor size is 12 ,elements num: 3.\\noutput data is:\\n'
printf '0.250000 -0.500000 1.5e-05 \\n'
""",
        "tensor Softmax-65",
        "1.5e-05",
    ),
    "nnrt_sample": (
        "programs/nnrt_sample",
        "#!/bin/sh\nfor us in 1200 1300 1100; do echo run $us us; done\n",
        "inference",
        "1.20 ms",
    ),
}


@pytest.mark.parametrize("recipe", KITS)
def test_the_examples_that_need_a_kit(native_lab: LabUnderTest, recipe: str) -> None:
    path, program, measure, value = KITS[recipe]
    (native_lab.root / "programs").mkdir()
    (native_lab.root / path).write_text(program)
    (native_lab.root / "models" / "mobilenetv2.ms").write_bytes(b"MSL2 stands in for a model")
    changes = [f"target={agent_builds.HOST}", f"engine.program.file={path}"]
    if recipe == "mindspore_demo":
        changes += ["engine.program.product=", "engine.program.tool="]
    words = [word for change in changes for word in ("--set", change)]
    document = results(native_lab, recipe, *words)
    assert {trial["state"] for trial in document["trials"]} == {"ok"}
    assert {trial["model"]["quantization"] for trial in document["trials"]} == {None}
    lines = [line for line in native_lab.run("report").text.splitlines() if f" {measure} " in line]
    assert lines
    assert all(value in line for line in lines)


@pytest.mark.parametrize("line", [b"#!/bin/sh\r\n", b"#!/no/such/sh\n"])
def test_a_script_whose_interpreter_the_board_lacks_is_a_fault_of_the_recipe(
    lab: LabUnderTest, line: bytes
) -> None:
    program = lab.root / "tools" / "script.sh"
    program.parent.mkdir(exist_ok=True)
    program.write_bytes(line + b"echo 1\n")
    program.chmod(0o755)
    recipe = lab.recipe(
        "name: script\ntarget: rk3568\n"
        "engine:\n  name: command\n  program: {file: tools/script.sh}\n"
        '  arguments: ["{tokens}"]\n  tokens: {stream: stdout, each: line, count: tokens}\n'
        "models: {tiny: {file: models/tiny.gguf}}\nparameters: {tokens: 1}\nmax_time: 5m\n",
        "script",
    )
    done = lab.run("run", recipe)
    assert done.exit_status == 2, said(done)
    name = "/bin/sh\\x0d" if b"\r" in line else "/no/such/sh"
    assert f"its interpreter {name} is not there" in said(done)
    assert ("line ends of Windows" in said(done)) == (b"\r" in line)
    assert "labctl deploy" not in said(done)
