"""The jobs of a night, by the state as it really is; the workers are played by the test."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest
from artifacts_made import make_artifact
from nightly_runs import Lab as Recorded
from postgres_server import PostgresServer
from tiny_gguf import write_tiny_gguf
from workers_made import looks_of

from labctl.config.lab import LabFile, find_lab
from labctl.config.recipe import Recipe, find_recipe
from labctl.database.base import DamagedDatabase, DatabaseAway, patiently
from labctl.errors import (
    Blame,
    BoardBusy,
    BoardOutOfService,
    ConfigError,
    ExitStatus,
    HostError,
    LabctlError,
    ProgramFailed,
    ServiceAway,
    ToolMissing,
)
from labctl.farm.job import FarmJob, JobResult
from labctl.farm.nightly import night_jobs
from labctl.farm.nightly.executor import Built
from labctl.farm.nightly.hosts import check_reach
from labctl.farm.nightly.lab_executor import LabExecutor
from labctl.farm.nightly.night_jobs import NightJobs
from labctl.farm.run_archives import RunArchives
from labctl.farm.run_content import RunContent
from labctl.farm.store import lab_store
from labctl.farm.worker import Worker
from labctl.records.night import NightRow
from labctl.records.run import NightPart
from labctl.retry import wait_until
from labctl.runs.inputs.prepare import read_recipe
from labctl.state.events import this_user
from labctl.state.groups import NewGroup
from labctl.state.health import BoardHealth, Health, Healths
from labctl.state.job import Job, NewJob
from labctl.state.jobs import Jobs
from labctl.state.state import lab_state
from labctl.state.uses import UseKind
from labctl.transport.built_in import TRANSPORTS

RECIPE = """\
name: sleeping
target: rk3568
engine:
  name: command
  program: {file: tools/sleeper}
  arguments: ["1"]
  tokens: {stream: stdout, each: line, count: tokens}
models: {none: {file: models/any.bin}}
parameters: {tokens: 1}
max_time: 5m
"""
DEVICES = """\
lab: farm
store: store
boards:
  rk1: {host: lab1, target: rk3568, transport: {kind: hdc, link: tcp, address: "127.0.0.1:1"}}
  rk2: {host: lab2, target: rk3568, transport: {kind: hdc, link: tcp, address: "127.0.0.1:2"}}
