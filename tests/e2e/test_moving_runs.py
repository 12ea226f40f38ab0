"""A run whose board is lost goes on on an equal one, if the user says so, and says so itself."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from agent_fences import native_leases
from labs import RECIPE, LabUnderTest, blamed, said
from virtual_process import BoardProcess, virtual_board_process

from labctl.transport.local import LocalConfig
from labctl.virtual import fault_script as f
from labctl.virtual.control import Control

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200)]

#: Long enough to be struck in the middle of a trial.
TRIALS = ("--set", "tokens=120", "--set", "context=200", "--set", "timeouts.reattach=1s")
RECIPE = RECIPE.replace(", threads: 2}", "}\nmatrix: {threads: [1, 2]}\nrepeats: 2")


@pytest.fixture
def spare(lab: LabUnderTest, tmp_path: Path) -> Iterator[BoardProcess]:
    """Another board of the same kind in the lab."""
    with virtual_board_process(tmp_path / "second", "--target", "rk3568") as board:
        with (lab.root / "devices.yaml").open("a") as file:
            file.write(
                "  spare:\n"
                "    target: rk3568\n"
                f'    transport: {{kind: hdc, link: tcp, address: "{board.address}"}}\n'
                f"    workdir: {board.workdir}\n"
                "default_board: vb\n"
            )
        yield board


def trials_of(lab: LabUnderTest) -> list[dict[str, Any]]:
    document = json.loads(lab.run("report", "latest", "--json").text)
    found: list[dict[str, Any]] = document["trials"]
    return found


def test_a_run_moves_to_a_spare_board_round_by_round(
    lab: LabUnderTest, spare: BoardProcess
) -> None:
    running = lab.start("run", lab.recipe(RECIPE), *TRIALS, "--spare", "spare")
    running.waiting_for(lambda: lab.is_under_way(4))
    Control(lab.board.directory).add(f.Drop(on="shell", times=None))
    done = running.finish()
    assert done.exit_status == 0, said(done)
    assert "the run continues on board spare" in said(done)
    assert "2 of 4 trials were finished" in said(done)
    assert "measured on 2 boards: vb (trials 1-2), spare (trials 3-4)" in done.text
    trials = trials_of(lab)
    assert [(t["board"], t["state"]) for t in trials] == [
        ("vb", "ok"), ("vb", "ok"), ("spare", "ok"), ("spare", "ok"),
    ]  # fmt: skip
    # Whoever looks on sees one run: both boards answer in it, and it ends once.
    (told,) = lab.root.glob("runs/*/events.jsonl")
    events = [json.loads(line) for line in told.read_text().splitlines()]
    assert [e["board"] for e in events if e["event"] == "contact"] == ["vb", "spare"]
    assert [e["state"] for e in events if e["event"] == "end"] == ["finished"]
    assert [e for e in events if e["event"] == "loss"]
    # The third was finished on the first board, but its round was not.
    third = trials[2]
    assert third["attempt"] == 2
    assert "moved to board spare" in third["earlier_failures"][0]["message"]
    assert lab.end()["state"] == "finished"
    assert not list(Path(spare.workdir).glob("jobs/*"))


def test_a_run_is_moved_by_hand_and_stays_where_it_is(
    lab: LabUnderTest, spare: BoardProcess
) -> None:
    running = lab.start("run", lab.recipe(RECIPE), *TRIALS)
    running.waiting_for(lambda: lab.is_under_way(4))
    Control(lab.board.directory).add(f.Drop(on="shell", times=None))
    lost = running.finish()
    blamed(lost, 3, "infra")

    # While another measures on the spare board, nothing is sent there, and nothing is put aside.
    finished = lab.finished_trials()
    workdir = Path(spare.workdir)
    with LocalConfig().open() as here:
        leases = native_leases(here, spare.workdir)
        theirs = leases.acquire("nightly")
        seconds = Path("/proc/uptime").read_text().partition(".")[0]
        (workdir / "lease.alive").write_text(f"{seconds} {spare.boot_id}\n")
        refused = lab.run("resume", "latest", "--board", "spare")
        blamed(refused, 3, "infra", "board spare is in use by nightly")
        leases.release(theirs)
    assert lab.finished_trials() == finished
    stored = [path.name for path in workdir.glob("store/*") if len(path.name) == 64]
    assert stored == []  # not even the agent

    moved = lab.start("resume", "latest", "--board", "spare")
    moved.waiting_for(lambda: bool(list(Path(spare.workdir).glob("jobs/*-4-2/started.json"))))
    moved.process.kill()
    moved.finish()
    done = lab.run("resume")  # nothing of it is on the first board any more
    assert done.exit_status == 0, said(done)
    assert [t["board"] for t in trials_of(lab)] == ["vb", "vb", "spare", "spare"]
