"""A simulated farm whose hosts die and stall: no job is lost or doubled, no limit is exceeded."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from chaos_history import History, ended_twice, freeing_times, most_at_once
from postgres_server import PostgresServer

from labctl.config.lab import find_lab
from labctl.retry import wait_until
from labctl.state.job import NewJob
from labctl.state.state import lab_state
from labctl.transport.built_in import TRANSPORTS

HOSTS = ("lab1", "lab2", "lab3")
BOARDS = tuple(f"rk{number}" for number in range(12))
#: Of leases and heartbeats.
SECONDS = 2.0
SEED = int(os.environ.get("LABCTL_FARM_SEED", "33"))
#: Of a bus that the first six boards share, and of a meter that some jobs use.
BUS, METER = 3, 2
DEVICES = """\
lab: {lab}
database: {url}
shared_limits: {{bus: {bus}, meter: {meter}}}
boards:
"""
BOARD = """\
  {name}: {{target: rk3568, transport: {{kind: local}}, workdir: /tmp/w, shares: [{shares}]}}
"""


@dataclass
class Farm:
    """Three hosts, each of which serves two thirds of the boards."""

    root: Path
    processes: "dict[str, subprocess.Popen[bytes]]" = field(default_factory=dict)

    def start(self, host: str) -> None:
        """Start a host's worker."""
        place = HOSTS.index(host)
        served = [name for n, name in enumerate(BOARDS) if n % 3 != place]
        script = Path(__file__).parents[1] / "support" / "farm_host.py"
        words = [sys.executable, str(script), str(self.root), host, str(SECONDS), *served]
        environment = {**os.environ, "LABCTL_STATE": str(self.root / f"{host}-state")}
        environment["PYTHONPATH"] = os.pathsep.join(sys.path)
        with (self.root / f"{host}.log").open("ab") as log:
            self.processes[host] = subprocess.Popen(
                words,
                env=environment,
                stdin=subprocess.PIPE,  # a host ends when nobody holds the other end
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def fail(self, host: str, chance: random.Random) -> None:
        """Let a whole host die, or stand still for longer than its lease; then it is back."""
        process = self.processes[host]
        assert process.poll() is None, self.said()
        if chance.random() < 0.6:
            os.killpg(process.pid, signal.SIGKILL)
            _wait(process)
            self.start(host)
        else:
            os.killpg(process.pid, signal.SIGSTOP)
            time.sleep(1.5 * SECONDS)  # others must take its jobs meanwhile
            os.killpg(process.pid, signal.SIGCONT)

    def said(self) -> str:
        """Return the last lines of all hosts."""
        return "\n".join((self.root / f"{host}.log").read_text()[-2000:] for host in HOSTS)

    def end(self) -> None:
        """Kill what is left."""
        for process in self.processes.values():
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            _wait(process)


def _wait(process: "subprocess.Popen[bytes]") -> None:
    assert process.stdin is not None
    process.wait(60)
    process.stdin.close()


@pytest.fixture
def farm(tmp_path: Path, postgres: PostgresServer) -> Iterator[Farm]:
    text = DEVICES.format(lab=postgres.new_lab(), url=postgres.url, bus=BUS, meter=METER)
    for number, name in enumerate(BOARDS):
        text += BOARD.format(name=name, shares="bus" if number < 6 else "")
    (tmp_path / "devices.yaml").write_text(text)
    with ExitStack() as ending:
        made = Farm(tmp_path)
        ending.callback(made.end)
        yield made


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("count", [100, pytest.param(3000, marks=pytest.mark.soak)])
def test_hosts_that_fail_as_a_whole_lose_and_double_nothing(farm: Farm, count: int) -> None:
    chance = random.Random(SEED)
    lab = find_lab(farm.root, TRANSPORTS)
    state = lab_state(lab)
    history = History(state, str(lab.lab.lab))
    jobs = [
        NewJob(
            f"j{number}",
            {"version": 1, "number": number},
            tuple(chance.sample(BOARDS, chance.choice((1, 3, 12)))),
            uses=("meter",) if chance.random() < 0.3 else (),
            submitter=chance.choice(("ann@pc", "bob@pc", "eve@pc")),
            expected_seconds=0.3,
            id=f"j{number}",
        )
        for number in range(count)
    ]
    state.jobs.submit(*jobs)
    for host in HOSTS:
        farm.start(host)
    faults = 0
    done = 0

    def went_on() -> bool:
        return sum(one.after == "done" for one in history.changes()) >= min(count, done + 6)

    while done < count:
        assert wait_until(went_on, timeout=120, interval=0.1), farm.said()
        done = sum(one.after == "done" for one in history.changes())
        if done < count:
            farm.fail(chance.choice(HOSTS), chance)
            faults += 1
    found = [state.jobs.find(job.id) for job in jobs]
    changes = history.changes()
    assert [one for one in found if one.state != "done"] == []
    # Lost three times with its host, which nobody is to blame for but the hosts.
    assert {(one.exit_status, one.blame) for one in found} <= {(0, None), (3, "infra")}
    assert ended_twice(changes) == []
    of_board = most_at_once(changes, lambda change: change.board)
    assert set(of_board.values()) == {1}
    shared = {job.id for job in jobs if "meter" in job.uses}
    used = most_at_once(changes, lambda change: "meter" if change.job in shared else None)
    bus = most_at_once(changes, lambda change: "bus" if change.board in BOARDS[:6] else None)
    assert (used["meter"], bus["bus"]) == (METER, BUS)  # reached, never exceeded
    freed = freeing_times(changes)
    sys.stdout.write(
        f"seed {SEED}: {count} jobs, {faults} failures of hosts, {len(freed)} lost jobs freed"
        f" {max(freed.values(), default=0.0):.1f} s after they expired at the latest\n"
    )
    assert freed
    assert max(freed.values()) < (5 if count > 1000 else 30)  # beside a busy neighbour
