"""Holders of a board that stand still at any moment, lose it meanwhile, and then go on."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import agent_builds
import pytest
from agent_fences import native_leases
from board_effects import effects_after_epoch, read_effects, unfenced_effects
from labs import give_talker, lab_with_board, said

from labctl import process
from labctl.transport.hdc import HdcTcpConfig
from labctl.virtual.board import Served, VirtualBoard, serving

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

#: Does all that labctl does to a board, again and again, until it has lost the board; then it waits
#: for the number of the step with which to begin anew.
HOLDER = """
import itertools, os, secrets, sys
from pathlib import Path
from labctl.board.agent import BoardAgent
from labctl.board.job import JobSpec
from labctl.board.lease import BoardLease, Fence
from labctl.board.prune import Pruner
from labctl.board.store import BoardStore
from labctl.board.upload.client import ChunkedFile
from labctl.board.upload.resumable import DeliveryOptions
from labctl.deploy.plan import describe
from labctl.deploy.send import deploy
from labctl.deploy.plan import plan
from labctl.errors import InfraError, LeaseLost
from labctl.runs.board.state_changes import BoardChanges
from labctl.transport.hdc import HdcTcpConfig

address, workdir, program, folder = sys.argv[1:]
folder = Path(folder)

items = {}

def send():
    for name, chunked in (("small", 1 << 30), ("large", 1)):
        (folder / name).write_bytes(os.urandom(200_000))
        item = items[name] = describe(folder / name)
        with ChunkedFile(item.local, item.sha256, item.size_bytes, 20_000) as source:
            store.receive(source, item.stored, options=DeliveryOptions(chunked_bytes=chunked))
    store.missing([item.stored for item in items.values()])

def run():
    directory = agent.job_directory(f"job-{fence.epoch}-{secrets.token_hex(4)}")
    argv = ("/bin/sh", "-c", "echo begun; sleep 0.1; echo ended")
    spec = JobSpec(directory, argv, 60.0, fence.epoch, fence.lease)
    status = agent.wait(agent.start(spec), timeout_s=60.0)
    agent.collect(directory, folder, status=status)
    agent.remove(directory)

def hold():
    leases.check(lease)
    BoardChanges(fence).stop("no such process")
    BoardChanges(fence).restore()

def prune():
    pruner = Pruner(link, workdir, agent, leases, lambda _: True)
    known = {item.sha256 for item in items.values()}
    for item in pruner.inventory().objects:
        if item.sha256 in known:
            pruner.pin(item)
            pruner.unpin(item)
            pruner.remove([item])

with HdcTcpConfig(address=address).open() as link:
    fence = Fence(link, workdir)
    own = describe(Path(program), name="agent", executable=True)
    store = BoardStore(link, workdir, fence=fence)
    fence.agent = deploy(store, plan(store, [own]))[own.sha256]
    agent = BoardAgent(link, fence.agent, workdir, fence)
    leases = BoardLease(link, workdir, fence=fence)
    for first in sys.stdin:
        lease = leases.acquire("old")
        fence.epoch = lease.epoch
        print("holds", flush=True)
        work = [send, run, hold, prune]
        try:
            for step in itertools.cycle(work[int(first) :] + work[: int(first)]):
                step()
        except InfraError:
            # Whatever failed, it has to be for want of the board.
            try:
                leases.check(lease)
            except LeaseLost:
                pass
            else:
                raise
        print("lost", flush=True)
