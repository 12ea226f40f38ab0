"""What labctl adds to a trial, against the steps that one would write in a shell script.

Both run the same program of ten seconds over a link of the same kind: `hdc shell` with its output
into a file, `hdc file recv` of the files, `hdc shell rm`. The script's steps go over a session that
is open already, so that neither the start of a client nor a handshake is held against labctl.
"""

import json
import platform
import shutil
import statistics
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from itertools import pairwise
from pathlib import Path

import agent_builds
import pytest
from labs import LabUnderTest, lab_with_board, said, write_devices

from labctl.hdc.host.files import receive_file
from labctl.hdc.host.link import shell
from labctl.hdc.host.session import Session

pytestmark = [pytest.mark.bench, pytest.mark.usefixtures("private_state")]

ROUNDS = 3
TRIALS = 3
SECONDS = 10
TARGET = f"host-{platform.machine()}"
PROGRAM = f"""\
#!{sys.executable} -S
import os, time
began = time.monotonic_ns()
for tenth in range(1, {SECONDS} * 10 + 1):
    time.sleep(max(0, began / 1e9 + tenth / 10 - time.monotonic()))
    os.write(1, b"%d\\n" % (time.monotonic_ns() - began))
"""
RECIPE = f"""\
name: ten
target: {TARGET}
engine:
  name: command
  program: {{file: tools/ten}}
  arguments: []
  tokens: {{stream: stdout, each: line, count: lines}}
models: {{none: {{file: tools/ten}}}}
parameters: {{lines: {SECONDS * 10}}}
repeats: {TRIALS}
max_time: 10m
"""


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[LabUnderTest]:
    agent_builds.native_agent()
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "ten").write_text(PROGRAM)
    with lab_with_board(tmp_path) as lab:
        write_devices(tmp_path, lab.board.address, lab.board.workdir, target=TARGET)
        lab.recipe(RECIPE, "ten")
        yield lab


def by_labctl(lab: LabUnderTest) -> tuple[list[float], float, float]:
    """Seconds of each trial, from its beginning to the next one's or the end of the run; of the
    whole command; of the program."""
    shutil.rmtree(lab.root / "runs", ignore_errors=True)
    done = lab.run("run", "ten", "--json")
    assert done.exit_status == 0, said(done)
    trials = json.loads(done.stdout)["trials"]
    moments = [datetime.fromisoformat(trial["started"]) for trial in trials]
    moments.append(datetime.fromisoformat(lab.end()["finished"]))
    took = [(later - earlier).total_seconds() for earlier, later in pairwise(moments)]
    program = statistics.median(trial["job"]["wall_ns"] / 1e9 for trial in trials)
    return took, done.duration_ns / 1e9, program


def by_script(session: Session, program: Path, workdir: str, local: Path) -> float:
    """Seconds of one trial."""
    began = time.perf_counter()
    job = f"{workdir}/script"
    run = f"mkdir {job} && cd {job} && {program} >stdout 2>stderr; echo ended $?"
    said = b"".join(shell(session, run, timeout=60))
    assert said.strip() == b"ended 0", said
    for name in ("stdout", "stderr"):
        with (local / name).open("wb") as file:
            receive_file(session, f"{job}/{name}", timeout=30, write=file.write)
    assert len((local / "stdout").read_text().split()) == SECONDS * 10
    b"".join(shell(session, f"rm -r {job}", timeout=30))
    return time.perf_counter() - began


def test_a_trial_costs_little_more_than_in_a_script(lab: LabUnderTest, tmp_path: Path) -> None:
    program = Path(lab.board.workdir) / "ten"
    program.write_text(PROGRAM)
    program.chmod(0o755)
    host, _, port = lab.board.address.rpartition(":")
    trials: list[float] = []
    scripts: list[float] = []
    commands: list[float] = []
    programs: list[float] = []
    with Session.connect(host, int(port), timeout=10) as session:
        for _ in range(ROUNDS):
            scripts += [
                by_script(session, program, lab.board.workdir, tmp_path) for _ in range(TRIALS)
            ]
            took, command, ran = by_labctl(lab)
            trials += took
            commands.append(command / TRIALS)
            programs.append(ran)
    ran, script, trial = map(statistics.median, (programs, scripts, trials))
    whole = statistics.median(commands)
    print(f"\na trial of {ran:.2f} s (medians of {ROUNDS * TRIALS}, interleaved in blocks)")
    print(f"  script: {script:.3f} s, {script - ran:.3f} s of them not the program's")
    print(f"  labctl: {trial:.3f} s, {trial - ran:.3f} s of them not the program's")
    print(f"  labctl / script: {trial / script:.4f}")
    print(f"  the whole command, by its {TRIALS} trials: {whole:.3f} s, {whole / script:.4f}")
    assert trial <= 1.1 * script
