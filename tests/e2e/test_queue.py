"""The queue of a lab, as its users see it: waiting runs, detached runs, ``labctl queue``, logs."""

import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from farm_lab import ENDLESS, farm_lab, let_go
from jobs import is_alive
from labs import LabUnderTest, blamed, said

from labctl.config.lab import Lab, LabFile
from labctl.retry import wait_until
from labctl.state.state import lab_state

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200)]


@pytest.fixture
def farm(tmp_path: Path, private_state: Path) -> Iterator[LabUnderTest]:
    with farm_lab(tmp_path, 2) as lab:
        yield lab


def seconds(number: float) -> tuple[str, str]:
    return "--set", f"seconds={number}"


def waiting(farm: LabUnderTest) -> list[str]:
    """The names of jobs that wait."""
    jobs = json.loads(farm.run("queue", "--json").text)
    return [job["id"] for job in jobs if job["state"] == "waiting"]


def test_a_run_waits_for_its_turn_and_a_free_board_is_used_without_a_word(
    farm: LabUnderTest,
) -> None:
    alone = farm.run("run", "sleeping", "-b", "b-2")
    assert alone.exit_status == 0, said(alone)
    assert "waiting" not in said(alone)
    first = farm.start("run", "sleeping", "-b", "b-1", *ENDLESS)
    first.waiting_for(lambda: farm.is_under_way(1))
    blamed(farm.run("run", "sleeping", "-b", "b-1", "--no-wait"), 3, "infra", "b-1 is in use")
    second = farm.start("run", "sleeping", "-b", "b-1", *seconds(0.1))
    second.waiting_for(lambda: waiting(farm) != [])
    assert not first.ended
    other = farm.run("run", "sleeping", "--on", "board=b-*", *seconds(0.1))
    assert other.exit_status == 0, said(other)
    let_go(farm.root)
    done = second.finish()
    assert done.exit_status == 0, said(done)
    assert "waiting for board b-1: place 1 of 1" in said(done)
    assert first.finish().exit_status == 0
    ended = json.loads(farm.run("queue", "list", "--ended", "5", "--json").text)
    results = [(job["kind"], job["state"], job["exit_status"]) for job in ended]
    # Also the one that did not wait: it left no waiting job.
    assert sorted(results, key=str) == [("run", "cancelled", None), *[("run", "done", 0)] * 4]


def test_a_detached_run_is_what_it_was_when_it_was_submitted(farm: LabUnderTest) -> None:
    first = farm.run("run", "sleeping", "-b", "b-1", "--detach", *ENDLESS)
    assert first.exit_status == 0, said(first)
    job = first.text.strip()
    (pid,) = re.findall(r"stop it: kill (\d+)", said(first))
    assert wait_until(lambda: farm.is_under_way(1), timeout=300, interval=0.05)
    second = farm.run("run", "sleeping", "-b", "b-1", "--detach", *seconds(0.5))
    assert "kill" not in said(second)  # it is served already
    let_go(farm.root)
    recipe = farm.root / "recipes" / "sleeping.yaml"
    recipe.write_text(recipe.read_text().replace("seconds: 1.0", "seconds: oh no"))
    followed = farm.run("logs", "-f", job)
    assert followed.exit_status == 0, said(followed)
    assert "trial 1 of 1" in followed.text
    later = farm.run("logs", "-f", second.text.strip())
    assert later.exit_status == 0, said(later)
    (run,) = re.findall(r"run (\S+-sleeping-\w+)", later.text.splitlines()[0])
    record = json.loads((farm.root / "runs" / run / "run.json").read_text())
    assert record["recipe_resolved"]["parameters"]["seconds"] == 0.5
    assert wait_until(lambda: not is_alive(pid), timeout=120, interval=0.1)


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.soak)]
)
def test_jobs_of_a_server_that_is_stopped_wait_again_and_go_on(
    farm: LabUnderTest, number: signal.Signals
) -> None:
    state = lab_state(LabFile(farm.root, Lab(boards={})))
    server = farm.start("worker")
    server.waiting_for(lambda: state.workers.list() != [])
    ids = [
        farm.run("run", "sleeping", "-b", board, "--detach", *ENDLESS).text.strip()
        for board in ("b-1", "b-2")
    ]
    started = "board/*/data/local/tmp/labctl/jobs/*/started.json"
    server.waiting_for(lambda: len(list(farm.root.glob(started))) == 2)
    server.process.send_signal(number)
    assert server.process.stderr is not None
    while "ends after the jobs on b-1, b-2" not in str(server.process.stderr.readline()):
        assert not server.ended
    server.process.send_signal(number)
    assert server.finish().exit_status == 130
    # Nothing speaks against them, and nobody waits until the lease of their server is over.
    before = [state.jobs.find(job) for job in ids]
    assert [(job.state, job.failures) for job in before] == [("waiting", 0)] * 2
    let_go(farm.root)
    done = farm.run("worker", "--until-empty")
    assert done.exit_status == 0, said(done)
    after = [state.jobs.find(job) for job in ids]
    assert [(job.state, job.exit_status) for job in after] == [("done", 0)] * 2
    assert [job.run for job in after] == [job.run for job in before]
    assert len(farm.finished_trials()) == 2


