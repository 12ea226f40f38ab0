"""A lab of three hosts to be broken: processes, a PostgreSQL behind proxies, virtual boards."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import agent_builds
from chaos_boards import VirtualBoard
from chaos_clients import SHELF, Clients, lab_clients
from chaos_clock import Clock, clock_library
from chaos_history import History
from chaos_network import HostNetwork, Proxies, Proxy, host_networks
from postgres_server import PostgresServer
from small_disk import may_mount, small_disk

from labctl.config.lab import LabFile, find_lab
from labctl.config.recipe import find_recipe
from labctl.errors import ExitStatus, HostError
from labctl.farm.queue_ledger import share_inputs
from labctl.farm.run_content import RunContent
from labctl.farm.store import lab_store
from labctl.retry import wait_until
from labctl.runs.inputs.prepare import read_recipe
from labctl.state.job import Job, NewJob
from labctl.state.state import LabState, lab_state
from labctl.transport.built_in import TRANSPORTS

HOSTS = ("lab1", "lab2", "lab3")
BOARDS = ("b-1", "b-2")
#: Clocks of the hosts are wrong by these at first, in s; a host's clock decides nothing.
SKEWS = {"lab1": 0, "lab2": 3600, "lab3": -86_400}
#: Exit status of a program that is broken itself.
BROKEN = 7

_SLEEPER = """\
#!/bin/sh
sleep $1
echo token of $2
exit $3
"""
#: A board of people alone.
_SHELF = f"""\
  {SHELF}:
    target: {agent_builds.HOST}
    transport: {{kind: hdc, link: tcp, address: "127.0.0.1:9"}}
    workdir: /nowhere
"""
_RECIPE = f"""\
name: sleeping
target: {agent_builds.HOST}
engine:
  name: command
  program: {{file: tools/sleeper}}
  arguments: ["{{seconds}}", "{{number}}", "{{status}}"]
  tokens: {{stream: stdout, each: line, count: tokens}}
models: {{none: {{file: models/any.bin}}}}
parameters: {{seconds: 0.3, tokens: 1, number: 0, status: 0}}
max_time: 5m
"""


@dataclass
class Host:
    """One lab host."""

    name: str
    root: Path
    network: HostNetwork
    database: Proxy
    boards: list[Proxy]
    clock: Clock
    log: Path
    #: Of leases, attempts and heartbeats.
    seconds: float
    process: "subprocess.Popen[str] | None" = None
    is_serving: bool = False

    def boot(self) -> None:
        """Start it under its own name, with its own network, folders and clock."""
        environment = {
            **os.environ,
            **self.clock.environment,
            "LABCTL_STATE": str(self.root.parent / f"{self.name}-state"),
            "PYTHONPATH": os.pathsep.join((str(Path(__file__).parent), *sys.path)),
        }
        script = str(Path(__file__).parent / "chaos_host.py")
        words = [sys.executable, script, str(self.root), self.name, str(self.seconds), *BOARDS]
        if os.geteuid() == 0:
            named = f'hostname {self.name} && exec "$@"'
            words = [*self.network.within, "unshare", "--uts", "sh", "-c", named, "sh", *words]
        pipe = subprocess.PIPE
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                words, env=environment, stdin=pipe, stdout=pipe, stderr=log, text=True
            )

    def start(self) -> None:
        """Start its worker."""
        self._ask("start")
        self.is_serving = True

    def send(self, number: signal.Signals) -> None:
        """Send its worker a signal."""
        if self.is_serving:
            self._ask(f"signal {number:d}")

    def end(self) -> None:
        """Kill its worker."""
        if self.is_serving:
            self._ask("kill")
            self.is_serving = False

    def switch_off(self) -> None:
        """End it."""
        self.end()
        if self.process is not None:
            self.process.communicate(timeout=120)

    def _ask(self, what: str) -> str:
        assert self.process is not None
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{what}\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        assert answer, f"{self.name} has ended"
        return answer.strip()

    def start_again(self) -> None:
        """Start its worker if it ended by itself, as a service manager does."""
        if self.is_serving and (status := self._ask("poll")):
            self.is_serving = False
            said = f"{self.name} ended with {status}\n{self.log.read_text()[-3000:]}"
            assert int(status) == ExitStatus.INFRA, said  # no database, or a full disk
            self.start()


@dataclass
class Fault:
    """What was broken, and when by the clock of this machine, which is the database's."""

    words: str
    began: float
    ended: float = 0.0


