"""Link and board break in every way that can be provoked: infra, exit 3, finished trials kept."""

import json
import os
import re
import signal
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import agent_builds
import pytest
from labs import (
    TALKING,
    LabUnderTest,
    RunningLabctl,
    blamed,
    give_talker,
    lab_with_board,
    said,
    write_devices,
)
from raw_hdc import RawPeer, scripted_board
from small_disk import fill, small_disk
from virtual_process import virtual_board_process

from labctl.virtual import fault_script as f
from labctl.virtual.control import Control

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(3000)]

#: A short trial, and one that is struck before it ends: it takes minutes.
TWO = ("--set", "parameters.tokens=", "--set", "matrix.tokens=[2, 1000]")
FOR_BOARD = TALKING.replace(agent_builds.HOST, "rk3568")
SHORT = ("--set", "tokens=2", "--set", "repeats=2")
IMPATIENT = ("--set", "timeouts.reattach=1s")


def kill(lab: LabUnderTest) -> None:
    os.kill(lab.board.process.pid, signal.SIGKILL)
    lab.board.process.wait()


def in_mid_trial(
    lab: LabUnderTest, *words: str, limits: Mapping[str, float] | None = None
) -> RunningLabctl:
    """A run whose first trial is finished, and whose second is on the board."""
    give_talker(lab, FOR_BOARD)
    running = lab.start("run", "talking", *TWO, *IMPATIENT, *words, limits=limits)
    running.waiting_for(lambda: lab.is_under_way(2))
    return running


def events(lab: LabUnderTest) -> str:
    """What the only run has told so far."""
    (path,) = lab.root.glob("runs/*/events.jsonl")
    return path.read_text()


def kept(lab: LabUnderTest, kind: str, states: tuple[str, ...] = ("ok", "failed")) -> None:
    """Assert that the finished trials are there and shown, and that the run says how it ended."""
    end = lab.end()
    assert (end["state"], end["failure"]["kind"], end["failure"]["blame"]) == (
        "failed", kind, "infra",
    )  # fmt: skip
    report = lab.run("report")
    assert report.exit_status == 0
    assert re.search("^failed: .*; infra: ", report.text, re.MULTILINE), report.text
    trials = json.loads(lab.run("report", "--json").text)["trials"]
    assert tuple(trial["state"] for trial in trials) == states
    assert {trial["failure"]["blame"] for trial in trials if trial["failure"]} <= {"infra"}
    assert trials[0]["timing"]["generated_tokens"] == trials[0]["parameters"]["tokens"]
    (plan,) = lab.root.glob("runs/*/plan.json")
    planned = Counter(one["variant"] for one in json.loads(plan.read_text())["trials"])
    for trial in trials:
        name = trial["variant"]
        row = rf"^{name} +{int(trial['state'] == 'ok')}/{planned[name]} "
        assert re.search(row, report.text, re.MULTILINE), report.text


def test_the_board_is_killed_in_mid_run(lab: LabUnderTest) -> None:
    running = in_mid_trial(lab)
    kill(lab)
    done = running.finish()
    blamed(done, 3, "infra", f"no board answers at {lab.board.address}: Connection refused")
    assert "retrying" in said(done)
    kept(lab, "LinkRefused")


def test_the_link_is_lost_while_a_finished_trial_is_tidied_up(lab: LabUnderTest) -> None:
    """No other trial has begun: none is blamed."""
    give_talker(lab, FOR_BOARD)
    Control(lab.board.directory).add(f.Drop(on="shell", matching="rm -rf .*/jobs/", times=None))
    done = lab.run("run", "talking", *SHORT, *IMPATIENT)
    blamed(done, 3, "infra", "lost the board", "stays on the board")
    assert re.search(r"trial 1/2 none-r1: (.* per token|ok) \(", said(done))
    kept(lab, "DeviceLost", ("ok",))
    Control(lab.board.directory).clear()
    resumed = lab.run("resume", "latest")
    assert resumed.exit_status == 0, said(resumed)
    assert lab.run("shell", "vb", "--", "ls", f"{lab.board.workdir}/jobs").text == ""


def test_the_link_is_lost_after_the_last_trial(lab: LabUnderTest) -> None:
    """All that was asked for is measured: the run is good."""
    give_talker(lab, FOR_BOARD)
    lost = f.Drop(on="shell", matching="rm -rf .*/jobs/[^/]*-2(?![0-9a-f])", times=None)
    Control(lab.board.directory).add(lost)
    done = lab.run("run", "talking", *SHORT, *IMPATIENT)
    assert done.exit_status == 0, said(done)
    assert "stays on the board: " in said(done)
    assert lab.end()["state"] == "finished"
    assert "2/2" in done.text


def test_the_board_freezes_in_mid_run(lab: LabUnderTest) -> None:
    running = in_mid_trial(lab, limits={"labctl.board.agent._ANSWER_SECONDS": 6.0})
    os.kill(lab.board.process.pid, signal.SIGSTOP)
    try:
        running.waiting_for(lambda: '"failed"' in events(lab))
    finally:
        os.kill(lab.board.process.pid, signal.SIGCONT)
    done = running.finish()
    blamed(done, 3, "infra", "within")
    kept(lab, "CommandTimeout")