"""
ROW = NightRow(
    name="b/sleeping@rk2",
    build="b",
    recipe="sleeping",
    board="rk2",
    variants=("q2_k",),
    seconds=1,
    screen=4,
    look=6,
)
GOOD, HEAD = Built("g", "good", "good"), Built("h", "head", "head")
PAIR = {"a": GOOD, "b": HEAD}


class Script(threading.Event):
    """The time between two looks: each one is a step; after the last the night is stopped."""

    def __init__(self, *steps: Callable[[], object]):
        super().__init__()
        self.steps = list(steps)

    def wait(self, timeout: float | None = None) -> bool:
        if self.steps:
            self.steps.pop(0)()
        else:
            self.set()
        return self.is_set()


class Farm:
    """A lab whose other host is played by the test."""

    def __init__(self, lab: LabFile):
        self.lab, self.state, self.said = lab, lab_state(lab), list[str]()
        self.began: list[str] = []
        self.processes = 0
        self.host2 = lab.root / "host2" / "runs"
        self.nights = Recorded(self.host2)
        self.sign()

    def sign(self) -> None:
        self.state.workers.give_sign("lab2:1:ab", "lab2", ["rk2"], "1.0")

    def runs(self, *steps: Callable[[], object], **limits: float) -> NightJobs:
        """The jobs of the night, in a process of its own that begins now."""
        self.processes += 1
        group = NewGroup("n1", "nightly", "night", this_user(), restarts=True)
        self.state.groups.own(group, f"lab1:{self.processes}", lambda _: True)
        return self.jobs(stopping=Script(*steps), **limits)

    def jobs(self, **more: Any) -> NightJobs:
        return NightJobs(self.lab, "n1", "lab1", self.said.append, self.recipe, **more)

    def recipe(self, row: NightRow, built: Built) -> Recipe:
        return read_recipe(find_recipe(row.recipe, self.lab.root), lab_root=self.lab.root)

    def claim(self) -> Job:
        (job,) = self.state.jobs.claim(["rk2"], "worker")
        return job

    def done(self, job: Job, *, stored: bool = True) -> None:
        """The worker runs a job to its end."""
        run = self.nights.night(1, 20.0, board="rk2")
        self.state.jobs.start(job, run)
        words: dict[str, Any] = {"holder": job.submitter, "job": job.id, "planned_seconds": 300.0}
        leases = self.state.leases
        leases.release(leases.acquire("rk2", purpose=job.name, **words))
        if stored:
            self.store(run)
        self.state.jobs.finish(job, 0)

    def store(self, run: str) -> None:
        store = lab_store(self.lab)
        assert store is not None
        RunArchives(store, self.state, self.host2).put(run)

    def work(self) -> None:
        self.done(self.claim())

    def others(self, kind: UseKind = "probe") -> None:
        leases = self.state.leases
        leases.release(leases.acquire("rk2", purpose="theirs", kind=kind, holder="ann@desk"))

    def later(self, *tables: str) -> None:
        """An hour passes without a sign of life."""
        with self.state.changing() as connection:
            for table in tables:
                connection.exec_driver_sql(f"UPDATE {table} SET expires = expires - 3600")
        self.state.jobs.free_lost()

    def states(self) -> dict[str, str]:
        jobs = self.state.jobs.list(ended=9)
        return {job.id: job.state for job in jobs if job.runner == "worker"}


@pytest.fixture
def farm(tmp_path: Path) -> Iterator[Farm]:
    for name, text in (
        ("devices.yaml", DEVICES),
        ("tools/sleeper", "#!/bin/sh\n"),
        ("models/any.bin", "any"),
        ("recipes/sleeping.yaml", RECIPE),
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return Farm(find_lab(tmp_path, TRANSPORTS))


class Boards:
    """An executor of this host, whose runs the test ends."""

    def __init__(self, farm: Farm):
        self.farm, self.began = farm, SimpleQueue[str]()
        self.goes_on, self.stopped = threading.Event(), threading.Event()

    def run(self, job: FarmJob, board: str) -> JobResult:
        self.began.put(job.id)
        ends = (self.goes_on, self.stopped)
        assert wait_until(lambda: any(one.is_set() for one in ends), timeout=60, interval=0.02)
        if self.stopped.is_set():
            return JobResult(ExitStatus.INTERRUPTED, reason="it was stopped")
        run = self.farm.nights.night(1, 20.0, board=board)
        self.farm.store(run)
        return JobResult(0, run)

    def stop(self) -> None:
        self.stopped.set()


class Night:
    """A night's process that measures a pair on a board of its own host, in a thread."""

    def __init__(self, farm: Farm):
        self.jobs, self.boards = farm.jobs(), Boards(farm)
        self.worker = Worker(farm.state, "lab1", ["rk1"], self.boards, group="n1", look_seconds=0.1)
        self.found: list[str] = []
        self.thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        with suppress(KeyboardInterrupt), self.jobs.served(self.worker, "night"):
            for rest in (PAIR, {"b": HEAD}):
                directory, _ = self.jobs.run(ROW, "rk1", rest, print)
                self.found.append(directory.path.name)

    def __enter__(self) -> "Night":
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.boards.stop()
        self.thread.join(60)
        assert not self.thread.is_alive()


