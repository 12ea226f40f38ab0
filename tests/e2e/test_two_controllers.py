"""Two users of one board who know nothing of each other: other homes, other labs."""

import json
import re
from pathlib import Path

import pytest
from labs import LabUnderTest, blamed, said

from labctl.config.lab import Lab, LabFile
from labctl.retry import wait_until
from labctl.state.state import lab_state

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200)]

LONG = ("--set", "repeats=500", "--set", "tokens=120", "--set", "context=200")

ONCE = ("--set", "repeats=1")


@pytest.fixture
def other(tmp_path: Path, lab: LabUnderTest) -> LabUnderTest:
    """The same board in another user's lab, with a state of his own."""
    root = tmp_path / "other"
    (root / "models").mkdir(parents=True)
    (root / "devices.yaml").write_text((lab.root / "devices.yaml").read_text())
    (root / "models" / "tiny.gguf").write_bytes((lab.root / "models" / "tiny.gguf").read_bytes())
    made = LabUnderTest(root, lab.board)
    made.recipe()
    return made


def test_a_living_controller_keeps_the_board_and_a_dead_one_frees_it(
    lab: LabUnderTest, other: LabUnderTest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = lab.start("run", lab.recipe(), *LONG)
    running.waiting_for(lambda: lab.is_under_way(2))
    monkeypatch.setenv("LABCTL_STATE", str(tmp_path / "his state"))
    refused = other.run("run", "tiny", "--no-wait", *ONCE)
    blamed(refused, 3, "infra", "board vb is in use by", "wait for its end")
    assert running.process.poll() is None

    # Both have the same files there, and a prune takes none away from who measures.
    done = other.run("store", "prune", "--free", "1000TB", "--json")
    assert done.exit_status == 0, said(done)
    (told,) = json.loads(done.text)
    assert told["removed"] == []
    assert told["in_use_by"]

    # He dies. His job and the minutes for which his silence is none keep the board for him.
    running.process.kill()
    running.finish()
    refused = other.run("run", "tiny", "--no-wait", *ONCE)
    blamed(refused, 3, "infra", "board vb is in use by")
    alive = Path(lab.board.workdir) / "lease.alive"
    long_ago = re.sub(r"^\d+", "0", alive.read_text())
    for job in Path(lab.board.workdir, "jobs").iterdir():
        assert wait_until((job / "status.json").exists, timeout=600, interval=0.1)
    alive.write_text(long_ago)
    ended = other.run("run", "tiny", *ONCE)
    assert ended.exit_status == 0, said(ended)

    # Who came to his end has left the board, and nobody has to wait for it.
    assert not alive.exists()
    assert json.loads(other.run("store", "prune", "--json").text)[0]["in_use_by"] is None
    monkeypatch.setenv("LABCTL_STATE", str(tmp_path / "a third state"))
    done = other.run("run", "tiny", *ONCE)
    assert done.exit_status == 0, said(done)


def test_a_run_that_a_reservation_breaks_off_is_not_begun_anew(lab: LabUnderTest) -> None:
    """It is resumed: a second run would measure again what the first one has."""
    running = lab.start("run", lab.recipe(), "--set", "repeats=500")
    running.waiting_for(lambda: lab.is_under_way(2))
    state = lab_state(LabFile(lab.root, Lab(boards={})))
    now = state.jobs.now()
    state.reservations.add("vb", now, now + 3600, holder="ann", by="ann@desk", reason="demo")
    done = running.finish()
    blamed(done, 3, "infra", "vb is reserved for ann", "to continue: labctl resume")
    assert lab.end()["state"] == "failed"
    assert lab.finished_trials()
