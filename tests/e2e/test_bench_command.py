"""``labctl bench``: from a GGUF file and an address to a number, without a lab."""

import csv
import io
import json
import re
import shutil
import signal
import uuid
from pathlib import Path
from typing import Any

import agent_builds
import pytest
from labs import LabUnderTest, blamed, said, write_devices
from tiny_gguf import write_tiny_gguf

from labctl.build.artifact import artifacts_dir

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

SHORT = ("--set", "tokens=6", "--set", "repeats=2", "--set", "warm_up=0")
#: What a second run of the same recipe measures anew, and when.
MEASURED = [
    "timing",
    "job",
    "evidence",
    "checks",
    "conditions",
    "took_ns",
    "waited_ns",
    "limit",
    "started",
    "finished",
    "epoch",
]
OF_ITS_OWN = ("id", "started", "finished", "epoch", "facts")


def alike(document: dict[str, Any]) -> tuple[object, object]:
    """Records without what is measured; the state of the host's page cache is, too."""
    run = {key: value for key, value in document["run"].items() if key not in OF_ITS_OWN}
    left_out = (*MEASURED, *OF_ITS_OWN)
    trials = [
        {key: value for key, value in trial.items() if key not in left_out}
        for trial in document["trials"]
    ]
    for trial in trials:
        assert trial["comparability"].pop("model_cache")
    return run, trials


def test_files_are_measured_at_an_address_without_a_lab(lab: LabUnderTest) -> None:
    """And the printed recipe makes the same records, times apart."""
    (lab.root / "devices.yaml").unlink()
    write_tiny_gguf(lab.root / "models" / "Other.Model.gguf")
    words = ("models/tiny.gguf", "models/Other.Model.gguf", "--board", lab.board.address, *SHORT)
    recipe = lab.run("bench", *words, "--print-recipe")
    assert recipe.exit_status == 0, said(recipe)
    assert "target rk3568" in said(recipe)
    done = lab.run("bench", *words, "--format", "json", "-o", "result.json")
    assert done.exit_status == 0, said(done)
    assert done.text == ""
    document = json.loads((lab.root / "result.json").read_text())
    first, second = document["rows"]
    assert (first["variant"], second["variant"]) == ("tiny", "other-model")
    assert first["trials_ok"] == second["trials_ok"] == 2
    assert second["ratio"] > 0
    assert Path(document["directory"]).parent == lab.root / "state" / "lab" / "runs"

    (lab.root / "again.yaml").write_text(recipe.text)
    again = lab.run("run", "again.yaml", "--board", lab.board.address, "--json")
    assert again.exit_status == 0, said(again)
    assert alike(json.loads(again.text)) == alike(document)

    table = lab.run("report", "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(table.text)))
    assert [row["variant"] for row in rows] == ["tiny", "other-model"]
    assert rows[0]["execution"] == "emulated"
    assert int(rows[0]["token_ns"]) > 0
    lines = lab.run("report", "--format", "jsonl").text.splitlines()
    assert [json.loads(line)["number"] for line in lines] == [1, 2, 3, 4]
    shown = lab.run("report", "--format", "md").text
    assert "| tiny |" in shown
    assert "EMULATED" in shown


@pytest.mark.parametrize("in_lab", [False, True])
def test_a_bench_that_was_ended_is_resumed_at_its_address(lab: LabUnderTest, in_lab: bool) -> None:
    """As Ctrl-C says; also in a lab that has another board."""
    if in_lab:
        write_devices(lab.root, "127.0.0.1:1", "/data/local/tmp/labctl")
    else:
        (lab.root / "devices.yaml").unlink()
    words = ("bench", "models/tiny.gguf", "--board", lab.board.address, *SHORT)
    running = lab.start(*words, "--set", "repeats=3")
    trials = (lab.root if in_lab else lab.root / "state" / "lab") / "runs"
    running.waiting_for(lambda: any(trials.glob("*/trials/001-*/record.json")))
    running.process.send_signal(signal.SIGINT)
    ended = running.finish()
    assert ended.exit_status == 130
    found = re.search(r"to continue: labctl (resume \S+)", said(ended))
    assert found, said(ended)
    done = lab.run(*found[1].split(), "--json")
    assert done.exit_status == 0, said(done)
    assert len(json.loads(done.text)["trials"]) == 3


def test_what_is_not_built_is_told(lab: LabUnderTest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LABCTL_CACHE", str(lab.root / "empty"))
    blamed(
        lab.run("bench", "models/tiny.gguf"), 2, "config", "no llama.cpp (new) is built",
        "labctl build --target rk3568 --product llama.cpp",
    )  # fmt: skip


HELLO = """\
product: {product}
description: prints three tokens
builder: compile
default_version: first
versions:
  first: {{source: {{folder: ../../hello}}}}
tools:
  hello: {{sources: [hello.c], flags: [-O2, -static]}}
"""
RECIPE = """\
name: hello
target: {target}
engine:
  name: command
  program: {{product: {product}, tool: hello}}
  arguments: []
  tokens: {{stream: stdout, each: line}}
models: {{none: {{file: models/tiny.gguf}}}}
max_time: 5m
"""


def test_run_builds_what_is_missing_on_demand(native_lab: LabUnderTest) -> None:
    root, product = native_lab.root, f"hello-{uuid.uuid4().hex[:8]}"
    folder = root / "toolchains" / agent_builds.HOST
    folder.mkdir(parents=True)
    (folder / f"{product}.yaml").write_text(HELLO.format(product=product))
    (root / "hello").mkdir()
    (root / "hello" / "hello.c").write_text(
        '#include <stdio.h>\nint main(void) { puts("a"); puts("b"); puts("c"); return 0; }\n'
    )
    recipe = native_lab.recipe(RECIPE.format(product=product, target=agent_builds.HOST), "hello")
    try:
        blamed(native_lab.run("run", recipe), 2, "config", f"no {product} (first) is built")
        done = native_lab.run("run", recipe, "--build")
        assert done.exit_status == 0, said(done)
        assert "compile" in said(done)
        assert "NATIVE HOST" in done.text
        again = native_lab.run("run", recipe, "--build")
        assert "compile" not in said(again)
    finally:
        for made in (artifacts_dir() / agent_builds.HOST).glob(f"{product}-*"):
            made.unlink() if made.is_symlink() else shutil.rmtree(made)
