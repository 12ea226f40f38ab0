"""Programs that fail on the board: job, exit 1, a result like any other."""

import hashlib
import json
import os
import re
import resource
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import agent_builds
import pytest
from labs import RECIPE, LabUnderTest, lab_with_board, said
from tiny_gguf import write_tiny_gguf

from labctl import process
from labctl.build.builder import build
from labctl.build.plan import BuildRequest
from labctl.folders import cache_dir
from labctl.virtual import fault_script as f
from labctl.virtual.control import Control

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(3000)]

#: In the place of llama.cpp; does what the word of its prompt says that its seed counts to.
STAND_IN = r"""
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv) {
    const char *way = strtok(argv[argc - 1], " ");
    for (int i = 1; i + 1 < argc; i++)
        if (strcmp(argv[i], "--seed") == 0)
            for (int n = atoi(argv[i + 1]); n > 0; n--) way = strtok(NULL, " ");
    fprintf(stderr, "stand-in: %s\n", way);
    if (strcmp(way, "garbage") == 0) puts("fish and chips");
    if (strcmp(way, "status") == 0) return 7;
    if (strcmp(way, "crash") == 0) abort();
    if (strcmp(way, "kill") == 0) raise(SIGKILL);
    if (strcmp(way, "hang") == 0) pause();
    if (strcmp(way, "flood") == 0) for (;;) fputs("0123456789abcdef", stdout);
    return 0;
}
"""
#: Its ways to fail, with the kind of the failure and what is told of it.
WAYS = {
    "garbage": ("OutputNotUnderstood", "no performance lines of llama.cpp"),
    "nothing": ("OutputNotUnderstood", "no performance lines of llama.cpp"),
    "status": ("ProgramFailed", "llama.cpp ended with status 7"),
    "crash": ("ProgramFailed", "llama.cpp was killed by SIGABRT"),
    "kill": ("ProgramFailed", "llama.cpp was killed by SIGKILL"),
    "flood": ("ProgramFailed", "llama.cpp wrote more than the output limit"),
}
SPEC = """\
product: llama.cpp
description: A program in the place of llama.cpp
builder: compile
default_version: stand-in
versions:
  stand-in: {source: {folder: ../../stand-in}}
tools:
  llama-completion: {sources: [main.c], flags: [-O1, -static], smoke: [status], smoke_status: 7}
"""


@dataclass(frozen=True)
class Failed:
    """A trial that failed, and what the user was told of it meanwhile."""

    record: dict[str, Any]
    told: str
    log: Path

    def check(self, kind: str, *because: str) -> None:
        """Assert what its record says, and what was told."""
        failure = self.record["failure"]
        assert (failure["kind"], failure["blame"]) == (kind, "job")
        assert failure["message"] in self.told
        for reason in because:
            assert reason in self.told


def failed(lab: LabUnderTest, done: process.Completed, count: int) -> list[Failed]:
    """The trials of the only run, in their order, which all failed on the board."""
    assert done.exit_status == 1, said(done)
    assert "Traceback" not in said(done)
    _, *told = re.split(r"^(?=trial \d+/)", said(done), flags=re.MULTILINE)
    assert len(told) == count
    for number, words in enumerate(told, 1):
        assert re.match(rf"trial {number}/{count} \S+: failed \(job\): ", words), words
    assert lab.end()["state"] == "finished"
    trials = json.loads(lab.run("report", "--json").text)["trials"]
    for variant, repeats in Counter(trial["variant"] for trial in trials).items():
        assert re.search(rf"^{variant} +0/{repeats} .* no result *$", done.text, re.MULTILINE)
    assert all(trial["failure"]["message"] in done.text for trial in trials)
    jobs = lab.run("shell", "vb", "--", "ls", f"{lab.board.workdir}/jobs")
    assert jobs.text == ""
    (run,) = lab.root.glob("runs/*/trials")
    logs = [run / f"{trial['number']:03}-{trial['slug']}" / "stderr" for trial in trials]
    return [Failed(*of_trial) for of_trial in zip(trials, told, logs, strict=True)]