@dataclass
class ChaosLab:
    """The lab: what a trial breaks, and what it asks."""

    lab: LabFile
    state: LabState
    history: History
    root: Path
    hosts: dict[str, Host]
    boards: list[VirtualBoard]
    server: PostgresServer
    has_disks: bool
    #: Of leases, attempts and heartbeats.
    seconds: float
    #: All jobs by id, with the exit status of their program.
    submitted: dict[str, NewJob] = field(default_factory=dict)
    broken: set[str] = field(default_factory=set)
    faults: list[Fault] = field(default_factory=list)
    backups: list[Path] = field(default_factory=list)
    #: Results of jobs that were told once: job -> run.
    results: dict[str, str] = field(default_factory=dict)
    #: What people do meanwhile; made when the lab is there.
    clients: Clients = field(init=False)
    #: Parameter ``number`` of each run directory's recipe.
    numbers: dict[Path, int] = field(default_factory=dict)

    @property
    def effects(self) -> Path:
        """The log of both boards."""
        return self.boards[0].effects

    def submit(self, trial: int, count: int, *, broken: bool) -> None:
        """Put jobs into the queue; the program of the first one may be broken."""
        path = find_recipe("sleeping", self.lab.root)
        jobs = []
        for one in range(count):
            number, is_broken = len(self.submitted) + 1, broken and one == 0
            status = BROKEN if is_broken else 0
            settings = (f"parameters.number={number}", f"parameters.status={status}")
            recipe = read_recipe(path, settings, lab_root=self.lab.root)
            content = RunContent.of(recipe, self.lab.root)
            share_inputs(self.lab, lab_store(self.lab), content)  # the hosts have no file of it
            name = f"t{trial}-{number}"
            self.submitted[name] = NewJob("sleeping", content.document(), BOARDS, id=name)
            jobs.append(self.submitted[name])
            if is_broken:
                self.broken.add(name)
        self.state.jobs.submit(*jobs)

    def job(self, name: str) -> Job:
        """One job, as the queue has it."""
        job = self.state.jobs.get(name)
        assert job is not None, f"job {name} is lost"
        return job

    def keep_hosts(self) -> None:
        """Start the workers again that found no database when they started."""
        for host in self.hosts.values():
            host.start_again()

    def stop_database(self) -> None:
        """Kill the database."""
        self.server.stop(signal.SIGQUIT)

    def start_database(self) -> None:
        """Start the database again from what is on its disk."""
        self.server.start()
        assert wait_until(self._database_answers, timeout=60, interval=0.05)
        self.history.mark("the database is back")

    def _database_answers(self) -> bool:
        try:
            self.state.jobs.list()
        except HostError:
            return False
        return True

    def back_up(self) -> None:
        """Make a backup; some older ones are kept."""
        self.backups.append(self.root / f"backup-{len(list(self.root.glob('backup-*')))}.sqlite")
        self.state.backup(self.backups[-1])
        del self.backups[:-4]

    def restore(self, backup: Path) -> None:
        """Restore a backup as the guide says: without workers; jobs it lacks are submitted again.

        They keep their ids, so that nothing of theirs may be run a second time.
        """
        self.state.restore(backup, force=True)  # whom a kill ended looks alive for a minute
        self.history.mark("restored")
        ended = len(self.submitted) + len(self.clients.jobs)
        known = {job.id for job in self.state.jobs.list(ended=ended)}
        every = {**self.submitted, **self.clients.jobs}
        self.state.jobs.submit(*(job for name, job in every.items() if name not in known))
        self.clients.forget()

    def await_worker(self, since: float) -> None:
        """Wait until a worker has begun to serve after a moment by the database's clock."""

        def is_there() -> bool:
            self.keep_hosts()
            return any(worker.started_at >= since for worker in self.state.workers.list())

        assert wait_until(is_there, timeout=120, interval=0.1), self.said()
        self.history.mark("a worker is there")

    def runs(self) -> dict[int, list[Path]]:
        """Run directories of all hosts that have a plan, but for copies, by their job's number."""
        found: dict[int, list[Path]] = {}
        for host in self.hosts.values():
            for path in host.root.glob("runs/*-sleeping-*"):
                if (path / "fetched").exists() or not (path / "plan.json").exists():
                    continue
                if path not in self.numbers:
                    told = json.loads((path / "run.json").read_text())
                    self.numbers[path] = told["recipe_resolved"]["parameters"]["number"]
                found.setdefault(self.numbers[path], []).append(path)
        return found

    def said(self) -> str:
        """What the hosts wrote, for a test that failed."""
        return "\n".join(
            f"== {host.name}\n{host.log.read_text()[-3000:]}" for host in self.hosts.values()
        ) + "\n".join(f"\n{time.ctime(fault.began)} {fault.words}" for fault in self.faults[-25:])

    def refused(self) -> int:
        """How often a worker was told that another has its job or its board by now."""
        text = "".join(host.log.read_text() for host in self.hosts.values())
        words = r"^attempt \d+ of job \S+ was lost|ended with status 3: the lease of board"
        return len(re.findall(words, text, re.MULTILINE))

    def ends(self) -> list[tuple[str, int]]:
        """Each end of an attempt that a host told: job and exit status."""
        text = "".join(host.log.read_text() for host in self.hosts.values())
        found = re.findall(r"^job (\S+) ended with status (\d+)", text, re.MULTILINE)
        return [(job, int(status)) for job, status in found]