def test_jobs_are_cancelled_and_moved(farm: LabUnderTest) -> None:
    (farm.root / "labctl.sqlite").unlink(missing_ok=True)
    ids = [
        farm.run("run", "sleeping", "-b", "b-1", "--detach", *length).text.strip()
        for length in (ENDLESS, seconds(0.1), seconds(0.2))
    ]
    shown = farm.run("queue", "--json")
    jobs = {job["id"]: job for job in json.loads(shown.text)}
    assert list(jobs) == ids
    # It has the board before another is moved before it.
    assert wait_until(lambda: farm.is_under_way(1), timeout=300, interval=0.05)
    moved = farm.run("queue", "move", ids[2], "--first")
    assert "place 1" in moved.text
    assert farm.run("queue", "move", ids[1], "--priority", "-3").exit_status == 0
    assert waiting(farm)[-2:] == [ids[2], ids[1]]
    assert "is cancelled" in farm.run("queue", "cancel", ids[1]).text
    followed = farm.run("logs", "-f", ids[1])
    assert followed.exit_status == 130, said(followed)
    assert "is cancelled and has no run" in said(followed)
    running = lambda: json.loads(farm.run("queue", "--json").text)[0]  # noqa: E731
    assert wait_until(lambda: running()["run"] is not None, timeout=120, interval=0.2)
    stopped = farm.run("queue", "cancel", ids[0], "--reason", "wrong model")
    assert "is asked to stop" in stopped.text
    assert wait_until(lambda: waiting(farm) == [], timeout=240, interval=0.2)
    done = farm.run("logs", "-f", ids[2])
    assert done.exit_status == 0, said(done)
    ended = json.loads(farm.run("queue", "list", "--ended", "9", "--json").text)
    states = {job["id"]: (job["state"], job["reason"]) for job in ended}
    assert states[ids[0]] == ("cancelled", "wrong model")
    assert states[ids[2]][0] == "done"
    blamed(farm.run("queue", "cancel", "zz"), 2, "config", "no job 'zz'")
    blamed(farm.run("queue", "move", ids[0], "--first"), 2, "config", "only a waiting job")


