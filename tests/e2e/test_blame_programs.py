"""Programs that fail on the board: job, exit 1, a result like any other."""

import hashlib
import json
import os
import resource
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from labs import LabUnderTest, RunningLabctl, lab_with_board, said
from tiny_gguf import write_tiny_gguf

from labctl import process
from labctl.build import BuildRequest, build
from labctl.files import cache_dir
from labctl.virtual import Control
from labctl.virtual import fault_script as f

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(3000)]

#: Does what its prompt says, in the place of llama.cpp.
STAND_IN = r"""
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv) {
    const char *prompt = argv[argc - 1];
    fprintf(stderr, "stand-in: %s\n", prompt);
    if (strcmp(prompt, "garbage") == 0) puts("fish and chips");
    if (strcmp(prompt, "status") == 0) return 7;
    if (strcmp(prompt, "crash") == 0) abort();
    if (strcmp(prompt, "kill") == 0) raise(SIGKILL);
    if (strcmp(prompt, "hang") == 0) pause();
    if (strcmp(prompt, "flood") == 0) for (;;) fputs("0123456789abcdef", stdout);
    return 0;
}
"""
#: Does not end before it is killed.
LONG = ("--set", "tokens=100000", "--set", "context=131072")
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


def fails(lab: LabUnderTest, done: process.Completed, *because: str) -> dict[str, str]:
    """The recorded failure of a run whose only trial failed on the board."""
    assert done.exit_status == 1, said(done)
    (line,) = [line for line in said(done).splitlines() if "failed" in line]
    assert line.startswith("trial 1/1 tiny-r1: failed (job): "), line
    assert "Traceback" not in said(done)
    assert "0/1" in done.text
    assert "no result" in done.text
    for reason in because:
        assert reason in said(done)
    assert lab.end()["state"] == "finished"
    (trial,) = json.loads(lab.run("report", "--json").text)["trials"]
    failure: dict[str, str] = trial["failure"]
    assert failure["blame"] == "job"
    assert failure["message"] in done.text
    jobs = lab.run("shell", "vb", "--", "ls", f"{lab.board.workdir}/jobs")
    assert jobs.text == ""
    return failure


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
    own.mkdir()
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


@pytest.mark.parametrize(
    ("prompt", "kind", "because"),
    [
        ("garbage", "OutputNotUnderstood", "no performance lines of llama.cpp"),
        ("nothing", "OutputNotUnderstood", "no performance lines of llama.cpp"),
        ("status", "ProgramFailed", "llama.cpp ended with status 7"),
        ("crash", "ProgramFailed", "llama.cpp was killed by SIGABRT"),
        ("kill", "ProgramFailed", "llama.cpp was killed by SIGKILL"),
        ("hang", "ProgramTimeout", "llama.cpp did not end in time and was stopped after 1 s"),
        ("flood", "ProgramFailed", "llama.cpp wrote more than the output limit"),
    ],
)
def test_programs_that_fail(stand_in: LabUnderTest, prompt: str, kind: str, because: str) -> None:
    words = ("--set", f"prompt={prompt}", "--set", "timeouts.trial=1s")
    if prompt == "flood":
        words = words[:2]
    failure = fails(stand_in, stand_in.run("run", stand_in.recipe(), *words), because)
    assert failure["kind"] == kind
    if prompt != "flood":
        (log,) = stand_in.root.glob("runs/*/trials/*/stderr")
        assert log.read_text().startswith(f"stand-in: {prompt}\n")


def test_an_instruction_that_the_cpu_does_not_have(
    tmp_path: Path, private_state: Path, rk3568: None
) -> None:
    with lab_with_board(tmp_path, "--emulator", "qemu-aarch64-static -cpu cortex-a53") as lab:
        done = lab.run("run", lab.recipe())
        failure = fails(lab, done, "was killed by SIGILL", "build it for the board's target")
    assert failure["kind"] == "ProgramFailed"


def before_it_starts(lab: LabUnderTest) -> RunningLabctl:
    """A run whose only trial is about to start: the models are on the board and verified."""
    late = f.Delay(on="shell", matching=" run --dir ", direction="in", packet=1, by="3s")
    Control(lab.board.directory).add(late)
    running = lab.start("run", lab.recipe())
    running.waiting_for(lambda: has_begun(lab))
    return running


def has_begun(lab: LabUnderTest) -> bool:
    return any('"started"' in path.read_text() for path in lab.root.glob("runs/*/journal.jsonl"))


