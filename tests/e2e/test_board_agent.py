"""Jobs on boards as the runner uses them: on this host and on a virtual board over hdc."""

import hashlib
import os
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import agent_builds
import pytest
from agent_fences import native_leases
from hdc_server import Board, stand_in_server
from jobs import is_alive, soon
from stored import publish

from labctl.board.agent import BoardAgent
from labctl.board.facts import probe
from labctl.board.job import JobSpec, JobState
from labctl.board.store import BoardStore
from labctl.deploy.plan import agent_object, describe, plan
from labctl.deploy.send import deploy
from labctl.errors import (
    BoardError,
    BoardRebooted,
    ConfigError,
    LeaseLost,
    LinkError,
    LinkRefused,
    ProgramFailed,
)
from labctl.records.board import BoardFacts, Execution
from labctl.retry import wait_until
from labctl.transport.base import Transport
from labctl.transport.hdc import HdcServerConfig, HdcTcpConfig
from labctl.transport.local import LocalConfig
from labctl.virtual.board import VirtualBoard, serving

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("private_state")]


@dataclass(frozen=True)
class Desk:
    """A board with the agent on it."""

    link: Transport
    workdir: str
    store: BoardStore
    agent: BoardAgent
    facts: BoardFacts

    def spec(self, name: str, *argv: str, timeout_s: float = 120, epoch: int = 1) -> JobSpec:
        return JobSpec(self.agent.job_directory(name), argv, timeout_s, epoch)


def set_up(link: Transport, workdir: str) -> Desk:
    """All that comes before a first job, as the runner does it."""
    facts = probe(link, workdir=workdir, timeout=20)
    store = BoardStore(link, workdir)
    wanted = agent_object(facts, agent_builds.agent)
    path = deploy(store, plan(store, [wanted]))[wanted.sha256]
    agent = BoardAgent(link, path, workdir)
    store = BoardStore(link, workdir, fence=agent.fence)
    return Desk(link, workdir, store, agent, agent.refine(facts))


@pytest.fixture(params=["hdc tcp", "hdc server", "local"])
def desk(request: pytest.FixtureRequest, tmp_path: Path, private_state: Path) -> Iterator[Desk]:
    if request.param == "local":
        with LocalConfig().open() as link:
            yield set_up(link, str(tmp_path / "board"))
        return
    with serving(VirtualBoard("b", tmp_path / "board")) as (board,):
        if request.param == "hdc tcp":
            with HdcTcpConfig(address=board.address).open() as link:
                yield set_up(link, str(board.workdir))
            return
        with (
            stand_in_server({"serial": Board(board.address)}) as server,
            HdcServerConfig(key="serial", server=f"127.0.0.1:{server.port}").open() as link,
        ):
            yield set_up(link, str(board.workdir))


def test_a_job_comes_back_whole(desk: Desk, tmp_path: Path) -> None:
    argv = ("/bin/sh", "-c", "printf 'it''s out'; echo err >&2; exit 4")
    started = desk.agent.start(desk.spec("one", *argv))
    job = desk.agent.wait(started, timeout_s=120)
    assert (job.outcome, job.exit_status) == ("exited", 4)
    files = desk.agent.collect(started.directory, tmp_path / "raw", status=job)
    assert sorted(files) == [
        "counters", "started.json", "status.json", "stderr", "stdout", "telemetry", "timeline"
    ]  # fmt: skip
    assert files["stdout"].read_bytes() == b"its out"
    assert files["stderr"].read_bytes() == b"err\n"
    assert files["timeline"].read_text().startswith(f"labctl-timeline 1 {started.start_mono_ns}\n")
    assert desk.agent.poll(started.directory).state is JobState.FINISHED
    desk.agent.remove(started.directory)
    assert desk.agent.poll(started.directory).state is JobState.ABSENT