@contextmanager
def chaos_lab(root: Path, server: PostgresServer, seconds: float) -> Iterator[ChaosLab]:
    """Three hosts that serve two boards, all of them running; leases end after so long (s)."""
    agent_builds.native_agent()
    boards = [VirtualBoard(name, root / name, root / "effects.jsonl") for name in BOARDS]
    has_disks = may_mount()
    with ExitStack() as ending:
        for board in boards:
            ending.callback(board.power_off)
            board.start()
        proxies = Proxies()
        ending.callback(proxies.close)
        library, name, hosts = clock_library(root / "clock.so"), server.new_lab(), {}
        for host, network in ending.enter_context(host_networks(HOSTS)).items():
            folder, address = root / host, network.address
            database = proxies.lead(address, lambda: server.socket / ".s.PGSQL.5432")
            links = [proxies.lead(address, board.port_now) for board in boards]
            url = f"postgresql://labctl@{database.address}/postgres"
            _write_lab(folder, name, url, boards, [link.address for link in links])
            if has_disks:
                ending.enter_context(small_disk(folder / "runs", 1 << 17))
            clock = Clock(root / f"{host}.clock", library, SKEWS[host])
            log = root / f"{host}.log"
            hosts[host] = Host(host, folder, network, database, links, clock, log, seconds)
            ending.callback(hosts[host].switch_off)
            hosts[host].boot()  # it takes a while: all at once
        _write_lab(root / "desk", name, server.url, boards, [f"127.0.0.1:{b.port}" for b in boards])
        with (root / "desk" / "devices.yaml").open("a") as file:
            file.write(_SHELF)
        write_inputs(root / "desk")
        lab = find_lab(root / "desk", TRANSPORTS)
        state = lab_state(lab)
        history = History(state, name)
        found = ChaosLab(lab, state, history, root, hosts, boards, server, has_disks, seconds)
        found.clients = ending.enter_context(lab_clients(root, state))
        for one in hosts.values():
            one.start()
        yield found


def _write_lab(
    folder: Path, name: str, url: str, boards: list[VirtualBoard], addresses: list[str]
) -> None:
    folder.mkdir()
    entries = "".join(
        f"  {board.name}:\n    target: {agent_builds.HOST}\n"
        f'    transport: {{kind: hdc, link: tcp, address: "{address}"}}\n'
        f"    workdir: {board.workdir}\n"
        for board, address in zip(boards, addresses, strict=True)
    )
    store = folder.parent / "store"
    text = f"lab: {name}\ndatabase: {url}\nstore: {store}\nboards:\n{entries}"
    (folder / "devices.yaml").write_text(text)


def write_inputs(folder: Path) -> None:
    """Write the recipe of the jobs, and what it needs."""
    for part in ("models", "tools", "recipes"):
        (folder / part).mkdir()
    (folder / "models" / "any.bin").write_bytes(bytes(1000))
    (folder / "tools" / "sleeper").write_text(_SLEEPER)
    (folder / "recipes" / "sleeping.yaml").write_text(_RECIPE)
