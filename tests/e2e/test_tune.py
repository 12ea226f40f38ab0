"""``labctl tune`` on this host: a race, a proof, a sentence."""

import json
import random
import signal
from pathlib import Path
from typing import Any

import agent_builds
import pytest
from labs import LabUnderTest, said

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

#: A program whose pace is a setting; some settings fail, hang or say something else.
TALKER = """\
#!/bin/sh
[ "$2" = fail ] && exit 7
[ "$2" = hang ] && sleep 600
n=0
while [ $n -lt $3 ]; do
  n=$((n + 1)); sleep $1
  if [ "$2" = other ]; then echo word $n; else echo token $n; fi
done
"""
TALKING = f"""\
name: search
target: {agent_builds.HOST}
engine:
  name: command
  program: {{file: tools/talker}}
  arguments: ["{{pace}}", "{{way}}", "{{count}}"]
  tokens: {{stream: stdout, each: line, count: count}}
models: {{none: {{file: models/any.bin}}}}
parameters: {{pace: 0.04, way: usual, count: 8}}
tune:
  space: {{pace: [0.02, 0.04], way: [usual, fail, hang, other]}}
  never: [{{pace: 0.02, way: hang}}]
max_time: 90s
"""
LLAMA = """\
name: search
target: host-x86_64
engine: {name: llama_cpp}
models:
  tiny: {file: models/tiny.gguf}
prompt: once upon
parameters: {tokens: 24, context: 128, threads: 1}
tune:
  space: {threads: [1, 2], repack: [true, false]}
max_time: 30s
"""


def tuning(lab: LabUnderTest) -> dict[str, Any]:
    (path,) = lab.root.glob("runs/*/tuning.json")
    found: dict[str, Any] = json.loads(path.read_text())
    return found


@pytest.fixture
def talking(native_lab: LabUnderTest) -> LabUnderTest:
    (native_lab.root / "tools").mkdir()
    talker = native_lab.root / "tools" / "talker"
    talker.write_text(TALKER)
    talker.chmod(0o755)
    (native_lab.root / "models" / "any.bin").write_bytes(b"\0" * 1000)
    native_lab.recipe(TALKING, "search")
    return native_lab


def test_a_search_is_killed_and_resumed_and_finds_the_faster_setting(
    talking: LabUnderTest,
) -> None:
    running = talking.start("tune", "search")
    running.waiting_for(lambda: len(talking.finished_trials()) >= 4)
    running.process.send_signal(signal.SIGKILL)
    running.finish()
    before = tuning(talking)["rounds"]
    done = talking.run("resume", "latest")
    assert done.exit_status == 0, said(done)
    found = tuning(talking)
    assert found["rounds"][: len(before)] == before
    dropped = {one["setting"]: one["reason"] for one in found["dropped"]}
    assert dropped["way-fail"].startswith("failed: ")
    assert dropped["way-hang"].startswith("slower than 3 times the default's ")
    assert dropped["way-other"] == "guard: other tokens than the default's"
    assert "pace-0.02-way-hang" not in found["settings"]  # `never`
    assert found["named"] == {"decode": "pace-0.02"}
    assert "pace 0.04 → 0.02: decode +" in done.text
    assert "fresh pairs." in done.text
    numbers = [
        number
        for one in found["rounds"]
        for number in range(one["first"], one["first"] + len(one["order"]))
    ]
    (records,) = talking.root.glob("runs/*/records.jsonl")
    lines = [json.loads(line) for line in records.read_text().splitlines()]
    assert [one["number"] for one in lines] == numbers
    page = talking.root / "report.html"
    shown = talking.run("report", "latest", "-o", str(page))
    assert shown.exit_status == 0, said(shown)
    assert "Settings of the search" in page.read_text()
    as_json = json.loads(talking.run("report", "latest", "--json").text)
    assert as_json["tuning"]["proofs"][0]["shown"] is True
    plan = talking.run("plan", "search")
    assert "pace 0.04 → 0.02: decode +" in plan.text
    (talking.root / "models" / "any.bin").write_bytes(b"\1" * 1000)  # another model
    assert "proven in run" not in talking.run("plan", "search").text


def test_a_search_with_llama_cpp(native_lab: LabUnderTest, native_llama: None) -> None:
    native_lab.recipe(LLAMA, "search")
    done = native_lab.run("tune", "search", "--seed", "7", "--json")
    assert done.exit_status == 0, said(done)
    found = json.loads(done.text)["tuning"]
    assert set(found["settings"]) == {"threads-2", "repack-false", "threads-2-repack-false"}
    assert found["sentences"]
    assert found["seed"] == 7
    kinds = [one["kind"] for one in found["rounds"]]
    assert kinds[:3] == ["first", "first", "race"]
    (proof,) = found["proofs"] or [None]
    if proof is not None and proof["shown"]:  # noise decides on a tiny model
        assert proof["low"] > 1