def test_a_pair_waits_for_its_turn_and_then_nobody_comes_between(farm: Farm) -> None:
    theirs = NewJob("theirs", {}, ("rk2",), id="theirs", submitter="ann@desk", priority=9)
    own = NewJob("run --first", {}, ("rk2",), id="own", submitter="ann@desk", runner="process")
    began: list[Job] = []

    def others_end() -> None:
        assert farm.states() == {"before": "running", "a": "waiting", "b": "waiting"}
        farm.state.jobs.finish(before, 0)
        began.append(farm.claim())

    def others_ask() -> None:
        farm.state.jobs.submit(theirs, own)
        for job in (theirs, own):
            farm.state.jobs.move(job.id, first=True)
        farm.done(began[0])
        soon = farm.state.moment() + 60
        farm.state.reservations.add("rk2", soon, soon + 60, holder="ann@desk", by="ann@desk")
        assert farm.state.jobs.claim_own("own", ["rk2"], "process") is None
        for kind in ("check", "probe", "deploy", "resume"):
            with pytest.raises(BoardBusy, match="board rk2 is kept for sleeping"):
                farm.others(kind)

    farm.state.jobs.submit(NewJob("before", {}, ("rk2",), id="before", submitter="ann@desk"))
    before = farm.claim()
    runs = farm.runs(others_end, others_ask, farm.work)
    directory, _ = runs.run(ROW, "rk2", PAIR, farm.began.append)
    assert directory.path == farm.lab.root / "runs" / farm.began[0]
    runs.run(ROW, "rk2", {"b": HEAD}, farm.began.append)  # next, though all of them come before it
    assert farm.states() == {"before": "done", "a": "done", "b": "done", "theirs": "waiting"}


def test_ctrl_c_lets_a_run_end_and_the_rest_waits_for_the_same_command(farm: Farm) -> None:
    with Night(farm) as night:
        assert night.boards.began.get(timeout=60) == "a"
        night.jobs.stop()
        assert farm.state.jobs.claim(["rk1"], "a worker of the lab") == []
        night.boards.goes_on.set()
        night.thread.join(60)
    assert (len(night.found), farm.states()) == (1, {"a": "done", "b": "waiting"})
    assert farm.state.jobs.claim(["rk1"], "a worker of the lab") == []
    with Night(farm) as again:
        again.boards.goes_on.set()
        again.thread.join(60)
    assert again.boards.began.get(timeout=1) == "b"
    assert again.boards.began.empty()
    assert again.found[0] == night.found[0]
    assert len(again.found) == 2
    assert farm.states() == {"a": "done", "b": "done"}


def test_a_second_ctrl_c_breaks_a_run_off_and_the_same_command_goes_on_with_it(farm: Farm) -> None:
    with Night(farm) as night:
        assert night.boards.began.get(timeout=60) == "a"
        night.jobs.stop()
        night.jobs.break_off()
        night.thread.join(60)
    assert (night.found, farm.states()) == ([], {"a": "waiting", "b": "waiting"})
    with Night(farm) as again:
        again.boards.goes_on.set()
        again.thread.join(60)
    assert farm.states() == {"a": "done", "b": "done"}


def test_the_worker_that_serves_a_board_runs_the_jobs_of_a_night(farm: Farm) -> None:
    farm.state.workers.give_sign("lab1:9:ef", "lab1", ["rk1"], "1.0")
    with Night(farm) as night:
        looks = looks_of(night.worker)
        night.boards.goes_on.set()
        assert wait_until(lambda: len(looks) > 5, timeout=60, interval=0.05)
        assert night.boards.began.empty()
        assert farm.states() == {"a": "waiting", "b": "waiting"}
        farm.state.workers.remove("lab1:9:ef")  # it ended
        night.thread.join(60)
    assert len(night.found) == 2


def test_what_ends_the_nights_own_worker_ends_the_night(farm: Farm) -> None:
    jobs = farm.jobs()
    worker = Worker(farm.state, "lab1", ["rk1"], Boards(farm), group="n1", look_seconds=0.1)

    def broken() -> None:
        raise DamagedDatabase("the database is damaged")

    worker._begin = broken  # type: ignore[method-assign]
    with pytest.raises(DamagedDatabase), jobs.served(worker, "night"):
        jobs.run(ROW, "rk1", PAIR, print)


