"""Jobs whose inputs are missing on a host: they keep their place, and no board idles for them."""

import threading

import pytest
from workers_made import Recorded, made_worker, new_job

from labctl.config.lab import LabFile
from labctl.errors import ConfigError, HostError
from labctl.farm import preparing
from labctl.retry import wait_until
from labctl.state.groups import NewGroup
from labctl.state.job import Job, NewJob
from labctl.state.state import LabState


def large(name: str, *boards: str, number: int = 0) -> NewJob:
    return NewJob(name, {"version": 1, "large": number}, boards, id=name)


class Inputs:
    """The inputs of large jobs, which arrive when the test says so."""

    def __init__(self) -> None:
        self.here, self.asked = set[int](), list[str]()
        self.arrive, self.together, self.most = threading.Event(), 0, 0
        self._lock = threading.Lock()

    def of(self, job: Job) -> preparing.Inputs:
        large = job.content.get("large")
        return {} if large is None else {f"file {large}": lambda: large in self.here}

    def prepare(self, job: Job) -> None:
        with self._lock:
            self.asked.append(job.id)
            self.together += 1
            self.most = max(self.most, self.together)
        assert self.arrive.wait(60)
        with self._lock:
            self.together -= 1
            self.here.add(job.content["large"])


def test_a_job_whose_inputs_are_missing_keeps_its_place_and_lets_others_pass(
    lab: LabFile, state: LabState
) -> None:
    inputs, executor = Inputs(), Recorded()
    state.jobs.submit(large("big", "rk1"), new_job("a", "rk1"), new_job("b", "rk1"))
    worker = made_worker(lab, executor, "rk1")
    worker.inputs, worker.prepare = inputs.of, inputs.prepare
    serving = threading.Thread(target=worker.run, kwargs={"until_empty": True})
    serving.start()
    try:
        assert wait_until(lambda: len(executor.ran) == 2, timeout=60, interval=0.02)
        assert state.jobs.find("big").state == "waiting"  # and the board is free
        assert inputs.asked == ["big"]
        state.jobs.submit(new_job("c", "rk1"))
        assert wait_until(lambda: len(executor.ran) == 3, timeout=60, interval=0.02)
    finally:
        inputs.arrive.set()
        serving.join(60)
    assert executor.ran == [(name, "rk1") for name in ("a", "b", "c", "big")]
    assert state.jobs.find("big").attempts == 1


def test_few_contents_are_prepared_at_once_those_of_the_next_jobs_first(
    lab: LabFile, state: LabState
) -> None:
    inputs, executor = Inputs(), Recorded()
    state.jobs.submit(*(large(f"j{n}", "rk1", number=n) for n in range(5)))
    state.jobs.submit(large("again", "rk1", number=0))
    state.jobs.move("j4", first=True)
    worker = made_worker(lab, executor, "rk1")
    worker.inputs, worker.prepare = inputs.of, inputs.prepare
    serving = threading.Thread(target=worker.run, kwargs={"until_empty": True})
    serving.start()
    assert wait_until(lambda: len(inputs.asked) == preparing.AT_ONCE, timeout=60, interval=0.02)
    assert inputs.asked[0] == "j4"
    inputs.arrive.set()
    serving.join(60)
    assert inputs.most == preparing.AT_ONCE
    assert len(inputs.asked) == 5  # one content, one preparation
    assert len(executor.ran) == 6


def test_jobs_that_need_the_same_input_keep_their_order(lab: LabFile, state: LabState) -> None:
    """They are contents of their own; prepared side by side, a later one was ready first."""
    inputs, executor = Inputs(), Recorded()
    jobs = [
        NewJob(f"j{n}", {"version": 1, "large": 0, "n": n}, ("rk1",), id=f"j{n}") for n in range(3)
    ]
    state.jobs.submit(*jobs)
    worker = made_worker(lab, executor, "rk1")
    worker.inputs, worker.prepare = inputs.of, inputs.prepare
    serving = threading.Thread(target=worker.run, kwargs={"until_empty": True})
    serving.start()
    assert wait_until(lambda: bool(inputs.asked), timeout=60, interval=0.02)
    worker._woken.put(None)  # another look changes nothing
    inputs.arrive.set()
    serving.join(60)
    assert (inputs.asked, inputs.most) == (["j0"], 1)
    assert executor.ran == [(f"j{n}", "rk1") for n in range(3)]


