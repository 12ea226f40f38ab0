"""What faults do to a board itself, as jobs and the on-board agent meet it."""

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import agent_builds
import pytest

from labctl.board.agent import BoardAgent
from labctl.board.facts import probe
from labctl.board.job import JobSpec, JobState
from labctl.errors import BoardError, BoardRebooted, NotAuthorised
from labctl.hdc.daemon.authorisation import Authorisation
from labctl.hdc.host.handshake import Consent
from labctl.results.telemetry import summarise_telemetry
from labctl.retry import wait_until
from labctl.transport.base import OpenOptions, Transport
from labctl.transport.hdc import HdcTcpConfig
from labctl.virtual import fault_script as f
from labctl.virtual.board import Served, VirtualBoard, serving
from labctl.virtual.control import Control
from labctl.virtual.fault_script import FaultScript

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("private_state")]


@pytest.fixture
def board(tmp_path: Path) -> Iterator[Served]:
    with serving(VirtualBoard("b", tmp_path / "board")) as (board,):
        yield board


@pytest.fixture
def link(board: Served) -> Iterator[Transport]:
    with HdcTcpConfig(address=board.address).open() as link:
        yield link


@pytest.fixture
def agent(link: Transport, board: Served) -> BoardAgent:
    return BoardAgent(link, str(agent_builds.native_agent()), str(board.workdir))


def spec(agent: BoardAgent, script: str, sample_ms: int = 1000) -> JobSpec:
    directory = agent.job_directory("job")
    return JobSpec(directory, ("/bin/sh", "-c", script), 120, 1, sample_ms=sample_ms)


def test_a_job_that_the_kernel_kills_for_memory_says_so(board: Served, agent: BoardAgent) -> None:
    started = agent.start(spec(agent, "x=$(seq 1 3000000); echo $$; sleep 100"))
    assert wait_until(
        lambda: bool(agent.poll(started.directory).stdout_bytes), timeout=120, interval=0.1
    )
    kill = board.faults.add(f.OomKill(on="now"))
    status = agent.wait(started, timeout_s=120)
    assert (status.outcome, status.signal, status.oom_kills) == ("signaled", 9, 1)
    assert kill.fired == 1


def test_an_oom_kill_without_a_process_does_not_count(board: Served) -> None:
    kill = board.faults.add(f.OomKill(on="now"))
    time.sleep(0.3)  # it has the time to strike, and nothing to strike
    assert kill.fired == 0


def test_throttling_is_seen_in_the_telemetry(
    board: Served, link: Transport, agent: BoardAgent, tmp_path: Path
) -> None:
    heat = board.faults.add(
        f.Throttle(on="shell", matching="agent wait", memory_mhz=528, within="500ms")
    )
    # Some samples more, once it is hot.
    hot = f"{board.directory}/.labctl-fakes/sys/class/thermal/thermal_zone0/temp"
    script = f"until grep -q 95000 {hot}; do sleep 0.1; done; sleep 0.5"
    started = agent.start(spec(agent, script, sample_ms=50))
    status = agent.wait(started, timeout_s=120)
    files = agent.collect(started.directory, tmp_path / "job", status=status)
    samples = [json.loads(line) for line in files["telemetry"].read_text().splitlines()]
    heats = [sample["temps_mc"]["thermal_zone0 soc-thermal"] for sample in samples]
    clocks = [sample["freq_khz"]["3"] for sample in samples]
    memory = [sample["devfreq_hz"]["dmc"] for sample in samples]
    assert (memory[0], memory[-1]) == (1_560_000_000, 528_000_000)
    facts = agent.refine(probe(link, workdir=str(board.workdir), timeout=60))
    assert facts.memory_clock is not None
    assert facts.memory_clock.governor == "dmc_ondemand"
    seen = summarise_telemetry(files["telemetry"], status, None)
    assert seen is not None
    assert seen.limited is True
    assert heats == sorted(heats)
    assert (heats[0], heats[-1]) == (45_000, 95_000)
    assert clocks == sorted(clocks, reverse=True)
    assert (clocks[0], clocks[-1]) == (1_992_000, 816_000)
    assert heat.fired == 1