def test_a_setting_with_other_tokens_is_guarded_by_its_divergence(
    native_lab: LabUnderTest, native_llama: None
) -> None:
    letters = random.Random(1)
    text = "".join(letters.choice("abcdefgh ") for _ in range(4000))
    (native_lab.root / "text.txt").write_text(text)
    words = ("--text", "text.txt", "-o", "base.bin", "--context", "64", "--chunks", "4")
    made = native_lab.run("models", "logits", "models/tiny.gguf", *words)
    assert made.exit_status == 0, said(made)
    space = "threads: [1, 2], repack: [true, false]"
    recipe = LLAMA.replace(space, "tokens: [24, 20]").replace(
        "tune:\n", "files: {base_logits: base.bin}\ntune:\n  divergence: 5\n"
    )
    native_lab.recipe(recipe, "search")
    running = native_lab.start("tune", "search")
    running.waiting_for(lambda: len(native_lab.finished_trials()) >= 1)  # the default's guard
    running.process.send_signal(signal.SIGKILL)
    running.finish()
    done = native_lab.run("resume", "latest")
    assert done.exit_status == 0, said(done)
    found = tuning(native_lab)
    first = found["rounds"][0]
    assert (first["kind"], first["order"], found["divergence"]) == ("guard", ["default"], 5)
    guards = [one["order"] for one in found["rounds"] if one["kind"] == "guard"]
    # Both take as long for a token: chance chooses whether the default is the faster one.
    assert guards in ([["default"]], [["default"], ["tokens-20"]])
    assert len(guards) == 2 or found["named"].get("decode") != "tokens-20"
    (records,) = native_lab.root.glob("runs/*/records.jsonl")
    one = json.loads(records.read_text().splitlines()[0])
    assert (one["variant"], one["repeat"]) == ("guard-default", 0)
    assert "--kl-divergence" in one["argv"]
    shown = native_lab.run("report", "latest", "-o", str(native_lab.root / "report.html"))
    assert shown.exit_status == 0, said(shown)

    (native_lab.root / "base.bin").write_bytes(b"no logits")
    done = native_lab.run("tune", "search")
    assert done.exit_status == 2, said(done)
    assert "base.bin is not a complete file of logits" in said(done)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            ("threads: [1, 2], repack: [true, false]", "threads: [1]"),
            "one point: nothing to choose",
        ),
        (("repack:", "repak:"), "repak"),
        (("tune:\n", "tune:\n  objectives: [energy]\n"), "energy: board vb has no meter"),
        (("tune:\n", "tune:\n  objectives: [prefill]\n"), "prefill: the prompt has about 3 tokens"),
        (("threads: 1}", "threads: 1, temperature: 1}"), "the default itself fails the guard"),
    ],
)
def test_a_search_that_could_prove_nothing_is_refused(
    native_lab: LabUnderTest, native_llama: None, change: tuple[str, str], message: str
) -> None:
    native_lab.recipe(LLAMA.replace(*change), "search")
    done = native_lab.run("tune", "search")
    assert done.exit_status == 2, said(done)
    assert message in said(done)
    assert not list(Path(native_lab.root).glob("runs/*/run.json"))


def test_an_empty_tune_is_the_whole_built_in_space(talking: LabUnderTest) -> None:
    bare = TALKING[: TALKING.index("tune:")] + "max_time: 90s\ntune:\n"
    talking.recipe(bare, "search")
    done = talking.run("tune", "search", "--seed", "3")
    assert done.exit_status == 2, said(done)
    assert "one point: nothing to choose from" in said(done)  # such a program has no such space


def test_a_default_that_fails_ends_the_search(talking: LabUnderTest) -> None:
    talking.recipe(TALKING.replace("way: usual", "way: fail"), "search")
    done = talking.run("tune", "search")
    assert done.exit_status == 1, said(done)
    assert "the default failed in its first trial" in said(done)
    assert len(talking.finished_trials()) == 1


def test_a_budget_that_is_too_small_says_how_long_the_smallest_search_takes(
    talking: LabUnderTest,
) -> None:
    done = talking.run("tune", "search", "--budget", "1s")
    assert done.exit_status == 2, said(done)
    assert "is too small: the smallest search takes about " in said(done)