"""


@pytest.fixture
def effects(tmp_path: Path) -> Path:
    return tmp_path / "effects.jsonl"


@pytest.fixture
def board(tmp_path: Path, effects: Path) -> Iterator[Served]:
    with serving(VirtualBoard("b", tmp_path / "b", effects=effects)) as (board,):
        yield board


@pytest.fixture
def holder(tmp_path: Path, board: Served) -> Iterator["subprocess.Popen[bytes]"]:
    folder = tmp_path / "holder"
    folder.mkdir()
    words = [sys.executable, "-c", HOLDER, board.address, str(board.workdir)]
    words += [str(agent_builds.native_agent()), str(folder)]
    env = {**os.environ, "LABCTL_STATE": str(tmp_path / "state")}
    started = process.start(words, cwd=tmp_path, env=env, stdin=subprocess.PIPE, stderr=None)
    try:
        yield started
    finally:
        os.kill(started.pid, signal.SIGCONT)
        if started.poll() is None:
            process.stop(started)
        for stream in (started.stdin, started.stdout):
            assert stream is not None
            stream.close()


def word(holder: "subprocess.Popen[bytes]") -> str:
    assert holder.stdout is not None
    return holder.stdout.readline().decode().strip()


#: What a holder changes of a board.
ALL = {"store", "jobs", "pins", "incoming", "lease", "conditions"}


def changed(effects: Path) -> set[str]:
    """What of the workdir was changed so far."""
    log = read_effects(effects)
    return {entry["path"].partition("/")[0] for entry in log if "path" in entry}


@pytest.mark.parametrize(
    "moments", [20, pytest.param(500, marks=[pytest.mark.soak, pytest.mark.timeout(3600)])]
)
def test_a_holder_that_stood_still_changes_nothing_of_the_next_ones(
    board: Served, holder: "subprocess.Popen[bytes]", effects: Path, moments: int
) -> None:
    chance = random.Random(seed := random.randrange(1 << 32))
    assert holder.stdin is not None
    taken: list[int] = []
    with HdcTcpConfig(address=board.address).open() as link:
        leases = native_leases(link, str(board.workdir))
        longest = 0.4
        # On a busy host it does little before it is stopped.
        while len(taken) < moments or (not changed(effects) >= ALL and len(taken) < 10 * moments):
            longest = min(longest * 1.05, 5) if len(taken) >= moments else longest
            holder.stdin.write(b"%d\n" % chance.randrange(4))
            holder.stdin.flush()
            assert word(holder) == "holds"
            time.sleep(chance.uniform(0, longest))  # the moment, wherever it is in its work
            os.kill(holder.pid, signal.SIGSTOP)
            taken.append(leases.acquire("new").epoch)
            os.kill(holder.pid, signal.SIGCONT)
            assert word(holder) == "lost"
    log = read_effects(effects)
    epochs = [entry["epoch"] for entry in log if entry["what"] == "lease"]
    assert epochs == list(range(1, 2 * len(taken) + 1))
    assert taken == epochs[1::2]
    assert effects_after_epoch(log) == [], f"seed {seed}"
    assert unfenced_effects(log) == []
    assert changed(effects) >= ALL


#: Operations of one host on a board for another trial of half a second: asked on 22 November 2026,
#: with some room for further looks while a job runs on a busy host.
TRIAL_OPERATIONS = 12


def test_labctl_changes_a_board_under_its_epoch_alone(
    tmp_path: Path, private_state: Path, effects: Path
) -> None:
    agent_builds.native_agent()
    options = ("--target", agent_builds.HOST, "--effects", str(effects))
    with lab_with_board(tmp_path, *options) as lab:
        devices = lab.root / "devices.yaml"
        devices.write_text(devices.read_text().replace("rk3568", agent_builds.HOST))
        give_talker(lab)

        def operations(*words: str) -> int:
            done = lab.run(*words)
            assert done.exit_status == 0, said(done)
            log = read_effects(effects)
            effects.write_text("")
            assert effects_after_epoch(log) == []
            assert unfenced_effects(log) == []
            return sum(entry["what"] == "began" for entry in log)

        run = ("run", "talking", "--set", "tokens=2", "--set")
        operations("deploy", "talking")
        one, three = operations(*run, "repeats=1"), operations(*run, "repeats=3")
        assert (three - one) / 2 <= TRIAL_OPERATIONS
        operations("store", "prune", "--free", "1000TB")
        operations("store", "verify")