def test_nothing_of_a_night_that_was_killed_begins_until_the_same_command(farm: Farm) -> None:
    with pytest.raises(KeyboardInterrupt):
        farm.runs().run(ROW, "rk2", PAIR, farm.began.append)
    farm.later("job_group")
    assert farm.state.jobs.claim(["rk2"], "worker") == []
    again = farm.runs(farm.work, farm.work)
    assert [again.job("a"), again.job("b")] == ["a", "b"]
    for rest in (PAIR, {"b": HEAD}):
        again.run(ROW, "rk2", rest, farm.began.append)
    assert len(set(farm.began)) == 2
    assert farm.states() == {"a": "done", "b": "done"}


def test_a_pair_that_is_cut_off_between_its_runs_is_told(farm: Farm) -> None:
    runs = farm.runs(farm.work)
    runs.run(ROW, "rk2", PAIR, farm.began.append)
    farm.later("job")
    why = "job b on board rk2 was cancelled: its board was kept for it in vain"
    with pytest.raises(HostError, match=why):
        runs.run(ROW, "rk2", {"b": HEAD}, farm.began.append)
    assert farm.said == [f"{why}; the night makes its pair of runs again"]


def test_a_board_out_of_service_gets_no_second_run_of_a_night_that_was_killed(farm: Farm) -> None:
    with pytest.raises(KeyboardInterrupt):
        farm.runs().run(ROW, "rk2", PAIR, farm.began.append)
    first = farm.claim()
    farm.state.health.set("rk2", Health.BAD, reason="slow memory", by="check")
    farm.done(first)
    assert farm.state.jobs.claim(["rk2"], "lab2") == []
    assert farm.states() == {"a": "done", "b": "waiting"}


def test_a_night_that_was_killed_finds_jobs_that_ended_meanwhile(farm: Farm) -> None:
    with pytest.raises(KeyboardInterrupt):
        farm.runs().run(ROW, "rk2", PAIR, farm.began.append)
    farm.work()
    farm.work()
    again = farm.runs()
    assert [again.job("a"), again.job("b")] == ["a", "b"]
    for rest in (PAIR, {"b": HEAD}):
        again.run(ROW, "rk2", rest, farm.began.append)
    assert len(set(farm.began)) == 2
    assert farm.states() == {"a": "done", "b": "done"}


def test_what_was_withdrawn_gets_another_job_and_what_somebody_cancelled_is_infra(
    farm: Farm,
) -> None:
    runs = farm.runs()
    with pytest.raises(KeyboardInterrupt):
        runs.run(ROW, "rk2", PAIR, farm.began.append)
    runs.withdraw(["a", "never submitted"])
    assert farm.states() == {"a": "cancelled", "b": "waiting"}
    assert runs.job("a") not in (None, "a")
    assert runs.job("b") == "b"
    running = farm.claim()
    runs.withdraw(["b"])  # its worker is to stop it, and has not yet
    assert runs.job("b") not in (None, "b")
    farm.state.jobs.requeue(running, "")
    assert farm.states() == {"a": "cancelled", "b": "cancelled"}
    assert runs.job("b") not in (None, "b")
    farm.state.jobs.submit(NewJob("sleeping", {}, ("rk2",), id="c"))
    farm.state.jobs.cancel("c", "the lab moves house")
    why = "job c on board rk2 was cancelled: the lab moves house"
    with pytest.raises(HostError, match=why):
        farm.runs().run(ROW, "rk2", {"c": HEAD}, farm.began.append)
    assert farm.said == [f"{why}; the night makes its pair of runs again"]


