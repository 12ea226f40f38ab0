"""A run goes on with the very bytes it began with, and a plan needs no board."""

from pathlib import Path

import pytest
from labs import LabUnderTest, blamed, said

from labctl import process
from labctl.folders import cache_dir

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200)]

PROGRAM = '#!/bin/sh\nsleep 2\nread word <"$1"\necho "took 7 ms"\n'
RECIPE = """\
name: words
target: rk3568
engine:
  name: command
  program: {file: tools/slow}
  arguments: ["{file:words}"]
  output: [{pattern: '^took (?P<t>[0-9]+) ms$', values: {t: {metric: total, unit: ms}}}]
models:
  tiny: {file: models/tiny.gguf}
files: {words: words.txt}
repeats: 3
max_time: 10m
"""


@pytest.fixture
def recipe(lab: LabUnderTest) -> str:
    (lab.root / "tools").mkdir()
    (lab.root / "tools" / "slow").write_text(PROGRAM)
    (lab.root / "words.txt").write_text("one\n")
    return lab.recipe(RECIPE, "words")


def changed(path: Path, text: str, lab: LabUnderTest) -> process.Completed:
    """What `labctl resume` says while a file has another text."""
    before = path.read_text()
    path.write_text(text)
    try:
        return lab.run("resume")
    finally:
        path.write_text(before)


def test_a_run_goes_on_with_the_same_bytes_only(lab: LabUnderTest, recipe: str) -> None:
    running = lab.start("run", recipe).after_a_trial()
    running.process.kill()
    running.finish()
    done = changed(lab.root / "words.txt", "two\n", lab)
    blamed(done, 2, "config", "cannot be resumed: its file words", "changed")
    done = changed(lab.root / "tools" / "slow", PROGRAM.replace("7", "8"), lab)
    blamed(done, 2, "config", "cannot be resumed: its program", "slow changed")
    done = lab.run("resume")
    assert done.exit_status == 0, said(done)
    assert lab.end()["state"] == "finished"


def test_the_agent_of_the_board_is_built_when_it_has_told_its_machine(
    lab: LabUnderTest, recipe: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The board emulates an rk3568 on this host's CPU, whose agent it needs."""
    whole, cache = cache_dir(), tmp_path / "cache"
    (cache / "artifacts").mkdir(parents=True)
    (cache / "artifacts" / "rk3568").symlink_to(whole / "artifacts" / "rk3568")
    for part in ("build", "zig", "sources"):
        if (whole / part).exists():
            (cache / part).symlink_to(whole / part)
    monkeypatch.setenv("LABCTL_CACHE", str(cache))
    one = ("run", recipe, "--set", "repeats=1")
    blamed(lab.run(*one), 2, "config", "no agent (current) is built for target host-")
    done = lab.run(*one, "--build")
    assert done.exit_status == 0, said(done)
    assert list((cache / "artifacts").glob("host-*/agent-current"))


def test_a_plan_needs_no_board_that_was_seen_before(lab: LabUnderTest, recipe: str) -> None:
    done = lab.run("run", recipe, "--set", "repeats=1")
    assert done.exit_status == 0, said(done)
    process.stop(lab.board.process)
    (run,) = lab.root.glob("runs/2*")
    planned = lab.run("plan", recipe)
    assert planned.exit_status == 0, said(planned)
    assert f"planned for the board as run {run.name} saw it" in planned.text
    assert f"s in run {run.name}" in planned.text  # how long a trial took
    blamed(lab.run("plan", recipe, "--ask"), 3, "infra", "no board answers")