def on_board(lab: LabUnderTest) -> Path:
    """The tiny model's place on the board."""
    data = (lab.root / "models" / "tiny.gguf").read_bytes()
    return Path(lab.board.workdir, "store", hashlib.sha256(data).hexdigest())


def limit_memory(lab: LabUnderTest) -> None:
    """Of the address space of the board, and of each program that runs on it."""
    resource.prlimit(lab.board.process.pid, resource.RLIMIT_AS, (4 << 30, 4 << 30))


@pytest.mark.parametrize(
    ("spoil", "because"),
    [
        (Path.unlink, "the model is not on the board"),
        (lambda path: os.truncate(path, 300_000), "the model on the board is truncated"),
        (lambda path: os.truncate(path, 0), "the model on the board is not a GGUF file"),
        (lambda path: path.write_bytes(b"<!DOCTYPE"), "the model on the board is not a GGUF file"),
        (lambda path: write_tiny_gguf(path, weights=False), "tensors are missing in the model"),
    ],
    ids=["missing", "cut short", "empty", "web page", "vocabulary"],
)
def test_a_model_is_spoilt_on_the_board(
    lab: LabUnderTest, spoil: Callable[[Path], object], because: str
) -> None:
    running = before_it_starts(lab)
    spoil(on_board(lab))
    failure = fails(lab, running.finish(), f"llama.cpp failed: {because}")
    assert failure["kind"] == "ProgramFailed"


def test_a_model_does_not_fit_in_the_address_space(lab: LabUnderTest) -> None:
    limit_memory(lab)
    running = before_it_starts(lab)
    os.truncate(on_board(lab), 8 << 30)
    failure = fails(lab, running.finish(), "the board ran out of memory")
    assert "mmap failed" in failure["details"]


@pytest.mark.parametrize(
    ("context", "line"),
    [(1 << 24, "buffer for kv cache"), (1 << 22, "failed to allocate compute")],
    ids=["cache", "compute"],
)
def test_memory_runs_out(lab: LabUnderTest, context: int, line: str) -> None:
    limit_memory(lab)
    done = lab.run("run", lab.recipe(), "--set", f"context={context}")
    failure = fails(lab, done, "the board ran out of memory", "use a smaller model")
    assert failure["kind"] == "ProgramFailed"
    (log,) = lab.root.glob("runs/*/trials/*/stderr")
    assert line in log.read_text()


@pytest.mark.parametrize(
    ("signal", "because"),
    [
        ("INT", "llama.cpp was killed by SIGINT: it was interrupted"),
        ("TERM", "llama.cpp was killed by SIGTERM: stopped by SIGTERM from outside"),
        ("KILL", "SIGKILL: not by the kernel: it counted no out-of-memory kill"),
    ],
)
def test_the_program_is_killed_from_outside(lab: LabUnderTest, signal: str, because: str) -> None:
    running = lab.start("run", lab.recipe(), *LONG)
    running.waiting_for(lambda: lab.is_under_way(1))
    (started,) = Path(lab.board.workdir).glob("jobs/*/started.json")
    program = json.loads(started.read_text())["job_pid"]
    lab.run("shell", "vb", "--", "kill", f"-{signal}", str(program))
    assert fails(lab, running.finish(), because)["kind"] == "ProgramFailed"


def test_the_kernel_kills_the_program_for_want_of_memory(lab: LabUnderTest) -> None:
    running = lab.start("run", lab.recipe(), *LONG)
    # Only with its model in memory is it larger than all else on the board.
    running.waiting_for(lambda: lab.has_written(1, "stdout"))
    Control(lab.board.directory).add(f.OomKill(on="now"))
    failure = fails(
        lab, running.finish(), "SIGKILL: by the kernel, because memory ran out", "smaller model"
    )
    assert failure["kind"] == "ProgramFailed"


def test_the_program_takes_too_long(lab: LabUnderTest) -> None:
    words = ("--set", "timeouts.trial=1s", "--set", "tokens=100000", "--set", "context=131072")
    limit = "limit: 1.00 s, the recipe's timeouts.trial"
    failure = fails(lab, lab.run("run", lab.recipe(), *words), limit, "--set timeouts.trial=2h")
    assert failure["kind"] == "ProgramTimeout"
    assert lab.board.marked() == []


def test_the_prompt_does_not_fit_in_the_context(lab: LabUnderTest) -> None:
    words = ("--set", f"prompt={'once upon a time ' * 40}", "--set", "context=32")
    done = lab.run("run", lab.recipe(), *words)
    fails(lab, done, "the prompt does not fit in the context", "raise the parameter context")