@pytest.mark.parametrize(
    ("blame", "error"),
    [(Blame.INFRA, HostError), (Blame.CONFIG, ConfigError), (Blame.JOB, ProgramFailed)],
)
def test_a_job_that_failed_has_the_blame_that_the_queue_tells(
    farm: Farm, blame: Blame, error: type[LabctlError]
) -> None:
    def fail() -> None:
        farm.state.jobs.finish(farm.claim(), error.exit_status, blame=blame, reason="it broke")

    with pytest.raises(error, match=r"it broke \(job a on board rk2 of host lab2\)") as raised:
        farm.runs(fail).run(ROW, "rk2", PAIR, farm.began.append)
    assert raised.value.blame is blame


@pytest.mark.parametrize("broken", [True, False])
def test_a_job_that_was_given_up_tells_if_its_host_is_at_fault(farm: Farm, broken: bool) -> None:
    def break_off() -> None:
        farm.state.jobs.requeue(farm.claim(), "it broke", blame_board=broken)

    with pytest.raises(HostError, match="given up after 3 attempts: it broke") as raised:
        farm.runs(*[break_off] * 3).run(ROW, "rk2", PAIR, farm.began.append)
    assert raised.value.is_of_host is not broken
    assert not isinstance(raised.value, ToolMissing)

    def lacks() -> None:
        job = farm.claim()
        farm.state.jobs.finish(job, 3, blame=Blame.INFRA, reason="no agent is built")

    with pytest.raises(ToolMissing, match="no agent is built"):
        farm.runs(lacks).run(ROW, "rk2", {"c": GOOD, "d": HEAD}, farm.began.append)


def test_a_run_that_no_store_has_says_where_it_is(farm: Farm) -> None:
    runs = farm.runs(lambda: farm.done(farm.claim(), stored=False))
    with pytest.raises(HostError, match="is only on host lab2"):
        runs.run(ROW, "rk2", PAIR, farm.began.append)


def test_a_run_that_the_store_lost_is_infra(farm: Farm) -> None:
    def lose() -> None:
        farm.work()
        for path in (farm.lab.root / "store" / "objects").rglob("*"):
            if path.is_file():
                path.unlink()

    with pytest.raises(HostError, match=r"cannot be fetched: .* has no file"):
        farm.runs(lose).run(ROW, "rk2", PAIR, farm.began.append)


T = TypeVar("T")


def _answer(away: list[DatabaseAway], answer: Callable[[], T]) -> T:
    """Fail as often as a database is away, then answer."""
    if away:
        raise away.pop()
    return answer()


