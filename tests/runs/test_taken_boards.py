"""Whose board it is: other controllers are respected while they live, and not a moment longer."""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

import agent_builds
import pytest

from labctl import process
from labctl.board.agent import BoardAgent
from labctl.board.lease import BoardLease
from labctl.config.lab import Board, Lab, LabFile
from labctl.config.target import load_target
from labctl.deploy.plan import DeployPlan, Object, describe, plan
from labctl.deploy.send import deploy
from labctl.errors import BoardBusy, BoardError, DeviceLost, LeaseLost
from labctl.records.board import BoardFacts, Execution
from labctl.runs.board.claim import BoardClaim
from labctl.runs.board.deploy_preview import signs_of_life
from labctl.runs.board.session import BoardSession
from labctl.runs.board.state_changes import BoardChanges
from labctl.transport.base import CommandResult
from labctl.transport.local import LocalConfig

AGENT = f"""#!/bin/sh
case $1 in guard | take) exec {agent_builds.native_agent()} "$@";; esac
[ -f "$3/runs" ] && echo '{{"state":"running"}}' || echo '{{"state":"finished"}}'
"""


@pytest.fixture
def workdir(tmp_path: Path) -> Path:
    folder = tmp_path / "board"
    folder.mkdir()
    (folder / "agent").write_text(AGENT)
    (folder / "agent").chmod(0o755)
    return folder


@pytest.fixture
def meet(
    tmp_path: Path, private_state: Path, workdir: Path
) -> Iterator[Callable[[str], BoardSession]]:
    """Meet the board; what this host remembers of it is under a name."""
    board = Board.model_validate(
        {"target": "host-x86_64", "workdir": str(workdir), "transport": LocalConfig()}
    )
    facts = BoardFacts(
        execution=Execution.NATIVE_HOST, machine="m", kernel="k", boot_id=process.boot_id()
    )
    lab, target = LabFile(tmp_path, Lab(lab="lab", boards={})), load_target("host-x86_64")
    with LocalConfig().open() as link:

        def meet(state: str) -> BoardSession:
            claim = ending.enter_context(BoardClaim(board, lab, link, tmp_path / "state" / state))
            return BoardSession(claim, lab, target, facts, tmp_path / "rate")

        with ExitStack() as ending:
            yield meet


@pytest.fixture
def met(meet: Callable[[str], BoardSession]) -> BoardSession:
    """A board without an agent."""
    return meet("board")


@pytest.fixture
def held(meet: Callable[[str], BoardSession], workdir: Path) -> BoardSession:
    """The same board, with an agent."""
    return with_agent(meet("board"), workdir)


def with_agent(met: BoardSession, workdir: Path) -> BoardSession:
    met.fence.agent = str(workdir / "agent")
    met._agent = BoardAgent(met.transport, met.fence.agent, str(workdir))
    return met


def refuse_if_taken(met: BoardSession, *, orphans: bool = False) -> None:
    """Look at the lease as it is now."""
    met.claim.see(met.claim.leases.status())
    met.claim.refuse_if_taken(orphans=orphans)


def a_job_runs(workdir: Path) -> Path:
    """Leave a job that runs as long as a file is there, which is returned."""
    job = workdir / "jobs" / "1"
    job.mkdir(parents=True)
    (job / "started.json").write_text("{}")
    (job / "runs").write_text("")
    return job / "runs"


def agent_in_store(met: BoardSession, workdir: Path) -> None:
    agent = describe(workdir / "agent", name="agent", executable=True)
    deploy(met.store, plan(met.store, [agent]))


def silent_for(workdir: Path, seconds: float) -> None:
    alive = workdir / "lease.alive"
    now, boot = alive.read_text().split()
    alive.write_text(f"{int(now) - int(seconds)} {boot}\n")


def test_a_free_board_is_taken_and_left(
    met: BoardSession, held: BoardSession, workdir: Path
) -> None:
    refuse_if_taken(met)
    taken = held.take_lease()
    assert (workdir / "lease.alive").exists()
    refuse_if_taken(met)  # it is ours
    held.claim.give_up()
    assert not (workdir / "lease.alive").exists()
    assert json.loads((workdir / "lease").read_text())["epoch"] == taken.epoch