def test_what_a_run_left_is_removed_but_for_the_job_that_is_under_way(desk: Desk) -> None:
    desk.agent.remove_others("run-", but=None)  # nothing is there yet
    for name in ("run-1", "run-1-2", "run-10", "run", "other-1"):
        desk.agent.wait(desk.agent.start(desk.spec(name, "/bin/true")), timeout_s=120)
    desk.agent.remove_others("run-", but="run-10")
    left = desk.link.run(f"ls {desk.workdir}/jobs", timeout=30).text.split()
    assert sorted(left) == ["other-1", "run", "run-10"]
    with pytest.raises(ConfigError):
        desk.agent.remove_others("../", but=None)


def test_waiting_ends_promptly(desk: Desk) -> None:
    started = desk.agent.start(desk.spec("one", "/bin/sleep", "1"))
    began = time.monotonic()
    desk.agent.wait(started, timeout_s=120, question_s=60.0)
    assert time.monotonic() - began < 30


def test_a_job_can_be_stopped(desk: Desk) -> None:
    started = desk.agent.start(desk.spec("one", "/bin/sleep", "600"))
    assert desk.agent.poll(started.directory).state is JobState.RUNNING
    progress = desk.agent.stop(started.directory)
    assert progress.status is not None
    assert progress.status.outcome == "stopped"
    assert not is_alive(started.job_pid)


def test_a_directory_is_never_used_twice(desk: Desk) -> None:
    desk.agent.start(desk.spec("one", "/bin/true"))
    with pytest.raises(BoardError, match="already holds a job"):
        desk.agent.start(desk.spec("one", "/bin/true"))


def test_a_program_that_is_not_there_is_the_jobs_fault(desk: Desk) -> None:
    with pytest.raises(ProgramFailed, match="No such file"):
        desk.agent.start(desk.spec("one", f"{desk.workdir}/store/gone"))


def test_who_lost_the_lease_starts_nothing(desk: Desk) -> None:
    lease = native_leases(desk.link, desk.workdir)
    mine = lease.acquire("me")
    spec = desk.spec("one", "/bin/true", epoch=mine.epoch)
    lease.acquire("other")
    with pytest.raises(LeaseLost):
        desk.agent.start(JobSpec(spec.directory, spec.argv, 5, mine.epoch, lease.path))


def test_a_killed_agent_is_no_result(desk: Desk) -> None:
    started = desk.agent.start(desk.spec("one", "/bin/sleep", "600"))
    os.kill(started.pid, 9)
    with pytest.raises(BoardError, match="agent was killed"):
        desk.agent.wait(started, timeout_s=120)
    assert soon(lambda: not is_alive(started.job_pid))
    assert desk.agent.stop(started.directory).state is JobState.LOST


def test_the_store_can_hash_with_the_agent(desk: Desk, tmp_path: Path) -> None:
    store = BoardStore(
        desk.link,
        desk.workdir,
        hash_command=(desk.agent.path, "hash"),
        fence=desk.agent.fence,
    )
    (tmp_path / "file").write_bytes(b"x" * 1000)
    item = describe(tmp_path / "file")
    path = Path(publish(store, item.local, item.stored))
    os.utime(path, (1, 1))
    assert store.missing([item.stored]) == []
    assert store.verify([item.stored]) == []
    path.write_bytes(b"y" * 1000)
    assert store.verify([item.stored]) == [item.stored]


def test_a_job_survives_the_link(tmp_path: Path) -> None:
    board_plan = VirtualBoard("b", tmp_path / "board")
    with (
        serving(board_plan) as (board,),
        HdcTcpConfig(address=board.address).open() as link,
    ):
        desk = set_up(link, str(board.workdir))
        script = "echo 1; until [ -e cut ]; do sleep 0.1; done; echo 2"
        started = desk.agent.start(desk.spec("one", "/bin/sh", "-c", script))

        def cut_while_it_is_waited_for() -> None:
            if wait_until(lambda: is_waited_for(started.directory), timeout=120, interval=0.02):
                link.close()
            Path(started.directory, "cut").touch()

        cut = threading.Thread(target=cut_while_it_is_waited_for)
        cut.start()
        losses: list[Exception] = []
        job = desk.agent.wait(started, timeout_s=120, on_link_loss=losses.append)
        cut.join()
        assert losses
        assert isinstance(losses[0], LinkError)
        assert job.exit_status == 0
        files = desk.agent.collect(started.directory, tmp_path / "raw", status=job)
        assert files["stdout"].read_bytes() == b"1\n2\n"