def test_a_job_that_ended_after_the_backup_is_not_measured_again(
    farm: LabUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, copy = lab_state(LabFile(farm.root, Lab(boards={}))), farm.root / "copy.sqlite"
    assert farm.run("hold", "b-1").exit_status == 0
    monkeypatch.setenv("LOGNAME", "bob")
    job = farm.run("run", "sleeping", "-b", "b-1", "--detach", *seconds(0.1)).text.strip()
    assert farm.run("state", "backup", "-o", str(copy)).exit_status == 0
    state.holds.release("b-1", by="bob", force=True, reason="test")
    assert wait_until(lambda: state.jobs.find(job).state == "done", timeout=240, interval=0.5)
    (run,) = farm.root.glob("runs/*-sleeping-*")
    assert json.loads((run / "run.json").read_text())["job"] == job
    assert wait_until(lambda: not state.workers.list(), timeout=60, interval=0.2)
    restored = farm.run("state", "restore", str(copy), "--yes")
    assert restored.exit_status == 0, said(restored)
    assert state.jobs.find(job).state == "waiting"
    state.holds.release("b-1", by="bob", force=True, reason="test")
    served = farm.run("worker", "--until-empty")
    assert served.exit_status == 0, said(served)
    back = state.jobs.find(job)
    assert (back.state, back.exit_status, back.run) == ("done", 0, run.name)
    assert list(farm.root.glob("runs/*-sleeping-*")) == [run]


def test_boards_are_taken_for_who_submitted_a_job_whoever_serves_it(
    farm: LabUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOGNAME", "svc")
    state = lab_state(LabFile(farm.root, Lab(boards={})))
    server = farm.start("worker")
    try:
        server.waiting_for(lambda: bool(state.workers.list()))
        monkeypatch.setenv("LOGNAME", "ann")
        assert farm.run("hold", "b-1").exit_status == 0
        monkeypatch.setenv("LOGNAME", "bob")
        bobs = farm.run("run", "sleeping", "-b", "b-1", "--detach", *seconds(0.1)).text.strip()
        monkeypatch.setenv("LOGNAME", "ann")
        anns = farm.run("run", "sleeping", "-b", "b-1", "--detach", *ENDLESS).text.strip()
        server.waiting_for(lambda: state.leases.get("b-1") is not None)
        lease = state.leases.get("b-1")
        assert lease is not None
        assert (lease.holder.partition("@")[0], lease.job) == ("ann", anns)
        let_go(farm.root)
        done = farm.run("logs", "-f", anns)
        assert done.exit_status == 0, said(done)
        left = state.jobs.find(bobs)
        assert (left.state, left.attempts) == ("waiting", 0)
        assert "b-1 is held by ann" in str(left.reason)
        assert farm.run("release", "b-1").exit_status == 0
        done = farm.run("logs", "-f", bobs)
        assert done.exit_status == 0, said(done)
    finally:
        server.process.terminate()
        said(server.finish())


def test_wrong_options_are_refused(farm: LabUnderTest) -> None:
    for words, reason in (
        (("--on", "tag=x", "-b", "b-1"), "not both"),
        (("--on", "tga=x"), "did you mean 'tag'"),
        (("--on", "tag=x"), "none is tag=x"),
        (("--detach", "--build", "-b", "b-1"), "--detach cannot be used with"),
    ):
        done = farm.run("run", "sleeping", *words)
        assert done.exit_status == 2, said(done)
        assert reason in said(done)
    assert not (farm.root / "worker.log").exists()


def test_after_a_death_the_board_is_for_resume_alone_until_its_program_ends(
    farm: LabUnderTest,
) -> None:
    first = farm.start("run", "sleeping", "-b", "b-1", *ENDLESS)
    first.waiting_for(lambda: farm.is_under_way(1))
    first.process.kill()
    first.finish()
    (run,) = (path.name for path in farm.root.glob("runs/*-sleeping-*"))
    for words in (("boards", "probe", "b-1"), ("store", "prune", "-b", "b-1", "--no-wait")):
        refused = farm.run(*words)
        blamed(refused, 3, "infra", f"board b-1 is in use by run {run} of ")
        assert f"`labctl resume {run}` continues it" in said(refused)
    assert farm.is_under_way(1)
    let_go(farm.root)
    done = farm.run("resume", run)
    assert done.exit_status == 0, said(done)
    assert len(farm.finished_trials()) == 1
    kinds = {
        job["kind"]: job
        for job in json.loads(farm.run("queue", "list", "--ended", "9", "--json").text)
    }
    assert (kinds["run"]["state"], kinds["run"]["reason"]) == ("cancelled", "its holder died")
    assert (kinds["resume"]["state"], kinds["resume"]["run"]) == ("done", run)
    assert farm.run("run", "sleeping", "-b", "b-1", "--no-wait", *seconds(0.1)).exit_status == 0
