"""Whole runs of programs that tell themselves when they printed what: the records say the same."""

import itertools
import json
import platform
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from agent_builds import arm64_program, native_agent
from labs import LabUnderTest, lab_with_board, said, write_devices

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(3000)]

#: Seconds before each line.
GAPS = [0.3, *[0.02] * 30, *[0.1] * 10, 0.5]
RECIPE = f"""\
name: truth
target: TARGET
engine:
  name: command
  program: {{file: tools/truth}}
  arguments: {json.dumps([f"{gap:g}" for gap in GAPS])}
  tokens: {{stream: stdout, each: line, count: lines}}
models: {{none: {{file: tools/truth}}}}
parameters: {{lines: {len(GAPS)}}}
repeats: 2
max_time: 5m
"""
NATIVE = f"""\
#!{sys.executable} -S
import os, sys, time
for gap in sys.argv[1:]:
    time.sleep(float(gap))
    os.write(1, b"%d\\n" % time.monotonic_ns())
"""
ARM64 = r"""
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        char line[32];
        struct timespec now, gap = { .tv_nsec = (long)(atof(argv[i]) * 1e9) };
        nanosleep(&gap, NULL);
        clock_gettime(CLOCK_MONOTONIC, &now);
        long long ns = now.tv_sec * 1000000000LL + now.tv_nsec;
        write(1, line, snprintf(line, sizeof line, "%lld\n", ns));
    }
    return 0;
}
"""


@pytest.fixture
def native(tmp_path: Path, private_state: Path) -> Iterator[LabUnderTest]:
    """A lab whose board is this host."""
    native_agent()
    target = f"host-{platform.machine()}"
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "truth").write_text(NATIVE)
    with lab_with_board(tmp_path) as lab:
        write_devices(tmp_path, lab.board.address, lab.board.workdir, target=target)
        lab.recipe(RECIPE.replace("TARGET", target), "truth")
        yield lab


@pytest.fixture
def emulated(lab: LabUnderTest) -> LabUnderTest:
    """A lab whose board emulates an rk3568."""
    (lab.root / "tools").mkdir()
    (lab.root / "tools" / "truth").write_bytes(arm64_program(ARM64).read_bytes())
    lab.recipe(RECIPE.replace("TARGET", "rk3568"), "truth")
    return lab


def errors(trial: dict[str, Any], told_ns: list[int]) -> list[float]:
    """How wrong each gap in a record is, in parts of what it may be: 1 ms, or 1 % of it.

    A gap ends where the last line of a piece was printed, should lines have come together.
    """
    timing = trial["timing"]
    gaps = [timing["ttft_ns"], *timing["token_ns"]]
    last = arrival = trial["job"]["start_mono_ns"]
    found = []
    for gap in gaps:
        arrival += gap
        printed = min(told_ns, key=lambda told: abs(told - arrival))
        true = printed - last
        found.append(abs(gap - true) / max(1_000_000, true / 100))
        last = printed
    return found


@pytest.mark.parametrize("board", ["native", "emulated"])
def test_a_record_says_when_the_program_printed_what(
    board: str, request: pytest.FixtureRequest
) -> None:
    lab: LabUnderTest = request.getfixturevalue(board)
    done = lab.run("run", "truth", "--json")
    assert done.exit_status == 0, said(done)
    found = []
    on_time = []
    for trial in json.loads(done.stdout)["trials"]:
        (stdout,) = lab.root.glob(f"runs/*/trials/{trial['number']:03d}-*/stdout")
        told_ns = [int(line) for line in stdout.read_text().split()]
        assert len(told_ns) == trial["timing"]["generated_tokens"] == len(GAPS)
        found += errors(trial, told_ns)
        slept_ns = zip(GAPS[1:], itertools.pairwise(told_ns), strict=True)
        on_time += [end - start < gap * 1e9 + 1_000_000 for gap, (start, end) in slept_ns]
        span_ns = told_ns[-1] - told_ns[0]
        rate = (len(GAPS) - 1) / (span_ns / 1e9)
        assert trial["timing"]["tokens_per_second"] == pytest.approx(rate, rel=0.01)
        assert trial["timing"]["ttft_ns"] >= GAPS[0] * 1e9
    # A busy host wakes the agent as late as it wakes the program: at both ends of a gap.
    punctual = statistics.mean(on_time) ** 2
    assert statistics.median(found) < 1
    assert statistics.mean(error < 1 for error in found) >= 0.9 * punctual, sorted(found)


def test_without_a_count_a_trial_has_no_figures_of_tokens_and_no_check(
    native: LabUnderTest,
) -> None:
    unset = ("--set", "engine.tokens.count=", "--set", "parameters.lines=", "--set", "repeats=1")
    done = native.run("run", "truth", *unset, "--json")
    assert done.exit_status == 0, said(done)
    document = json.loads(done.stdout)
    (trial,) = document["trials"]
    assert trial["state"] == "ok"
    timing = trial["timing"]
    assert timing["arrivals"] > 1
    figures = ("generated_tokens", "ttft_ns", "p50_ns", "mean_ns", "tokens_per_second")
    assert [timing[name] for name in figures] == [None] * len(figures)
    (row,) = document["rows"]
    assert (row["ttft_ns"], row["token_p50_ns"], row["tokens_per_second"]) == (None, None, None)
    table = native.run("report").text
    shown = next(line for line in table.splitlines() if line.startswith("none "))
    assert set(row["checks_failed"]) <= {"quiet", "steal"}  # of a busy host
    assert shown.split()[-1] == ("FAILED" if row["checks_failed"] else "none")
    assert "note: no token is timed: name the parameter" in table