def is_waited_for(directory: str) -> bool:
    """Whether an agent on a board of this host waits for the job in that directory."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            words = path.read_bytes().split(b"\0")
            if b"wait" in words and directory.encode() in words:
                return True
    return False


def test_a_board_that_goes_away_is_an_infra_error(tmp_path: Path) -> None:
    with serving(VirtualBoard("b", tmp_path / "board")) as (board,):
        link = HdcTcpConfig(address=board.address).open()
        desk = set_up(link, str(board.workdir))
        started = desk.agent.start(desk.spec("one", "/bin/sleep", "600"))
    with pytest.raises(LinkRefused):
        desk.agent.wait(started, timeout_s=120, reattach_s=1)
    link.close()
    assert soon(lambda: not is_alive(started.job_pid))


def test_a_board_that_restarts_is_noticed(tmp_path: Path) -> None:
    directory = tmp_path / "board"
    with serving(VirtualBoard("b", directory)) as (board,):
        port = board.port
        link = HdcTcpConfig(address=board.address).open()
        desk = set_up(link, str(board.workdir))
        started = desk.agent.start(desk.spec("one", "/bin/sleep", "600"))
    with serving(VirtualBoard("b", directory, port=port)), pytest.raises(BoardRebooted):
        desk.agent.wait(started, timeout_s=120, reattach_s=60)
    link.close()


@pytest.mark.skipif(not shutil.which("qemu-aarch64-static"), reason="no qemu-aarch64-static")
def test_arm64_jobs_run_behind_the_emulator(tmp_path: Path) -> None:
    emulator = (str(shutil.which("qemu-aarch64-static")), "-cpu", "cortex-a76")
    board_plan = VirtualBoard(
        "b", tmp_path / "board", emulator=emulator, preload=agent_builds.exec_shim()
    )
    agent = agent_builds.agent("aarch64")
    with (
        serving(board_plan) as (board,),
        HdcTcpConfig(address=board.address).open() as link,
    ):
        desk = set_up(link, str(board.workdir))
        assert desk.facts.execution is Execution.EMULATED
        item = describe(agent, executable=True)
        program = deploy(desk.store, plan(desk.store, [item]))[item.sha256]
        typed = link.run(f"{program} hash {program}", timeout=20)
        digest = hashlib.sha256(agent.read_bytes()).hexdigest()
        assert typed.text.startswith(digest)
        started = desk.agent.start(desk.spec("one", program, "facts"))
        assert started.emulator == " ".join(emulator)
        job = desk.agent.wait(started, timeout_s=120)
        assert job.exit_status == 0
        files = desk.agent.collect(started.directory, tmp_path / "raw", status=job)
        assert b'"compiled_for":"aarch64"' in files["stdout"].read_bytes()


def test_an_arm64_program_on_a_board_without_arm64_is_a_wrong_target(tmp_path: Path) -> None:
    with (
        serving(VirtualBoard("b", tmp_path / "board")) as (board,),
        HdcTcpConfig(address=board.address).open() as link,
    ):
        desk = set_up(link, str(board.workdir))
        item = describe(agent_builds.agent("aarch64"), executable=True)
        program = deploy(desk.store, plan(desk.store, [item]))[item.sha256]
        with pytest.raises(ConfigError, match="xec format"):
            desk.agent.start(desk.spec("one", program, "version"))
        with pytest.raises(ConfigError, match="cannot execute the agent"):
            BoardAgent(link, program, desk.workdir).refine(desk.facts)
