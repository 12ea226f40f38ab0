"""Faults of a lab of three hosts: each trial breaks one thing at random, and mends it."""

import random
import signal
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from chaos import BOARDS, HOSTS, ChaosLab, Fault, Host
from small_disk import fill

from labctl.retry import wait_until
from labctl.state.job import Job

FAULTS = (
    "none",
    "kill",
    "stop",
    "partition",
    "cable",
    "database",
    "restore",
    "clock",
    "disk",
    "power",
    "link",
)
_DAY = 86_400
#: Commands of people that begin as a fault does; more begin while there is no database.
_CLIENTS = 2
#: That wait or run when a trial begins: one more than there are boards.
_JOBS = len(BOARDS) + 1


def run_trial(lab: ChaosLab, trial: int, seed: int) -> str:
    """Break something while jobs run, and mend it; return words on what it was.

    The trial's number and the seed decide everything random.
    """
    lab.keep_hosts()
    kinds = faults_of(lab)
    rng = random.Random(f"{seed}/{trial}")
    every = random.Random(f"{seed}/{trial // len(kinds)}").sample(kinds, len(kinds))
    kind, chosen = every[trial % len(kinds)], rng.choice(HOSTS)
    before = rng.uniform(0.0, lab.seconds / 3)
    lasting = rng.uniform(0.1, 0.5) * lab.seconds
    outlives = rng.random() < 0.5
    if rng.random() < 0.25:
        lab.back_up()
    left = [job for job in lab.state.jobs.list() if job.state in ("waiting", "running")]
    lab.submit(trial, max(_JOBS - len(left), 0), broken=rng.random() < 0.2)
    if kind != "none":  # what nobody does cannot be broken
        wait_until(lambda: _is_at_work(lab), timeout=5, interval=0.05)
    _pause(before)
    running = [job for job in lab.state.jobs.list() if job.state == "running"]
    # Who has a job is broken rather than who has none.
    at_work = sorted({(job.worker or "").partition(":")[0] for job in running} & set(HOSTS))
    host = lab.hosts[rng.choice(at_work) if at_work else chosen]
    busy = [job for job in running if (job.worker or "").startswith(f"{host.name}:")]
    what = f"trial {trial}: {kind} of {host.name} ({len(busy)} jobs) after {before:.1f} s"
    fault = Fault(f"{what} for {'its lease and ' if outlives else ''}{lasting:.1f} s", time.time())
    if kind != "none":
        lab.faults.append(fault)
    last = partial(_last, lab, busy if outlives else [], lasting)
    if kind != "restore":  # what a backup does not know is gone
        lab.clients.start(_CLIENTS)
    fault.words += _break(lab, kind, host, last, rng)
    fault.ended = time.time()
    lab.clients.finish()
    return fault.words


def faults_of(lab: ChaosLab) -> tuple[str, ...]:
    """Return the faults that can be injected here: some need root."""
    missing = set() if lab.has_disks else {"disk"}
    if any(host.network.link is None for host in lab.hosts.values()):
        missing.add("cable")
    return tuple(fault for fault in FAULTS if fault not in missing)


def _break(
    lab: ChaosLab, kind: str, host: Host, last: Callable[[], None], rng: random.Random
) -> str:
    """Break something for a time, and mend it; return more words on it."""
    match kind:
        case "kill":
            host.end()
            last()
            host.start()
        case "stop":
            host.send(signal.SIGSTOP)
            last()
            host.send(signal.SIGCONT)
        case "partition":
            return _cut_off(host, last, rng)
        case "cable":
            host.network.pull()
            last()
            host.network.plug()
        case "database":
            lab.stop_database()
            lab.clients.start(4 * _CLIENTS)
            _pause(rng.uniform(0.1, 0.5) * lab.seconds)
            lab.start_database()
        case "restore":
            return _restore(lab, rng)
        case "clock":
            seconds = rng.randint(-2 * _DAY, 2 * _DAY)
            host.clock.set(seconds)
            return f": to {seconds:+d} s"
        case "disk":
            fill(host.root / "runs")
            last()
            (host.root / "runs" / "filling").unlink()
        case "power":
            board = rng.choice(lab.boards)
            board.power_off()
            _pause(rng.uniform(0.1, 0.5) * lab.seconds)
            board.start()
            return f": board {board.name}"
        case "link":
            number = rng.randrange(len(BOARDS))
            for one in lab.hosts.values():
                one.boards[number].drop()
            return f": board {BOARDS[number]}"
    return ""


def _last(lab: ChaosLab, busy: list[Job], lasting: float) -> None:
    """Wait for a time in s, after a host's jobs were given to others, who are at work on them.

    So whoever had them before comes back while others change the board.
    """

    def is_taken(job: Job) -> bool:
        now = lab.job(job.id)
        successor = (now.worker or "").partition(":")[0]
        return now.state == "done" or (
            now.worker not in (None, job.worker)
            and any((one.job, one.host) == (job.id, successor) for one in lab.state.leases.list())
        )

    wait_until(lambda: all(map(is_taken, busy)), timeout=4 * lab.seconds, interval=0.05)
    _pause(lasting)


def _cut_off(host: Host, last: Callable[[], None], rng: random.Random) -> str:
    cut = rng.choice(("the database", "the boards", "both"))
    proxies = [] if cut == "the boards" else [host.database]
    proxies += [] if cut == "the database" else host.boards
    for proxy in proxies:
        proxy.cut()
    last()
    for proxy in proxies:
        proxy.heal()
    return f": from {cut}"


def _restore(lab: ChaosLab, rng: random.Random) -> str:
    """Kill all workers, restore a backup of some trials ago, and start them again."""
    if not lab.backups:
        lab.back_up()
        return ": none yet, the first backup is made"
    backup: Path = rng.choice(lab.backups)
    for host in lab.hosts.values():
        host.end()
    lab.restore(backup)
    began = lab.state.moment()
    for host in lab.hosts.values():
        host.start()
    lab.await_worker(began)
    return f": {backup.name}"


def _is_at_work(lab: ChaosLab) -> bool:
    lab.keep_hosts()
    return any(job.state == "running" for job in lab.state.jobs.list())


def _pause(seconds: float) -> None:
    threading.Event().wait(seconds)  # a random moment is wanted here: no condition