def test_a_zone_reads_what_a_kernel_of_a_vendor_writes(
    board: Served, agent: BoardAgent, tmp_path: Path
) -> None:
    board.faults.add(f.ThermalZone(on="shell", matching="agent run", zone=3, reads="78"))
    started = agent.start(spec(agent, "sleep 0.2", sample_ms=50))
    status = agent.wait(started, timeout_s=120)
    files = agent.collect(started.directory, tmp_path / "job", status=status)
    last = json.loads(files["telemetry"].read_text().splitlines()[-1])
    assert last["temps_mc"] == {"thermal_zone0 soc-thermal": 45_000}
    named = {"thermal_zone3 vendor-thermal": "78, perhaps whole degrees"}
    assert last["temps_untrusted"] == named


def test_without_such_a_fault_a_board_makes_no_sensors_up(board: Served) -> None:
    assert list((board.directory / ".labctl-fakes").iterdir()) == []


def test_a_clock_that_jumps_moves_no_duration(
    board: Served, link: Transport, agent: BoardAgent, tmp_path: Path
) -> None:
    before = int(link.run("date +%s", timeout=30).text)
    started = agent.start(spec(agent, "sleep 1"))
    board.faults.add(f.ClockJump(on="now", seconds=-86_400))
    status = agent.wait(started, timeout_s=120)
    assert 900_000_000 < status.wall_ns < 10_000_000_000
    files = agent.collect(started.directory, tmp_path / "job", status=status)
    told = json.loads(files["status.json"].read_text())
    assert told["end_utc_ns"] - told["start_utc_ns"] < -86_000 * 10**9
    assert -86_500 < int(link.run("date +%s", timeout=30).text) - before < -86_300
    assert link.run("date -d @0 +%s; date -u -r /dev/null +%Y", timeout=30).text.startswith("0\n")


def test_a_reboot_under_a_job_is_told_and_forgets_what_was_made_up(
    board: Served, link: Transport, agent: BoardAgent
) -> None:
    started = agent.start(spec(agent, "sleep 100"))
    board.faults.add(f.ClockJump(on="now", seconds=86_400))
    board.faults.add(f.Reboot(on="now", after="200ms"))
    with pytest.raises(BoardRebooted):
        agent.wait(started, timeout_s=120)
    assert abs(int(link.run("date +%s", timeout=30).text) - time.time()) < 100


def test_a_lost_process_table_loses_the_job(board: Served, agent: BoardAgent) -> None:
    started = agent.start(spec(agent, "sleep 100"))
    kill = board.faults.add(f.KillProcesses(on="now"))
    assert wait_until(lambda: kill.fired == 1, timeout=120, interval=0.05)
    assert agent.poll(started.directory).state is JobState.LOST
    with pytest.raises(BoardError, match="agent was killed"):
        agent.wait(started, timeout_s=120)


def test_a_script_holds_from_the_first_connection_on(tmp_path: Path) -> None:
    script = FaultScript(faults=(f.Lie(on="reboot"), f.Throttle(on="reboot")))
    with serving(VirtualBoard("b", tmp_path / "board", faults=script)) as (board,):
        assert (board.directory / ".labctl-fakes/sys/class/thermal").is_dir()
        with HdcTcpConfig(address=board.address).open() as link:
            link.request_reboot(timeout=30)
            assert link.run("echo $LABCTL_SANDBOX", timeout=30).text.strip() == board.boot_id
        assert [state.fired for state in board.faults.states()] == [1, 1]


def test_a_host_that_waits_is_let_in_through_the_control_socket(tmp_path: Path) -> None:
    plan = VirtualBoard("b", tmp_path / "board", authorisation=Authorisation("pending"))
    with serving(plan) as (board,):
        with (
            HdcTcpConfig(address=board.address).open(OpenOptions(timeout=30)) as link,
            pytest.raises(NotAuthorised),
        ):
            link.run("true", timeout=30)
        allowed: list[str] = []

        def somebody_looks() -> bool:
            allowed.extend(Control(board.directory).decide(allow=True))
            return bool(allowed)

        finger = threading.Thread(
            target=wait_until, args=(somebody_looks,), kwargs={"timeout": 60, "interval": 0.05}
        )
        with HdcTcpConfig(address=board.address).open(
            OpenOptions(consent=Consent(timeout=60))
        ) as link:
            finger.start()
            assert link.run("echo in", timeout=30).output == b"in\n"
        finger.join()
        assert allowed[0].startswith("SHA256:")
