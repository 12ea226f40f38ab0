"""What labctl makes of a job that leaves a process beside the next run, or changes its files."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import agent_builds
import pytest
from jobs import is_alive
from labs import LabUnderTest, blamed, give_talker, lab_with_board, said

from labctl.board.job import Survivor
from labctl.board.running_jobs import Survivors
from labctl.config.lab import LabFile, find_lab
from labctl.errors import SurvivingProcess
from labctl.state.health import Health
from labctl.state.state import lab_state
from labctl.transport.built_in import TRANSPORTS

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

#: Leaves a process that shows nothing of its job, and kills the agent that watches it.
LEAVES = """\
#!/bin/sh
until [ -e started.json ]; do sleep 0.1; done
cd /
(setsid env -i /bin/sleep 987654 <&- >&- 2>&- &)
kill -9 $PPID
sleep 600
"""
HOLE = "#!/bin/sh\necho token\ntruncate -s 200G stdout\necho token\n"


@pytest.fixture
def lab(tmp_path: Path, private_state: Path) -> Iterator[LabUnderTest]:
    """A lab whose board has no PID namespaces, and two recipes: a good one and a program's."""
    agent_builds.native_agent()
    options = ("--target", agent_builds.HOST, "--no-pid-namespaces")
    with lab_with_board(tmp_path, *options) as lab:
        devices = lab.root / "devices.yaml"
        devices.write_text(devices.read_text().replace("rk3568", agent_builds.HOST))
        give_talker(lab)
        text = (lab.root / "recipes" / "talking.yaml").read_text()
        text = text.replace("tools/talker", "tools/hostile").replace("talking", "hostile")
        lab.recipe(text, "hostile")
        yield lab


def hostile(lab: LabUnderTest, program: str) -> str:
    path = lab.root / "tools" / "hostile"
    path.write_text(program)
    path.chmod(0o755)
    return str(lab.root / "recipes" / "hostile.yaml")


def left() -> list[int]:
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = entry.read_bytes().split(b"\0")
        except OSError:
            continue
        if b"987654" in words and is_alive(int(entry.parent.name)):
            found.append(int(entry.parent.name))
    return found


def test_the_next_run_ends_and_names_what_a_job_has_left(lab: LabUnderTest) -> None:
    short = ("--set", "repeats=1", "--set", "tokens=2")
    done = lab.run("run", hostile(lab, LEAVES), *short)
    blamed(done, 3, "infra", "the agent was killed")
    (pid,) = left()
    done = lab.run("run", "talking", *short)
    assert done.exit_status == 0, said(done)
    assert left() == []
    named = "processes of earlier jobs were ended on the board: "
    assert f"{pid} (sleep)" in said(done)
    assert named in said(done)
    runs = [json.loads(path.read_text()) for path in lab.root.glob("runs/*/run.json")]
    (run,) = [run for run in runs if run["recipe"] == "talking"]
    (note,) = [note for note in run["plan_notes"] if note.startswith(named)]
    assert f"{pid} (sleep)" in note


def test_a_probe_begins_without_it(lab: LabUnderTest) -> None:
    lab.run("run", hostile(lab, LEAVES), "--set", "repeats=1", "--set", "tokens=2")
    (pid,) = left()
    done = lab.run("boards", "probe", "vb")
    assert done.exit_status == 0, said(done)
    assert f"{pid} (sleep)" in said(done)
    assert left() == []


def test_a_hole_in_place_of_the_output_is_the_programs_fault(lab: LabUnderTest) -> None:
    recipe = hostile(lab, HOLE)
    began = time.monotonic()
    done = lab.run("run", recipe, "--set", "repeats=1", "--set", "tokens=2")
    assert time.monotonic() - began < 60
    assert done.exit_status == 1, said(done)
    (path,) = lab.root.glob("runs/*/trials/*/record.json")
    failure = json.loads(path.read_text())["failure"]
    assert failure["blame"] == "job"
    assert "stdout has another size" in failure["message"]
    kept = [p for p in path.parent.iterdir() if p.stat().st_size > 1 << 20]
    assert kept == []


def test_a_board_on_which_a_process_stays_is_put_aside(lab: LabUnderTest) -> None:
    found: LabFile = find_lab(lab.root, TRANSPORTS)
    survivors = Survivors(found, found.board("vb"))
    survivors.name([Survivor(pid=7, name="worm\x1b[2J", sign="limit")])
    assert "\x1b" not in survivors.named[0]
    stays = SurvivingProcess("process 7 (worm) of an earlier job does not end")
    with pytest.raises(SurvivingProcess), survivors.noticed():
        raise stays
    health = lab_state(found).health.get("vb")
    assert (health.health, health.reason) == (Health.BAD, stays.message)
    done = lab.run("run", "talking")
    blamed(done, 3, "infra", "process 7 (worm) of an earlier job does not end")