def fails(lab: LabUnderTest, done: process.Completed, kind: str, *because: str) -> Failed:
    """The only trial of the only run, which failed on the board."""
    (trial,) = failed(lab, done, 1)
    trial.check(kind, *because)
    return trial


def write_stand_in(root: Path) -> None:
    """A llama.cpp of a lab's own, of a few lines of C."""
    products = root / "toolchains" / "products"
    products.mkdir(parents=True)
    (products / "llama.cpp.yaml").write_text(SPEC)
    (root / "stand-in").mkdir()
    (root / "stand-in" / "main.c").write_text(STAND_IN)


@pytest.fixture(scope="module")
def stand_in_cache(rk3568: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache with what a lab has built of it."""
    root = tmp_path_factory.mktemp("stand-in")
    shared, own = cache_dir(), root / "cache"
    for tool in (agent_builds.native_agent(), agent_builds.exec_shim()):
        artifact = tool.parents[1]
        (own / "artifacts" / artifact.parent.name).mkdir(parents=True, exist_ok=True)
        agent_builds.lend_artifact(artifact, own / "artifacts" / artifact.parent.name)
    (shared / "zig").mkdir(exist_ok=True)
    (own / "zig").symlink_to(shared / "zig")
    write_stand_in(root)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LABCTL_CACHE", str(own))
        build(BuildRequest(target="rk3568", lab_root=root))
    return own


@pytest.fixture
def stand_in(
    tmp_path: Path, private_state: Path, stand_in_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[LabUnderTest]:
    """A lab whose llama.cpp is the stand-in."""
    monkeypatch.setenv("LABCTL_CACHE", str(stand_in_cache))
    write_stand_in(tmp_path)
    with lab_with_board(tmp_path, "--target", "rk3568") as lab:
        yield lab


def test_programs_that_fail(stand_in: LabUnderTest) -> None:
    seeds = [*range(len(WAYS))]
    words = ("--set", f"prompt={' '.join(WAYS)}", "--set", f"matrix.seed={seeds}")
    done = stand_in.run("run", stand_in.recipe(), *words)
    for trial in failed(stand_in, done, len(WAYS)):
        way = list(WAYS)[trial.record["parameters"]["seed"]]
        trial.check(*WAYS[way])
        if way != "flood":
            assert trial.log.read_text().startswith(f"stand-in: {way}\n")


def test_a_program_that_hangs(stand_in: LabUnderTest) -> None:
    words = ("--set", "prompt=hang", "--set", "parameters.seed=0", "--set", "timeouts.trial=1s")
    trial = fails(
        stand_in,
        stand_in.run("run", stand_in.recipe(), *words),
        "ProgramTimeout",
        "llama.cpp did not end in time and was stopped after 1 s",
        "limit: 1.00 s, the recipe's timeouts.trial",
        "--set timeouts.trial=2h",
    )
    assert trial.log.read_text().startswith("stand-in: hang\n")
    assert stand_in.board.marked() == []


def test_an_instruction_that_the_cpu_does_not_have(
    tmp_path: Path, private_state: Path, rk3568: None
) -> None:
    with lab_with_board(tmp_path, "--emulator", "qemu-aarch64-static -cpu cortex-a53") as lab:
        done = lab.run("run", lab.recipe())
        fails(lab, done, "ProgramFailed", "was killed by SIGILL", "build it for the board's target")


def is_about_to_start(lab: LabUnderTest) -> bool:
    return any('"started"' in path.read_text() for path in lab.root.glob("runs/*/journal.jsonl"))


def limit_memory(lab: LabUnderTest) -> None:
    """Of the address space of the board, and of each program that runs on it."""
    resource.prlimit(lab.board.process.pid, resource.RLIMIT_AS, (2 << 30, 2 << 30))


#: What becomes of a model on the board, and what is told of it.
SPOILT: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing": (Path.unlink, "the model is not on the board"),
    "cut": (lambda path: os.truncate(path, 300_000), "the model on the board is truncated"),
    "empty": (lambda path: os.truncate(path, 0), "the model on the board is not a GGUF file"),
    "page": (
        lambda path: path.write_bytes(b"<!DOCTYPE"),
        "the model on the board is not a GGUF file",
    ),
    "vocabulary": (
        lambda path: write_tiny_gguf(path, weights=False),
        "tensors are missing in the model",
    ),
    "huge": (lambda path: os.truncate(path, 8 << 30), "the board ran out of memory"),
}


def test_models_are_spoilt_on_the_board(lab: LabUnderTest) -> None:
    """After they were verified, and before a program starts."""
    limit_memory(lab)
    for name in SPOILT:
        write_tiny_gguf(lab.root / "models" / f"{name}.gguf", name=name)
    files = ", ".join(f"{name}: {{file: models/{name}.gguf}}" for name in SPOILT)
    recipe = lab.recipe(
        RECIPE.replace("models:\n  tiny: {file: models/tiny.gguf}\n", f"models: {{{files}}}\n")
        + f"matrix: {{model: [{', '.join(SPOILT)}]}}\n"
    )
    late = f.Delay(on="shell", matching=" run --dir ", direction="in", packet=1, by="3s")
    Control(lab.board.directory).add(late)
    running = lab.start("run", recipe)
    running.waiting_for(lambda: is_about_to_start(lab))
    for name, (spoil, _) in SPOILT.items():
        data = (lab.root / "models" / f"{name}.gguf").read_bytes()
        spoil(Path(lab.board.workdir, "store", hashlib.sha256(data).hexdigest()))
    for trial in failed(lab, running.finish(), len(SPOILT)):
        name = trial.record["model"]["key"]
        trial.check("ProgramFailed", f"llama.cpp failed: {SPOILT[name][1]}")
        assert name != "huge" or "mmap failed" in trial.record["failure"]["details"]


def test_contexts_that_do_not_fit(lab: LabUnderTest) -> None:
    """The prompt does not fit in it, or it not in the board's memory."""
    limit_memory(lab)
    contexts = {32: "", 1 << 23: "buffer for kv cache", 1 << 21: "failed to allocate compute"}
    prompt = ("--set", f"prompt={'once upon a time ' * 40}", "--set", "parameters.context=")
    done = lab.run("run", lab.recipe(), *prompt, "--set", f"matrix.context={[*contexts]}")
    short, *large = failed(lab, done, len(contexts))
    short.check("ProgramFailed", "the prompt does not fit in the context", "raise the parameter")
    for trial in large:
        trial.check("ProgramFailed", "the board ran out of memory", "use a smaller model")
        assert contexts[trial.record["parameters"]["context"]] in trial.log.read_text()


def test_programs_are_killed(lab: LabUnderTest) -> None:
    """From outside, and by the kernel."""
    signals = {
        "INT": "llama.cpp was killed by SIGINT: it was interrupted",
        "TERM": "llama.cpp was killed by SIGTERM: stopped by SIGTERM from outside",
        "KILL": "SIGKILL: not by the kernel: it counted no out-of-memory kill",
    }
    # None ends before it is killed.
    long = ("--set", "matrix.tokens=[100000, 100001, 100002, 100003]", "--set", "context=131072")
    running = lab.start("run", lab.recipe(), *long, "--set", "parameters.tokens=")
    for number, signal in enumerate(signals, 1):
        running.waiting_for(partial(lab.is_under_way, number))
        (started,) = Path(lab.board.workdir).glob(f"jobs/*-{number}/started.json")
        program = json.loads(started.read_text())["job_pid"]
        lab.run("shell", "vb", "--", "kill", f"-{signal}", str(program))
    # Only with its model in memory is it larger than all else on the board.
    running.waiting_for(lambda: lab.has_written(4, "stdout"))
    Control(lab.board.directory).add(f.OomKill(on="now"))
    *killed, starved = failed(lab, running.finish(), 4)
    for trial, because in zip(killed, signals.values(), strict=True):
        trial.check("ProgramFailed", because)
    because = "SIGKILL: by the kernel, because memory ran out"
    starved.check("ProgramFailed", because, "smaller model")