def test_what_an_earlier_controller_changed_is_known_with_the_lease(
    held: BoardSession, workdir: Path
) -> None:
    assert held.has_changes
    held.take_lease()
    assert not held.has_changes
    BoardChanges(held.fence).stop("no such process")  # and killed here
    held.take_lease()
    assert held.has_changes


def test_what_is_wanted_is_looked_at_with_the_lease(
    met: BoardSession, held: BoardSession, workdir: Path
) -> None:
    agent_in_store(met, workdir)
    (good,) = held.store.contents()
    torn, absent = (Object(digit * 64, 5, workdir / "x", "x") for digit in "01")
    (workdir / "store" / torn.sha256).write_text("half")
    stamp = workdir / "store" / f"{good.sha256}.stamp"
    os.utime(stamp, (0, 0))
    agent = Object(good.sha256, good.size_bytes, workdir / "agent", "agent")
    planned = DeployPlan((agent, torn, absent), (torn, absent))
    assert held.take_for(planned)[1]
    assert stamp.stat().st_mtime > 0
    assert not (workdir / "store" / torn.sha256).exists()
    assert held.store.missing([good]) == []


def test_a_plan_is_an_old_one_once_store_boot_or_space_changed(
    met: BoardSession, held: BoardSession, workdir: Path
) -> None:
    agent_in_store(met, workdir)
    (good,) = held.store.contents()
    agent = Object(good.sha256, good.size_bytes, workdir / "agent", "agent")
    large = replace(agent, sha256="1" * 64, size_bytes=1 << 60)
    small = replace(large, size_bytes=5)
    assert held.take_for(DeployPlan((agent, small), (small,)))[1]
    assert not held.take_for(DeployPlan((agent,), (agent,)))[1]  # somebody sent it
    assert not held.take_for(DeployPlan((agent, small), ()))[1]  # somebody removed it
    assert not held.take_for(DeployPlan((agent, large), (large,)))[1]
    held.facts = held.facts.model_copy(update={"boot_id": "the boot before"})
    assert not held.take_for(DeployPlan((agent,), ()))[1]


def test_a_lease_that_was_taken_over_is_left_as_well(held: BoardSession, workdir: Path) -> None:
    held.claim.keep(held.claim.leases.acquire("lab"))
    held.claim.give_up()
    assert not (workdir / "lease.alive").exists()


def test_another_controller_is_not_driven_out(met: BoardSession, held: BoardSession) -> None:
    theirs = held.claim.leases.acquire("nightly")
    for take in (partial(refuse_if_taken, met), held.take_lease):
        with pytest.raises(BoardBusy, match=r"is in use by nightly .*: it gave a sign of life"):
            take()
    held.claim.give_up()
    held.claim.leases.check(theirs)


def test_a_dead_one_is_not_waited_for_for_ever(held: BoardSession, workdir: Path) -> None:
    held.claim.leases = BoardLease(  # this computer may be just on
        held.transport, str(workdir), fence=held.fence, alive_seconds=5.0
    )
    theirs = held.claim.leases.acquire("nightly")
    silent_for(workdir, 10)
    assert held.take_lease().epoch == theirs.epoch + 1


def test_a_silent_one_whose_job_runs_is_alive(
    met: BoardSession, held: BoardSession, workdir: Path
) -> None:
    held.claim.leases.acquire("nightly")
    (workdir / "lease.alive").unlink()
    runs = a_job_runs(workdir)
    with pytest.raises(BoardBusy, match="a job runs there"):
        held.take_lease()
    refuse_if_taken(met)  # without an agent in the store nobody has started a job
    agent_in_store(met, workdir)
    with pytest.raises(BoardBusy, match="a job runs there"):
        refuse_if_taken(met)
    runs.unlink()
    refuse_if_taken(met)
    held.take_lease()


