"""Runs of a night on a board of another host: jobs of the queue, by the state as it really is."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TypeVar

import pytest
from artifacts_made import make_artifact
from nightly_runs import Lab as Recorded
from postgres_server import PostgresServer
from tiny_gguf import write_tiny_gguf

from labctl.config.lab import LabFile, find_lab
from labctl.config.recipe import Recipe, find_recipe
from labctl.database import DatabaseAway
from labctl.database.base import patiently
from labctl.errors import (
    Blame,
    BoardBusy,
    BoardOutOfService,
    ConfigError,
    HostError,
    LabctlError,
    ProgramFailed,
)
from labctl.farm.nightly import queued_runs
from labctl.farm.nightly.executor import Built
from labctl.farm.nightly.hosts import check_reach
from labctl.farm.nightly.lab_executor import LabExecutor
from labctl.farm.nightly.queued_runs import QueuedRuns
from labctl.farm.run_archives import RunArchives
from labctl.farm.store import lab_store
from labctl.records.night import NightRow
from labctl.runs import read_recipe
from labctl.state import Job, NewJob, lab_state
from labctl.state.events import this_user
from labctl.state.health import BoardHealth, Health, Healths
from labctl.state.reservations import Reservation, Reservations
from labctl.transport.registry import TRANSPORTS

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
        self.host2 = lab.root / "host2" / "runs"
        self.nights = Recorded(self.host2)
        self.sign()

    def sign(self) -> None:
        self.state.workers.give_sign("lab2:1:ab", "lab2", ["rk2"], "1.0")

    def runs(self, *steps: Callable[[], object], **limits: float) -> QueuedRuns:
        """The jobs of the night, in a process of its own that begins now."""
        given = (self.lab, "n1", "lab1", self.said.append, self.recipe)
        return QueuedRuns(*given, stopping=Script(*steps), **limits)

    def recipe(self, row: NightRow, built: Built) -> Recipe:
        return read_recipe(find_recipe(row.recipe, self.lab.root), lab_root=self.lab.root)

    def claim(self) -> Job:
        (job,) = self.state.jobs.claim(["rk2"], "worker")
        return job

    def done(
        self, job: Job, *, stored: bool = True, meanwhile: Callable[[], None] | None = None
    ) -> None:
        """The worker runs a job to its end."""
        run = self.nights.night(1, 20.0, board="rk2")
        self.state.jobs.start(job, run)
        self.used(job)
        store = lab_store(self.lab)
        assert store is not None
        if meanwhile is not None:
            meanwhile()
        if stored:
            RunArchives(store, self.state, self.host2).put(run)
        self.state.jobs.finish(job, 0)

    def used(self, job: Job) -> None:
        """Its worker takes the board for a job, and lets it go."""
        leases = self.state.leases
        words = {"purpose": "run sleeping", "holder": job.submitter, "job": job.id}
        leases.release(leases.acquire("rk2", **words))  # type: ignore[arg-type]

    def work(self) -> None:
        self.done(self.claim())

    def others(self, purpose: str = "run theirs", by: str = "ann@desk") -> None:
        self.state.leases.release(self.state.leases.acquire("rk2", purpose=purpose, holder=by))

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


def test_a_pair_waits_for_its_turn_and_then_nobody_comes_between(farm: Farm) -> None:
    theirs = NewJob("theirs", {}, ("rk2",), submitter="ann@desk", priority=9)
    began: list[Job] = []

    def others_end() -> None:
        assert farm.states() == {"before": "running", "a": "waiting", "b": "waiting"}
        assert not farm.state.reservations.in_force()
        farm.state.jobs.finish(before, 0)
        began.append(farm.claim())

    def others_ask() -> None:
        (hold,) = farm.state.reservations.in_force()
        assert (hold.board, hold.holder, hold.reason) == ("rk2", this_user(), "night n1")
        with pytest.raises(BoardBusy):
            farm.others()
        farm.state.jobs.submit(theirs)
        farm.done(began[0])

    farm.state.jobs.submit(NewJob("before", {}, ("rk2",), id="before", submitter="ann@desk"))
    before = farm.claim()
    runs = farm.runs(others_end, others_ask, farm.work)
    directory, _ = runs.run(ROW, "rk2", PAIR, farm.began.append)
    assert directory.path == farm.lab.root / "runs" / farm.began[0]
    runs.run(ROW, "rk2", {"b": HEAD}, farm.began.append)  # next, though theirs comes before it
    assert runs.parted(["a", "b"]) is None
    runs.withdraw("rk2", ())
    assert not farm.state.reservations.in_force()
    assert farm.claim().name == "theirs"


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
    assert again.parted(["a", "b"]) is None


@pytest.mark.parametrize("by", ["ann@desk", this_user()])
def test_a_pair_that_somebody_came_between_is_told(farm: Farm, by: str) -> None:
    with pytest.raises(KeyboardInterrupt):
        farm.runs().run(ROW, "rk2", PAIR, farm.began.append)
    farm.work()
    farm.others("run sleeping", by)
    farm.work()
    sources, connect = None, None
    executor = LabExecutor(
        farm.lab,
        sources,  # type: ignore[arg-type]
        connect,  # type: ignore[arg-type]
        farm.said.append,
        {},
        others=farm.runs(),
    )
    why = executor.parted(["a", "b"])
    assert why == f"{by} used board rk2 between its runs: run sleeping"
    assert farm.said == [f"a pair begins again: {why}"]


def test_a_pair_that_somebody_came_between_by_another_name_of_the_board_is_told(
    farm: Farm,
) -> None:
    with pytest.raises(KeyboardInterrupt):
        farm.runs().run(ROW, "rk2", PAIR, farm.began.append)
    leases = farm.state.leases
    leases.release(leases.acquire("rk2", purpose="probe", hardware="serial 7"))
    farm.work()
    leases.release(leases.acquire("rk2-wifi", purpose="theirs", hardware="serial 7"))
    farm.work()
    assert "used board rk2-wifi between its runs: theirs" in str(farm.runs().parted(["a", "b"]))


def test_a_health_check_before_the_first_run_parts_no_pair(farm: Farm) -> None:
    with pytest.raises(KeyboardInterrupt):
        farm.runs().run(ROW, "rk2", PAIR, farm.began.append)
    first = farm.claim()
    farm.others("health check", "lab@lab2")  # which its worker makes when it has the job
    farm.done(first)
    farm.work()
    assert farm.runs().parted(["a", "b"]) is None


def test_a_night_that_was_killed_gets_no_run_onto_a_board_out_of_service(farm: Farm) -> None:
    first: list[Job] = []
    steps = [lambda: first.append(farm.claim()), lambda: None]
    with pytest.raises(KeyboardInterrupt):
        farm.runs(*steps).run(ROW, "rk2", PAIR, farm.began.append)
    assert [one.reason for one in farm.state.reservations.in_force()] == ["night n1"]
    farm.state.health.set("rk2", Health.BAD, reason="slow memory", by="check")
    farm.done(first[0])
    assert farm.state.jobs.claim(["rk2"], "lab2") == []
    assert farm.states() == {"a": "done", "b": "waiting"}


def test_who_takes_the_board_while_a_run_is_stored_parts_no_pair_but_the_next(farm: Farm) -> None:
    with pytest.raises(KeyboardInterrupt):
        farm.runs().run(ROW, "rk2", PAIR, farm.began.append)
    farm.work()
    farm.done(farm.claim(), meanwhile=farm.others)
    assert farm.runs().parted(["a", "b"]) is None
    with pytest.raises(KeyboardInterrupt):
        farm.runs().run(ROW, "rk2", {"c": GOOD, "d": HEAD}, farm.began.append)
    farm.done(farm.claim(), meanwhile=farm.others)
    farm.work()
    assert farm.runs().parted(["c", "d"]) is not None


def test_a_run_that_its_worker_could_not_tell_of_was_made_when_it_was(farm: Farm) -> None:
    with pytest.raises(KeyboardInterrupt):
        farm.runs().run(ROW, "rk2", PAIR, farm.began.append)
    lost = farm.claim()
    farm.used(lost)
    farm.state.jobs.requeue(lost, "its worker gave no sign of life", blame_board=False)
    farm.others()
    farm.state.jobs.finish(farm.claim(), 0)  # the run is finished, and not made again
    farm.work()
    assert farm.runs().parted(["a", "b"]) == "ann@desk used board rk2 between its runs: run theirs"


def test_a_check_after_a_run_that_broke_parts_no_pair(farm: Farm) -> None:
    with pytest.raises(KeyboardInterrupt):
        farm.runs().run(ROW, "rk2", PAIR, farm.began.append)
    broken = farm.claim()
    farm.used(broken)
    farm.state.jobs.requeue(broken, "the link was lost", blame_board=False)
    farm.others("health check", "lab@lab2")
    farm.work()
    farm.work()
    assert farm.runs().parted(["a", "b"]) is None


def test_a_hold_of_the_users_own_stays(farm: Farm) -> None:
    farm.state.holds.hold("rk2", by=this_user(), reason="new fan", seconds=9000)
    runs = farm.runs(farm.claim, lambda: None)
    with pytest.raises(KeyboardInterrupt):
        runs.run(ROW, "rk2", PAIR, farm.began.append)
    runs.withdraw("rk2", ("a", "b"))
    (hold,) = farm.state.reservations.in_force()
    assert hold.reason == "new fan"


def test_a_hold_of_the_users_own_under_the_boards_other_name_stays(farm: Farm) -> None:
    for name in ("rk2", "usb"):
        leases = farm.state.leases
        leases.release(leases.acquire(name, purpose="probe", hardware="serial 7"))
    farm.state.holds.hold("usb", by=this_user(), reason="new fan", seconds=9000)
    runs = farm.runs(farm.claim, lambda: None)
    with pytest.raises(KeyboardInterrupt):
        runs.run(ROW, "rk2", PAIR, farm.began.append)
    runs.withdraw("rk2", ("a", "b"))
    (hold,) = farm.state.reservations.in_force()
    assert (hold.board, hold.reason) == ("usb", "new fan")


def test_a_hold_of_somebody_else_is_no_hold_of_the_pair(farm: Farm) -> None:
    def somebody_holds() -> None:
        farm.claim()
        farm.state.holds.hold("rk2", by="ann@desk", reason="new fan", seconds=9000)

    with pytest.raises(KeyboardInterrupt):
        farm.runs(somebody_holds, lambda: None).run(ROW, "rk2", PAIR, farm.began.append)
    (line,) = farm.said
    assert "board rk2 is not kept for both runs of a pair: board rk2 is held by ann@desk" in line


def test_a_board_that_cannot_be_kept_is_told_once(
    farm: Farm,
) -> None:
    soon = farm.state.moment() + 700  # the first run ends before, the second may not
    farm.state.reservations.add("rk2", soon, soon + 60, holder="ann@desk", by="ann@desk")
    looks = [lambda: None] * 3
    runs = farm.runs(farm.claim, *looks, hold_again_seconds=0.0)
    with pytest.raises(KeyboardInterrupt):
        runs.run(ROW, "rk2", PAIR, farm.began.append)
    (line,) = farm.said
    assert "board rk2 is not kept for both runs of a pair: board rk2 is reserved for ann" in line


def test_what_was_withdrawn_gets_another_job_and_what_somebody_cancelled_is_infra(
    farm: Farm,
) -> None:
    runs = farm.runs()
    with pytest.raises(KeyboardInterrupt):
        runs.run(ROW, "rk2", PAIR, farm.began.append)
    runs.withdraw("rk2", ["a", "never submitted"])
    assert farm.states() == {"a": "cancelled", "b": "waiting"}
    assert runs.job("a") not in (None, "a")
    assert runs.job("b") == "b"
    running = farm.claim()
    runs.withdraw("rk2", ["b"])  # its worker is to stop it, and has not yet
    assert runs.job("b") not in (None, "b")
    farm.state.jobs.requeue(running, "")
    assert farm.states() == {"a": "cancelled", "b": "cancelled"}
    assert runs.job("b") not in (None, "b")
    farm.state.jobs.submit(NewJob("sleeping", {}, ("rk2",), id="c"))
    farm.state.jobs.cancel("c", "the lab moves house")
    with pytest.raises(HostError, match="job c was cancelled: the lab moves house"):
        farm.runs().run(ROW, "rk2", {"c": HEAD}, farm.began.append)


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
    plain = Reservations.in_force

    def in_force(self: Reservations) -> Sequence[Reservation]:
        return patiently(partial(_answer, away, partial(plain, self)))

    monkeypatch.setattr(Reservations, "in_force", in_force)
    first: list[Job] = []
    pauses = [lambda: None] * len(away)
    steps = [lambda: first.append(farm.claim()), *pauses, lambda: farm.done(first[0]), farm.work]
    runs = farm.runs(*steps)
    for rest in (PAIR, {"b": HEAD}):
        runs.run(ROW, "rk2", rest, farm.began.append)
    assert not away
    assert farm.said == ["the database is away; retrying for at most 10 minutes"]
    assert runs.parted(["a", "b"]) is None


def test_a_night_that_is_stopped_waits_no_longer_for_its_database(
    farm: Farm, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = farm.runs(farm.claim)

    def in_force(_self: Reservations) -> Sequence[Reservation]:
        runs.stopping.set()
        away = [DatabaseAway("the database is away")]
        return patiently(partial(_answer, away, list[Reservation]))

    monkeypatch.setattr(Reservations, "in_force", in_force)
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
    executor = LabExecutor(
        farm.lab,
        None,  # type: ignore[arg-type]
        None,  # type: ignore[arg-type]
        farm.said.append,
        {},
    )
    assert executor.trouble("rk2") is None
    assert not away
    away.append(DatabaseAway("the database is away"))
    assert executor.suspicion("rk2") is None
    assert farm.said == ["the database is away; retrying for at most 10 minutes"] * 2


def test_a_board_that_others_keep_is_busy_and_nothing_runs_later(farm: Farm) -> None:
    farm.state.leases.acquire("rk2", purpose="debugging", holder="ann@desk")
    with pytest.raises(BoardBusy, match="board rk2 is in use by ann@desk"):
        farm.runs(busy_seconds=0.0).run(ROW, "rk2", {"a": GOOD}, farm.began.append)
    assert farm.states() == {"a": "cancelled"}


def test_a_run_that_its_worker_lost_after_long_waits_for_its_turn_anew(
    farm: Farm, monkeypatch: pytest.MonkeyPatch
) -> None:
    running: list[Job] = []
    now = [time.monotonic()]
    clock = SimpleNamespace(time=time.time, monotonic=lambda: now[0])
    monkeypatch.setattr(queued_runs, "time", clock)

    def goes_on() -> None:
        now[0] += queued_runs.BUSY_SECONDS + 60

    def lose() -> None:
        farm.state.jobs.requeue(running[0], "its worker gave no sign of life", blame_board=False)

    steps = [lambda: running.append(farm.claim()), goes_on, lose, farm.work]
    farm.runs(*steps).run(ROW, "rk2", {"a": GOOD}, farm.began.append)
    assert farm.states() == {"a": "done"}


def test_a_board_that_is_taken_out_of_service_gets_no_second_run(farm: Farm) -> None:
    """A hold lets its user's jobs on such a board; that of a night does not."""
    first: list[Job] = []

    def take_out() -> None:
        assert farm.state.reservations.in_force()
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
    monkeypatch.setattr(queued_runs, "time", clock)
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
    monkeypatch.setattr(queued_runs, "new_job_id", lambda: next(ids))
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
