"""A lab of three hosts to be broken: processes, a PostgreSQL behind proxies, virtual boards."""

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import agent_builds
from board_effects import effects_after_epoch, read_effects
from postgres_server import PostgresServer
from small_disk import fill, small_disk

from labctl import process
from labctl.config.lab import find_lab
from labctl.config.recipe import find_recipe
from labctl.errors import HostError
from labctl.farm.queue_ledger import share_inputs
from labctl.farm.run_content import RunContent
from labctl.farm.store import lab_store
from labctl.records import TrialRecord
from labctl.retry import wait_until
from labctl.runs import read_recipe
from labctl.state import Job, LabState, NewJob, lab_state
from labctl.transport.registry import TRANSPORTS

HOSTS = ("lab1", "lab2", "lab3")
BOARDS = ("b-1", "b-2")
#: Of leases, attempts and heartbeats.
SECONDS = 3.0
#: Clocks of the hosts are wrong by these, in s; a host's clock decides nothing.
SKEWS = {"lab1": 0, "lab2": 3600, "lab3": -86_400}
FAULTS = ("none", "kill", "stop", "partition", "database", "disk", "board")
#: libfaketime also changes what sleeps wait for, and Python's fail: only the wall clock is set.
_CLOCK = """\
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *now)
{
    int result = syscall(SYS_clock_gettime, clock, now);
    const char *skew = getenv("LAB_CLOCK_SKEW");
    if (result == 0 && clock == CLOCK_REALTIME && skew)
        now->tv_sec += atoi(skew);
    return result;
}
"""

_SLEEPER = """\
#!/bin/sh
sleep $1
echo token
"""
_RECIPE = f"""\
name: sleeping
target: {agent_builds.HOST}
engine:
  name: command
  program: {{file: tools/sleeper}}
  arguments: ["{{seconds}}"]
  tokens: {{stream: stdout, each: line, count: tokens}}
models: {{none: {{file: models/any.bin}}}}
parameters: {{seconds: 0.3, tokens: 1}}
max_time: 5m
"""


class Proxy:
    """A port of this host that leads to a Unix socket, until it is cut."""

    def __init__(self, target: Path):
        self._target = target
        self._cut = False
        self._writers: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._open = asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(60)
        self.port: int = self._open.sockets[0].getsockname()[1]

    async def _listen(self) -> asyncio.Server:
        return await asyncio.start_server(self._serve, "127.0.0.1", 0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            there, to_there = await asyncio.open_unix_connection(self._target)
        except OSError:
            writer.close()
            return
        self._writers.add(to_there)
        await asyncio.gather(self._pump(reader, to_there), self._pump(there, writer))
        self._writers -= {writer, to_there}

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while piece := await reader.read(1 << 16):
                if not self._cut:  # what is sent meanwhile never arrives
                    writer.write(piece)
                    await writer.drain()
        writer.close()

    def cut(self) -> None:
        """Let nothing through, and tell nobody."""
        self._cut = True

    def heal(self) -> None:
        """Let new connections through; those that lost something break."""

        async def break_all() -> None:
            self._cut = False
            for writer in self._writers:
                writer.transport.abort()

        asyncio.run_coroutine_threadsafe(break_all(), self._loop).result(60)

    def close(self) -> None:
        """End it."""

        async def end() -> None:
            self._open.close()
            for writer in self._writers:
                writer.transport.abort()
            await self._open.wait_closed()
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(end(), self._loop).result(60)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(60)
        self._loop.close()


@dataclass
class Host:
    """One lab host."""

    name: str
    root: Path
    proxy: Proxy
    log: Path
    #: A library that sets the clock of its processes.
    clock: Path
    process: "subprocess.Popen[bytes] | None" = None

    def start(self) -> None:
        """Start its worker, under its own name, with its own folders and clock."""
        environment = {
            **os.environ,
            "LABCTL_STATE": str(self.root.parent / f"{self.name}-state"),
            "PYTHONPATH": str(Path(__file__).parent),
        }
        environment |= {"LD_PRELOAD": str(self.clock), "LAB_CLOCK_SKEW": str(SKEWS[self.name])}
        script = str(Path(__file__).parent / "chaos_host.py")
        words = [sys.executable, script, str(self.root), self.name, str(SECONDS), *BOARDS]
        named = ["unshare", "--uts", "sh", "-c", f'hostname {self.name} && exec "$@"', "sh", *words]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                named if os.geteuid() == 0 else words, env=environment, stdout=log, stderr=log
            )

    def send(self, number: signal.Signals) -> None:
        """Send its worker a signal."""
        assert self.process is not None
        self.process.send_signal(number)

    def end(self, number: signal.Signals = signal.SIGKILL) -> None:
        """End its worker."""
        if self.process is not None:
            self.send(number)
            self.send(signal.SIGCONT)
            self.process.wait(120)
            self.process = None