def test_a_job_of_a_dead_controller_of_this_host_is_measured_undisturbed(
    met: BoardSession, held: BoardSession, workdir: Path
) -> None:
    """A deploy waits for it; a run takes its place, as ever."""
    agent_in_store(met, workdir)
    held.take_lease()
    runs = a_job_runs(workdir)
    refuse_if_taken(met)
    with pytest.raises(BoardBusy, match="a job runs there"):
        refuse_if_taken(met, orphans=True)
    runs.unlink()
    refuse_if_taken(met, orphans=True)


def test_who_sends_under_a_lease_of_this_host_leaves_it_to_the_run_whose_job_is_there(
    held: BoardSession, workdir: Path
) -> None:
    had = held.take_lease()
    a_job_runs(workdir).unlink()  # it came to its end, and nobody fetched it
    (workdir / "lease.alive").unlink()
    held.hold_to_send()
    assert held.claim.leases.read() == had
    assert (workdir / "lease.alive").exists()
    held.claim.give_up()
    assert not (workdir / "lease.alive").exists()


def test_who_sends_does_not_go_under_the_name_of_a_run_that_left_nothing(
    held: BoardSession,
) -> None:
    """Its process is dead, or came to its end: its lease is an old one."""
    had = held.take_lease()
    held.hold_to_send()
    now = held.claim.leases.read()
    assert now == held.claim.lease
    assert now is not None
    assert (now.epoch, now.token == had.token) == (had.epoch + 1, False)


def test_who_sends_gives_signs_of_life_until_he_loses_the_board(
    held: BoardSession, workdir: Path
) -> None:
    alive = workdir / "lease.alive"
    held.hold_to_send()
    sign = signs_of_life(held)
    alive.unlink()
    sign(1)
    assert not alive.exists()  # not for every piece
    sign = signs_of_life(held, every=0.0)
    sign(1)
    assert alive.exists()
    held.claim.leases.acquire("nightly")
    with pytest.raises(LeaseLost, match="nightly"):
        sign(1)


def test_a_lease_is_our_own_before_its_answer_has_come(
    held: BoardSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The board has it, and who took it dies or loses the link before it knows that."""

    answer = held.transport.run

    def lost(command: str, *, timeout: float) -> CommandResult:
        result = answer(command, timeout=timeout)
        if " take " in command:
            raise DeviceLost("cable")
        return result

    with monkeypatch.context() as broken:
        broken.setattr(held.transport, "run", lost)
        with pytest.raises(DeviceLost):
            held.take_lease()
    held.claim.leases.check(taken := held.claim.leases.read() or pytest.fail("there is no lease"))
    assert held.take_lease().epoch == taken.epoch + 1


def test_what_this_host_had_is_its_own_whoever_died(
    held: BoardSession, meet: Callable[[str], BoardSession], workdir: Path
) -> None:
    """Also when it comes by another way, of which it knows no epoch."""
    first = held.take_lease()
    second = with_agent(meet("other"), workdir).take_lease()
    assert second.epoch == first.epoch + 1


def test_the_same_epoch_is_not_the_same_lease(held: BoardSession) -> None:
    first = held.take_lease()
    theirs = held.claim.leases.acquire("nightly")
    assert theirs.epoch == first.epoch + 1
    held.claim.epoch_file.write_text(f"{theirs.epoch}\n")
    with pytest.raises(BoardError, match=r"is in use by nightly.* another lab's lease"):
        held.take_lease()


def test_a_lease_is_looked_at_before_each_trial_but_the_first_after_it_was_taken(
    held: BoardSession,
) -> None:
    held.take_lease()
    held.claim.leases.acquire("nightly")
    held.claim.check_before_trial()  # the agent refuses to start it
    for _ in range(2):
        with pytest.raises(LeaseLost):
            held.claim.check_before_trial()


def test_a_lease_of_an_earlier_process_is_looked_at_before_each_trial(held: BoardSession) -> None:
    held.claim.keep(held.claim.leases.acquire("lab"))
    held.claim.leases.acquire("nightly")
    with pytest.raises(LeaseLost):
        held.claim.check_before_trial()