def test_the_board_restarts_in_mid_run(lab: LabUnderTest) -> None:
    running = in_mid_trial(lab, "--set", "infra_retries=0", "--set", "timeouts.reattach=1m")
    kill(lab)
    for process_id in lab.board.marked():  # a restart ends what runs, finished or not
        with suppress(ProcessLookupError):
            os.kill(process_id, signal.SIGKILL)
    port = lab.board.address.rpartition(":")[2]
    with virtual_board_process(lab.root / "board", "--target", "rk3568", "--port", port):
        blamed(running.finish(), 3, "infra", "the board restarted")
        kept(lab, "BoardRebooted")


def test_another_controller_takes_the_board_in_mid_run(lab: LabUnderTest) -> None:
    running = in_mid_trial(lab)
    lease = {"lab": "nightly", "epoch": 99, "host": "ci", "utc": "2026-11-21T02:00:00+00:00"}
    path = f"{lab.board.workdir}/lease"
    write = f"echo '{json.dumps(lease)}' >{path}.new && mv {path}.new {path}"
    assert lab.run("shell", "vb", "--", "sh", "-c", write).exit_status == 0
    blamed(running.finish(), 3, "infra", "epoch 99", "wait until the board is free")
    kept(lab, "LeaseLost")


def test_the_board_is_in_use_by_another_labctl(lab: LabUnderTest) -> None:
    running = in_mid_trial(lab)
    (run,) = (path.name for path in lab.root.glob("runs/2*"))
    for command in ("run", "deploy"):
        done = lab.run(command, "--no-wait", lab.recipe())
        blamed(done, 3, "infra", "board vb is in use by", ": run talking", f"({run}, trial 2 of")
    running.process.send_signal(signal.SIGINT)
    assert running.finish().exit_status == 130


def test_the_boards_storage_fills_up_in_mid_run(full_lab: LabUnderTest) -> None:
    lab = full_lab
    running = in_mid_trial(lab)
    fill(lab.board.directory)
    blamed(running.finish(), 3, "infra", "No space left on device", "free some space on the board")
    kept(lab, "BoardNoSpace")


def test_the_boards_storage_is_full_before_the_run(full_lab: LabUnderTest) -> None:
    fill(full_lab.board.directory)
    done = full_lab.run("run", full_lab.recipe())
    blamed(done, 3, "infra", "not enough space on the board", "reserve)")
    assert not list((full_lab.root / "runs").glob("2*"))


@pytest.fixture
def full_lab(tmp_path: Path, private_state: Path, rk3568: None) -> Iterator[LabUnderTest]:
    """A lab whose board has a small disk."""
    with (
        small_disk(tmp_path / "board", 60_000),
        lab_with_board(tmp_path, "--target", "rk3568") as lab,
    ):
        yield lab


@pytest.mark.parametrize(
    ("text", "because"),
    [
        # The board changes what it got, or tells another hash of it.
        ('printf x >>"$1"; exec {real} "$1"', "the bytes differ"),
        (f"echo {'0' * 64}", "the bytes differ"),
        ("echo no such applet; exit 1", "the board cannot hash"),
    ],
)
def test_a_transfer_is_torn(lab: LabUnderTest, text: str, because: str) -> None:
    program = lab.board.directory / "system" / "bin" / "sha256sum"
    if not program.is_symlink():
        pytest.skip("mksh and toybox are not installed: the board has this host's programs")
    (program.parent / "real").mkdir()
    real = program.rename(program.parent / "real" / "sha256sum")  # toybox goes by the name
    program.write_text(f"#!/bin/sh\n{text.format(real=real)}\n")
    program.chmod(0o755)
    blamed(lab.run("run", lab.recipe()), 3, "infra", because)
    assert list(Path(lab.board.workdir, "store").glob("*")) == []  # nothing torn has a name


def refuse(peer: RawPeer) -> None:
    """As a board whose screen asks whether this host is allowed."""
    peer.accept_hands(daemonauthstatus="DAEMON_UNAUTH", emgmsg="[E000003]:not authorized")
    peer.receive()


def test_the_board_does_not_know_this_host(lab: LabUnderTest) -> None:
    with scripted_board(refuse) as port:
        write_devices(lab.root, f"127.0.0.1:{port}", lab.board.workdir)
        done = lab.run("run", lab.recipe())
        blamed(done, 3, "infra", "denied access to this host's key", "press Allow")
        listed = lab.run("boards")
    assert (listed.exit_status, listed.text.split()[:2]) == (3, ["vb", "unauthorised"])


def test_nothing_listens_where_the_board_should_be(lab: LabUnderTest) -> None:
    kill(lab)
    done = lab.run("run", lab.recipe())
    blamed(done, 3, "infra", f"no board answers at {lab.board.address}: Connection refused")
    listed = lab.run("boards")
    assert (listed.exit_status, listed.text.split()[:2]) == (3, ["vb", "offline"])
    # 255, as ssh has it: any other status would be the command's.
    blamed(lab.run("shell", "vb", "--", "true"), 255, "infra", "Connection refused")


def test_the_board_is_another_machine_than_its_target(
    tmp_path: Path, private_state: Path, rk3568: None
) -> None:
    with lab_with_board(tmp_path) as lab:  # without an emulator it is what this host is
        done = lab.run("run", lab.recipe())
    blamed(done, 2, "config", "target rk3568 is aarch64, the board is", "devices.yaml")