@dataclass
class ChaosLab:
    """The lab: what a trial breaks, and what it asks."""

    state: LabState
    root: Path
    hosts: dict[str, Host]
    server: PostgresServer
    effects: Path
    boards: Any
    content: dict[str, Any] = field(default_factory=dict)
    submitted: list[str] = field(default_factory=list)
    #: Longest time (s) after its expiry in which a job of a lost worker was free again.
    slowest_freeing: float = 0.0

    def submit(self, trial: int, count: int) -> None:
        """Put jobs into the queue."""
        jobs = [
            NewJob("sleeping", self.content, BOARDS, id=f"t{trial}-{number}")
            for number in range(count)
        ]
        self.state.jobs.submit(*jobs)
        self.submitted += [job.id for job in jobs]

    def job(self, name: str) -> Job:
        """One job, as the queue has it."""
        job = self.state.jobs.get(name)
        assert job is not None, f"job {name} is lost"
        return job

    def restart_database(self) -> None:
        """Kill the database, and start it again from what is on its disk."""
        running = self.server.process
        running.send_signal(signal.SIGQUIT)
        running.wait(60)
        owner = self.server.socket.stat().st_uid or None
        self.server.process = subprocess.Popen(
            running.args,
            user=owner,
            cwd=self.server.socket,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        assert wait_until(self._database_answers, timeout=60, interval=0.05)

    def _database_answers(self) -> bool:
        try:
            self.state.jobs.list()
        except HostError:
            return False
        return True

    def runs(self) -> dict[str, list[Path]]:
        """All run directories of all hosts, but for copies, by id."""
        found: dict[str, list[Path]] = {}
        for host in self.hosts.values():
            for path in host.root.glob("runs/*-sleeping-*"):
                if not (path / "fetched").exists() and (path / "run.json").exists():
                    found.setdefault(path.name, []).append(path)
        return found

    def said(self) -> str:
        """What the hosts wrote, for a test that failed."""
        return "\n".join(
            f"== {host.name}\n{host.log.read_text()[-3000:]}" for host in self.hosts.values()
        )


@contextmanager
def chaos_lab(root: Path, server: PostgresServer) -> Iterator[ChaosLab]:
    """Three hosts that serve two boards, all of them running."""
    agent_builds.native_agent()
    effects = root / "effects.jsonl"
    words = ["virtual-board", "--json", "--dir", str(root / "board"), "--port", "0", "--name", "b"]
    words += ["--count", str(len(BOARDS)), "--target", agent_builds.HOST]
    clock = root / "clock.so"
    compiler = ["cc", "-shared", "-fPIC", "-O2", "-o", str(clock), "-x", "c", "-"]
    subprocess.run(compiler, input=_CLOCK, text=True, check=True)
    with ExitStack() as ending:
        served = process.start(
            [sys.executable, "-m", "labctl", *words, "--effects", str(effects)],
            cwd=root,
            stderr=None,
            env=os.environ,
        )
        assert served.stdout is not None
        ending.callback(served.stdout.close)
        ending.callback(process.stop, served)
        boards = json.loads(served.stdout.readline())
        name, hosts = server.new_lab(), {}
        for host in HOSTS:
            proxy = Proxy(server.socket / ".s.PGSQL.5432")
            ending.callback(proxy.close)
            folder = root / host
            url = f"postgresql://labctl@127.0.0.1:{proxy.port}/postgres"
            _write_lab(folder, name, url, root / "store", boards)
            if os.geteuid() == 0 and host == "lab3":
                ending.enter_context(small_disk(folder / "runs", 4096))
            hosts[host] = Host(host, folder, proxy, root / f"{host}.log", clock)
            ending.callback(hosts[host].end)
        _write_lab(root / "desk", name, server.url, root / "store", boards)
        _write_inputs(root / "desk")
        lab = find_lab(root / "desk", TRANSPORTS)
        found = ChaosLab(lab_state(lab), root, hosts, server, effects, boards)
        ending.callback(lambda: _stop(found.server))
        recipe = read_recipe(find_recipe("sleeping", lab.root), (), lab_root=lab.root)
        content = RunContent.of(recipe, lab.root)
        share_inputs(lab, lab_store(lab), content)  # the hosts have no file of the recipe
        found.content = content.document()
        for one in hosts.values():
            one.start()
        yield found


def _stop(server: PostgresServer) -> None:
    server.process.send_signal(signal.SIGINT)
    server.process.wait(60)


def _write_lab(folder: Path, name: str, url: str, store: Path, boards: Any) -> None:
    folder.mkdir()
    entries = "".join(
        f"  {board['name']}:\n    target: {agent_builds.HOST}\n"
        f'    transport: {{kind: hdc, link: tcp, address: "{board["address"]}"}}\n'
        f"    workdir: {board['workdir']}\n"
        for board in boards
    )
    text = f"lab: {name}\ndatabase: {url}\nstore: {store}\nboards:\n{entries}"
    (folder / "devices.yaml").write_text(text)


def _write_inputs(folder: Path) -> None:
    for part in ("models", "tools", "recipes"):
        (folder / part).mkdir()
    (folder / "models" / "any.bin").write_bytes(bytes(1000))
    (folder / "tools" / "sleeper").write_text(_SLEEPER)
    (folder / "recipes" / "sleeping.yaml").write_text(_RECIPE)


def run_trial(lab: ChaosLab, trial: int, seed: int) -> str:
    """Break something while jobs run, and mend it; return words on what it was.

    The trial's number and the seed decide everything random.
    """
    rng = random.Random(f"{seed}/{trial}")
    every = random.Random(f"{seed}/{trial // len(FAULTS)}").sample(FAULTS, len(FAULTS))
    fault, chosen = every[trial % len(FAULTS)], rng.choice(HOSTS)
    before, lasting = rng.uniform(0.0, 1.0), rng.uniform(0.2, 1.5 * SECONDS)
    left = [job for job in lab.state.jobs.list() if job.state in ("waiting", "running")]
    lab.submit(trial, max(len(BOARDS) - len(left), 0))
    pause = threading.Event()
    if fault != "none":  # what nobody does cannot be broken
        wait_until(lambda: _is_at_work(lab), timeout=5, interval=0.05)
    pause.wait(before)  # a random moment is wanted here: no condition
    running = [job for job in lab.state.jobs.list() if job.state == "running"]
    # Who has a job is broken rather than who has none.
    at_work = sorted({(job.worker or "").partition(":")[0] for job in running} & set(HOSTS))
    host = lab.hosts[rng.choice(at_work) if at_work else chosen]
    busy = [job for job in running if (job.worker or "").startswith(f"{host.name}:")]
    what = (
        f"trial {trial}: {fault} of {host.name} ({len(busy)} jobs) after {before:.1f} s"
        f" for {lasting:.1f} s"
    )
    match fault:
        case "kill":
            host.end()
            _watch_freeing(lab, busy, what)
            host.start()
        case "stop":
            host.send(signal.SIGSTOP)
            pause.wait(lasting)
            host.send(signal.SIGCONT)
        case "partition":
            host.proxy.cut()
            pause.wait(lasting)
            host.proxy.heal()
        case "database":
            lab.restart_database()
        case "disk":
            full = lab.hosts["lab3"]
            fill(full.root / "runs")
            pause.wait(lasting)
            (full.root / "runs" / "filling").unlink()
        case "board":
            _lose_link(lab, rng)
        case "none":
            pass
    return what


def _is_at_work(lab: ChaosLab) -> bool:
    return any(job.state == "running" for job in lab.state.jobs.list())


def check_all(lab: ChaosLab) -> None:
    """Wait for all jobs; see that none is lost or doubled, blamed wrongly, or was unfenced."""
    ended = wait_until(
        lambda: all(lab.job(name).state == "done" for name in lab.submitted),
        timeout=240,
        interval=0.2,
    )
    jobs = [lab.job(name) for name in lab.submitted]
    left = [(job.id, job.state, job.attempts, job.worker, job.reason) for job in jobs]
    assert ended, f"{left}\n{lab.said()}"
    for job in jobs:
        _check_end(lab, job)
    runs = [job.run for job in jobs if job.exit_status == 0]
    assert len(set(runs)) == len(runs), "one run is the result of two jobs"
    wrong = _stale_effects(lab)
    assert not wrong, f"{wrong}\n{lab.said()}"


def _stale_effects(lab: ChaosLab) -> list[Any]:
    """What happened on a board under an older epoch after a newer one was there.

    Of a change that was over before its process could be looked at, nothing is said.
    """
    return [
        one
        for one in effects_after_epoch(read_effects(lab.effects))
        if one["what"] in ("lease", "started") or one["by"]
    ]


def _watch_freeing(lab: ChaosLab, lost: list[Job], what: str) -> None:
    """See that jobs of a killed worker are free again soon after they expire."""
    for job in lost:
        if lab.job(job.id).state != "running" or lab.job(job.id).attempts != job.attempts:
            continue  # it ended just before the kill
        expires = lab.job(job.id).expires or 0.0
        freed = wait_until(
            lambda job=job: (
                (lab.job(job.id).attempts, lab.job(job.id).state)  # type: ignore[misc]
                != (job.attempts, "running")
            ),
            timeout=60,
            interval=0.05,
        )
        assert freed, f"{what}: job {job.id} stays with a dead worker\n{lab.said()}"
        ((now,),) = lab.state.ask(f"SELECT {lab.state.now}", {})
        lab.slowest_freeing = max(lab.slowest_freeing, now - expires)


def _lose_link(lab: ChaosLab, rng: random.Random) -> None:
    """Break every connection to one board, as a cable that is pulled."""
    port = rng.choice(lab.boards)["address"].rpartition(":")[2]
    subprocess.run(["ss", "-K", "dport", "=", f":{port}"], check=False, stdout=subprocess.DEVNULL)


def _check_end(lab: ChaosLab, job: Job) -> None:
    """The job's blame is right, and its run is there once, whole."""
    context = f"{replace(job, request='')}\n{lab.said()}"
    assert job.blame in (None, "infra"), context  # nothing here is a program's fault
    if job.blame is not None:
        assert job.exit_status == 3, context
        return
    assert job.exit_status == 0, context
    assert job.run is not None, context
    places = lab.runs().get(job.run, [])
    assert len(places) == 1, f"{places}\n{context}"
    lines = (places[0] / "records.jsonl").read_text().splitlines()
    records = [TrialRecord.model_validate_json(line) for line in lines]
    assert [record.number for record in records] == [1], context
    assert records[0].failure is None, context
    assert lab.state.stored_runs.get(job.run) is not None, context