def test_a_unit_begins_once_the_inputs_of_all_its_jobs_are_here(
    lab: LabFile, state: LabState
) -> None:
    """Between its jobs the board is kept for it: the fetching would part them."""
    inputs, executor = Inputs(), Recorded()
    second = NewJob("head", {"version": 1, "large": 0}, ("rk1",), id="head", unit="u")
    state.jobs.submit(new_job("good", "rk1", unit="u"), second, new_job("other", "rk1"))
    worker = made_worker(lab, executor, "rk1")
    worker.inputs, worker.prepare = inputs.of, inputs.prepare
    serving = threading.Thread(target=worker.run, kwargs={"until_empty": True})
    serving.start()
    try:
        assert wait_until(lambda: bool(inputs.asked), timeout=60, interval=0.02)
        assert wait_until(lambda: bool(executor.ran), timeout=60, interval=0.02)
    finally:
        inputs.arrive.set()
        serving.join(60)
    assert inputs.asked == ["head"]
    assert executor.ran == [(name, "rk1") for name in ("other", "good", "head")]


def test_the_owner_of_a_group_lets_others_have_the_board_while_inputs_are_fetched(
    lab: LabFile, state: LabState
) -> None:
    inputs = Inputs()
    worker = made_worker(lab, Recorded(), "rk1")
    worker.inputs, worker.prepare, worker.group = inputs.of, inputs.prepare, "g"
    group = NewGroup("g", "batch", "night", "ann@pc")
    state.groups.own(group, worker.name, boards=["rk1"])
    state.jobs.submit(
        NewJob("big", {"version": 1, "large": 0}, ("rk1",), id="big", group_id="g"),
        new_job("mine", "rk1", runner="process"),
    )
    with worker.beside() as check:
        assert wait_until(
            lambda: state.jobs.claim_own("mine", ["rk1"], "process"), timeout=60, interval=0.02
        )
        check()
        inputs.arrive.set()


def test_an_input_that_arrives_meanwhile_lets_no_later_job_pass(
    lab: LabFile, state: LabState
) -> None:
    """Another worker of this host brings it, after this one looked and before a job comes."""
    inputs = Inputs()
    worker = made_worker(lab, Recorded(), "rk1")
    worker.inputs, worker.prepare = inputs.of, inputs.prepare
    state.jobs.submit(large("first", "rk1"))
    first = worker._left_to_others()
    inputs.here.add(0)
    later = NewJob("later", {"version": 1, "large": 0, "n": 1}, ("rk1",), id="later")
    state.jobs.submit(later)
    both = worker._left_to_others()
    inputs.arrive.set()
    assert (len(first), len(both)) == (1, 2)


def test_a_store_that_does_not_answer_is_asked_again_and_costs_no_attempt(
    lab: LabFile, state: LabState, monkeypatch: pytest.MonkeyPatch
) -> None:
    said, inputs, executor, tries = list[str](), Inputs(), Recorded(), list[str]()
    inputs.arrive.set()

    def prepare(job: Job) -> None:
        tries.append(job.id)
        if len(tries) == 1:
            raise HostError("the store does not answer").of_host()
        inputs.prepare(job)

    monkeypatch.setattr(preparing, "_AGAIN_SECONDS", 0.1)
    state.jobs.submit(large("big", "rk1"))
    worker = made_worker(lab, executor, "rk1")
    worker.inputs, worker.prepare, worker.note = inputs.of, prepare, said.append
    worker.run(until_empty=True)
    assert len(tries) == 2
    assert "the store does not answer" in said[0]
    assert (executor.ran, state.jobs.find("big").failures) == ([("big", "rk1")], 0)


def test_an_error_of_the_job_itself_is_found_by_its_attempt(lab: LabFile, state: LabState) -> None:
    def prepare(_job: Job) -> None:
        raise ConfigError("no such model")

    executor = Recorded()
    state.jobs.submit(large("wrong", "rk1"))
    worker = made_worker(lab, executor, "rk1")
    worker.inputs, worker.prepare = lambda _job: {"file": lambda: False}, prepare
    worker.run(until_empty=True)
    assert executor.ran == [("wrong", "rk1")]


def test_the_host_whose_board_is_free_first_prepares(lab: LabFile, state: LabState) -> None:
    inputs = Inputs()
    state.workers.give_sign("lab2:1:aa", "lab2", ["rk2"], "1")
    state.jobs.submit(NewJob("long", {"version": 1}, ("rk1",), expected_seconds=500.0, id="long"))
    state.jobs.submit(NewJob("short", {"version": 1}, ("rk2",), expected_seconds=5.0, id="short"))
    state.jobs.claim(["rk1"], "lab1:1:bb")
    state.jobs.claim(["rk2"], "lab2:1:aa")
    state.jobs.submit(large("both", "rk1", "rk2"), large("here", "rk1", number=1))
    worker = made_worker(lab, Recorded(), "rk1")
    worker.inputs, worker.prepare = inputs.of, inputs.prepare
    worker._left_to_others()
    assert wait_until(lambda: bool(inputs.asked), timeout=60, interval=0.02)
    inputs.arrive.set()
    assert inputs.asked == ["here"]