def test_a_database_that_is_away_for_a_while_costs_no_run(
    farm: Farm, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = [DatabaseAway("the database is away") for _ in range(2)]
    plain = Jobs.get

    def get(self: Jobs, job: str) -> Job | None:
        return patiently(partial(_answer, away, partial(plain, self, job)))

    pauses = [lambda: None] * len(away)
    runs = farm.runs(*pauses, farm.work, farm.work)
    monkeypatch.setattr(Jobs, "get", get)
    for rest in (PAIR, {"b": HEAD}):
        runs.run(ROW, "rk2", rest, farm.began.append)
    assert not away
    assert farm.said == ["the database is away; retrying for at most 10 minutes"]


def test_a_night_that_is_stopped_waits_no_longer_for_its_database(
    farm: Farm, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = farm.runs()

    def get(_self: Jobs, _job: str) -> Job | None:
        runs.stopping.set()
        return patiently(partial(_answer, [DatabaseAway("the database is away")], lambda: None))

    monkeypatch.setattr(Jobs, "get", get)
    with pytest.raises(KeyboardInterrupt):
        runs.run(ROW, "rk2", PAIR, farm.began.append)


def test_the_health_of_a_board_is_asked_for_until_the_database_answers(
    farm: Farm, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = [DatabaseAway("the database is away") for _ in range(2)]
    plain = Healths.get

    def get(self: Healths, board: str) -> BoardHealth:
        return patiently(partial(_answer, away, partial(plain, self, board)))

    monkeypatch.setattr(Healths, "get", get)
    executor = LabExecutor(farm.lab, None, farm.jobs(), farm.said.append)  # type: ignore[arg-type]
    assert executor.trouble("rk2") is None
    assert not away
    away.append(DatabaseAway("the database is away"))
    assert executor.suspicion("rk2") is None
    assert farm.said == ["the database is away; retrying for at most 10 minutes"] * 2


def test_only_a_board_that_may_come_back_by_itself_is_waited_for(farm: Farm) -> None:
    executor = LabExecutor(farm.lab, None, farm.jobs(), farm.said.append)  # type: ignore[arg-type]

    def passes(health: Health, contact: str) -> bool:
        farm.state.health.set("rk2", health, reason="as told", by="check")
        farm.state.health.contacted({"rk2": contact}, by="check")
        trouble = executor.trouble("rk2")
        assert trouble is not None
        assert trouble.reason == f"board rk2 is {health}: as told"
        return trouble.passes

    assert passes(Health.BAD, "offline")
    assert not passes(Health.BAD, "connected")  # it is slow, or worse
    assert not passes(Health.LOOPING, "offline")
    assert not passes(Health.RETIRED, "offline")


def test_the_end_of_a_night_ends_its_waits(farm: Farm) -> None:
    jobs = farm.runs()  # it is stopped at its first look
    executor = LabExecutor(farm.lab, None, jobs, farm.said.append)  # type: ignore[arg-type]
    with pytest.raises(KeyboardInterrupt):
        executor.wait("rk2", 3600.0, "board rk2 does not answer")
    assert farm.said == ["board rk2 does not answer; tried again in 60.0 min"]


def test_a_store_that_is_away_is_no_board_and_no_run_is_made_again(
    farm: Farm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(night_jobs, "_STORE_SECONDS", 0.0)
    store, away = farm.lab.root / "store", farm.lab.root / "unmounted"

    def unmount() -> None:
        farm.work()
        store.rename(away)
        store.write_text("")

    runs = farm.runs(unmount)
    with pytest.raises(ServiceAway, match="cannot use the shared store"):
        runs.run(ROW, "rk2", PAIR, farm.began.append)
    store.unlink()
    away.rename(store)
    directory, _ = runs.run(ROW, "rk2", PAIR, farm.began.append)
    assert directory.path.name == farm.began[0]
    assert farm.states() == {"a": "done", "b": "waiting"}


def test_a_board_that_others_keep_is_busy_and_nothing_runs_later(farm: Farm) -> None:
    farm.state.leases.acquire("rk2", purpose="debugging", holder="ann@desk")
    with pytest.raises(BoardBusy, match="board rk2 is in use by ann@desk"):
        farm.runs(busy_seconds=0.0).run(ROW, "rk2", {"a": GOOD}, farm.began.append)
    assert farm.states() == {"a": "cancelled"}


def test_a_board_in_use_is_waited_for_until_the_night_ends_at_most(
    farm: Farm, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [time.monotonic()]
    clock = SimpleNamespace(time=time.time, monotonic=lambda: now[0])
    monkeypatch.setattr(night_jobs, "time", clock)

    def a_minute() -> None:
        now[0] += 60

    farm.state.leases.acquire("rk2", purpose="debugging", holder="ann@desk")
    runs = farm.runs(*[a_minute] * 6, deadline=time.time() + 300)
    with pytest.raises(BoardBusy, match="board rk2 is in use by ann@desk"):
        runs.run(ROW, "rk2", {"a": GOOD}, farm.began.append)
    assert len(runs.stopping.steps) == 1  # type: ignore[attr-defined]


def test_a_run_that_its_worker_lost_after_long_waits_for_its_turn_anew(
    farm: Farm, monkeypatch: pytest.MonkeyPatch
) -> None:
    running: list[Job] = []
    now = [time.monotonic()]
    clock = SimpleNamespace(time=time.time, monotonic=lambda: now[0])
    monkeypatch.setattr(night_jobs, "time", clock)

    def goes_on() -> None:
        now[0] += night_jobs.BUSY_SECONDS + 60

    def lose() -> None:
        farm.state.jobs.requeue(running[0], "its worker gave no sign of life", blame_board=False)

    steps = [lambda: running.append(farm.claim()), goes_on, lose, farm.work]
    farm.runs(*steps).run(ROW, "rk2", {"a": GOOD}, farm.began.append)
    assert farm.states() == {"a": "done"}


def test_a_board_that_is_taken_out_of_service_gets_no_second_run(farm: Farm) -> None:
    first: list[Job] = []

    def take_out() -> None:
        farm.state.health.set("rk2", Health.MAINTENANCE, reason="new fan", by="ann@desk")

    def ends() -> None:
        farm.done(first[0])
        assert farm.state.jobs.claim(["rk2"], "worker") == []

    runs = farm.runs(lambda: first.append(farm.claim()), lambda: None, take_out, ends)
    runs.run(ROW, "rk2", PAIR, farm.began.append)
    with pytest.raises(BoardOutOfService, match="new fan"):
        runs.run(ROW, "rk2", {"b": HEAD}, farm.began.append)
    assert farm.states() == {"a": "done", "b": "cancelled"}


def test_a_job_that_its_host_cannot_run_is_given_up_though_it_is_tried_again(
    farm: Farm, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [time.monotonic()]
    clock = SimpleNamespace(time=time.time, monotonic=lambda: now[0])
    monkeypatch.setattr(night_jobs, "time", clock)
    running: list[Job] = []

    def lacks() -> None:
        farm.state.jobs.requeue(running.pop(), "no agent is built", counted=False)

    def later() -> None:
        now[0] += 600

    steps = [lambda: running.append(farm.claim()), lacks, later]
    with pytest.raises(BoardBusy, match="job a still waits for board rk2: no agent is built"):
        farm.runs(*steps * 5).run(ROW, "rk2", {"a": GOOD}, farm.began.append)


def test_a_host_whose_worker_is_away_is_waited_for_and_then_infra(farm: Farm) -> None:
    def silence() -> None:
        with farm.state.changing() as connection:
            connection.exec_driver_sql("UPDATE worker SET alive_at = alive_at - 7200")

    silence()
    runs = farm.runs(farm.sign, farm.work)  # it came back in time
    runs.run(ROW, "rk2", {"a": GOOD}, farm.began.append)
    runs = farm.runs(farm.claim, silence, away_seconds=0.0)
    with pytest.raises(HostError, match="no worker of host lab2 serves board rk2, last sign"):
        runs.run(ROW, "rk2", {"b": HEAD}, farm.began.append)
    assert "last sign of life 120 min" in str(runs.away("rk2"))
    job = farm.state.jobs.get("b")
    assert job is not None
    assert job.stop  # its worker, should it come back, ends it
    farm.sign()
    assert runs.away("rk2") is None


LLAMA = """\
name: llama-TASK
target: rk3568
engine: {name: llama_cpp, task: TASK}
models: {tiny: {file: models/tiny.gguf}}
PARAMETERS
max_time: 5m
"""


def test_each_program_of_a_build_is_stored(
    farm: Farm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LABCTL_CACHE", str(tmp_path / "cache"))
    write_tiny_gguf(tmp_path / "models" / "tiny.gguf")
    for task, parameters in (
        ("completion", "prompt: once upon\nparameters: {tokens: 8, context: 128}"),
        ("bench", "parameters: {prompt_tokens: 8, tokens: 8}"),
    ):
        text = LLAMA.replace("TASK", task).replace("PARAMETERS", parameters)
        (tmp_path / "recipes" / f"{task}.yaml").write_text(text)
    built = make_artifact(tmp_path, "llama-completion", "llama-bench")
    runs, store = farm.runs(), lab_store(farm.lab)
    for job, recipe in (("a", "completion"), ("b", "bench")):
        runs.stopping.clear()
        with pytest.raises(KeyboardInterrupt):
            runs.run(ROW.model_copy(update={"recipe": recipe}), "rk2", {job: GOOD}, print)
    assert store is not None
    for tool in built.manifest.tools.values():
        assert store.size_of(tool.sha256) == tool.size_bytes


def test_no_run_of_another_job_is_taken_for_its_own(
    farm: Farm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ids are short: among the jobs of a year one comes again."""
    farm.state.jobs.submit(NewJob("theirs", {}, ("rk2",), id="0a0a0a0a"))
    ids = iter(["0a0a0a0a", "0b0b0b0b"])
    monkeypatch.setattr(night_jobs, "new_job_id", lambda: next(ids))
    assert farm.runs().job(None) == "0b0b0b0b"


def test_a_database_of_an_older_backup_gets_the_job_again(farm: Farm) -> None:
    def forget() -> None:
        with farm.state.changing() as connection:
            connection.exec_driver_sql("DELETE FROM job")

    farm.runs(forget, farm.work).run(ROW, "rk2", {"a": GOOD}, farm.began.append)
    assert farm.states() == {"a": "done"}


@pytest.mark.parametrize(
    ("without", "because"),
    [
        ("database", "through a PostgreSQL, and this lab has none"),
        ("store", "travel through a shared store, and this lab has none"),
        ("worker", "no worker was ever seen there"),
    ],
)
def test_a_plan_is_refused_only_where_it_cannot_work(
    farm: Farm, postgres: PostgresServer, without: str, because: str
) -> None:
    facts = {"lab": postgres.new_lab(), "database": postgres.url, "store": "store"}
    facts.pop(without, None)
    database = None if without == "database" else postgres.url
    changed = farm.lab.lab.model_copy(
        update={"lab": facts["lab"], "database": database, "store": facts.get("store")}
    )
    lab = replace(farm.lab, lab=changed)
    check_reach(lab, "rk1", "lab1")
    with pytest.raises(ConfigError, match=because) as refused:
        check_reach(lab, "rk2", "lab1")
    assert "board rk2 is attached to host lab2, and this is lab1" in refused.value.message
    assert "labctl nightly --host lab2" in (refused.value.hint or "")
    if without == "worker":
        state = lab_state(lab)
        state.workers.give_sign("lab2:1:ab", "lab2", ["rk2"], "1.0")
        check_reach(lab, "rk2", "lab1")
        state.leases.release(state.leases.acquire("rk2", purpose="a job"))
        state.workers.remove("lab2:1:ab")  # it was stopped: the night says so, and is not refused
        check_reach(lab, "rk2", "lab1")


def test_a_job_that_the_night_took_back_has_not_begun(farm: Farm) -> None:
    """Else its place in the journal counts as under way, and is measured after the night's end."""
    jobs = farm.runs()
    jobs._submit(ROW, "rk2", PAIR)
    assert [jobs.has_begun(one) for one in PAIR] == [False, False]
    farm.work()
    jobs.withdraw([*PAIR])
    assert farm.states() == {"a": "done", "b": "cancelled"}
    assert [jobs.has_begun(one) for one in PAIR] == [True, False]
    farm.state.jobs.submit(NewJob("other", {}, ("rk1",), id="c"))
    farm.state.jobs.cancel("c", "wrong plan")
    assert jobs.has_begun("c")


def test_a_job_tells_its_run_which_night_and_side_it_is_of(farm: Farm) -> None:
    """So that a series counts one night, whatever runs it made."""
    sides = {"a": replace(GOOD, side="good"), "b": replace(HEAD, side="head")}
    runs = farm.runs(farm.work)
    runs.run(ROW, "rk2", sides, farm.began.append)
    found = {job.id: RunContent.read(job.content).night for job in farm.state.jobs.list(ended=9)}
    assert found["a"] == NightPart(id="n1", side="good")
    assert found["b"] == NightPart(id="n1", side="head")
