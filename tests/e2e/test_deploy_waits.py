"""`labctl deploy` on a board that somebody else uses: it waits, and sends nothing meanwhile."""

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import agent_builds
import forked
import pytest
from agent_fences import native_leases
from labs import TALKING, LabUnderTest, RunningLabctl, blamed, give_talker, said

from labctl.config.lab import find_lab
from labctl.runs.board.lab_lease import BoardUse
from labctl.runs.board.session import hold_board
from labctl.state.events import this_user
from labctl.transport.base import Transport
from labctl.transport.built_in import TRANSPORTS
from labctl.transport.hdc import HdcTcpConfig

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]


@pytest.fixture(autouse=True)
def a_recipe(lab: LabUnderTest) -> None:
    lab.recipe()


def the_board(lab: LabUnderTest) -> Transport:
    return HdcTcpConfig(address=lab.board.address).open()


@contextmanager
def held(lab: LabUnderTest) -> Iterator[None]:
    """What keeps other labctls of this host out while a run, a probe or a deploy has the board."""
    found = find_lab(lab.root, TRANSPORTS)
    use = BoardUse("test")
    with the_board(lab) as transport, hold_board(found.board(None), transport, found, use):
        yield


@contextmanager
def waiting(
    lab: LabUnderTest,
    *because: str,
    words: tuple[str, ...] = ("deploy", "tiny"),
    quiet: bool = True,
) -> Iterator[RunningLabctl]:
    """A deploy that says that it waits; on a board that is ``quiet``, nothing comes meanwhile."""
    said_so = lab.root / "said"
    before = stored(lab)
    with said_so.open("wb") as file:
        running = RunningLabctl(lab, forked.start(words, cwd=lab.root, stderr=file.fileno()))
    running.waiting_for(lambda: b"waiting" in said_so.read_bytes())
    (line,) = [line for line in said_so.read_text().splitlines() if "waiting" in line]
    for reason in because:
        assert reason in line
    assert "board vb is in use" in line
    assert not quiet or stored(lab) == before
    yield running


def stored(lab: LabUnderTest) -> list[str]:
    """The names of what is in the board's store."""
    return sorted(path.name for path in Path(lab.board.workdir).glob("store/*"))


def brought(lab: LabUnderTest) -> set[Path]:
    """What is in the board's store, or on its way there."""
    workdir = Path(lab.board.workdir)
    return {path for folder in ("store", "incoming") for path in workdir.glob(f"{folder}/*")}


def sent(lab: LabUnderTest, running: RunningLabctl) -> None:
    done = running.finish()
    assert done.exit_status == 0, (lab.root / "said").read_text()
    assert "has all 2 files; 2 were sent" in done.text
    text = (lab.root / "said").read_text()
    assert text.count("waiting") == 1, text


def test_it_waits_for_another_labctl_of_this_host(lab: LabUnderTest) -> None:
    with held(lab):
        blamed(lab.run("deploy", "--no-wait"), 3, "infra", "board vb is in use")
        with waiting(lab, f"{this_user()} since", ": test") as running:
            pass
    sent(lab, running)


@pytest.mark.parametrize("command", ["prune", pytest.param("verify", marks=pytest.mark.soak)])
def test_verify_and_prune_wait_as_well(lab: LabUnderTest, command: str) -> None:
    words = ("store", command)
    with held(lab):
        blamed(lab.run(*words, "--no-wait"), 3, "infra", "board vb is in use")
        with waiting(lab, f"{this_user()} since", ": test", words=words) as running:
            pass
    done = running.finish()
    assert done.exit_status == 0, (lab.root / "said").read_text()
    assert (lab.root / "said").read_text().count("waiting") == 1


def test_it_is_interrupted_while_it_waits(lab: LabUnderTest) -> None:
    with held(lab), waiting(lab) as running:
        running.process.send_signal(signal.SIGINT)
        assert running.finish().exit_status == 130
    assert stored(lab) == []


def test_it_waits_for_another_deploy_and_no_longer_when_that_one_dies(lab: LabUnderTest) -> None:
    first = lab.start("deploy", "tiny", "--limit-rate", "100kB/s")
    first.waiting_for(lambda: any(Path(lab.board.workdir).glob("store/*.part*")))
    with waiting(lab, ": deploy", quiet=False) as running:
        first.process.kill()
        first.finish()
    sent(lab, running)


def test_it_waits_for_a_run_and_sends_nothing_during_its_trials(lab: LabUnderTest) -> None:
    give_talker(lab, TALKING.replace(agent_builds.HOST, "rk3568"))
    measuring = lab.start("run", "talking")
    measuring.waiting_for(lambda: lab.is_under_way(1))
    before = brought(lab)
    with waiting(lab, ": run talking (", ", trial 1 of") as running:
        assert measuring.finish().exit_status == 0
    sent(lab, running)
    (end,) = lab.root.glob("runs/*/end.json")
    new = brought(lab) - before
    assert new
    assert min(path.stat().st_ctime_ns for path in new) >= end.stat().st_mtime_ns


def test_it_waits_for_the_job_of_a_run_that_was_killed_and_leaves_it_to_a_resumed_one(
    lab: LabUnderTest,
) -> None:
    # Its job lasts as long on a quiet host as on a busy one: the deploy below must find it there.
    give_talker(lab, TALKING.replace(agent_builds.HOST, "rk3568"))
    killed = lab.start("run", "talking")
    killed.waiting_for(lambda: lab.is_under_way(1))
    killed.process.kill()
    killed.finish()
    with waiting(lab, "a job runs there") as running:
        pass
    sent(lab, running)
    # The job that the killed run left was measured to its end, and is a result.
    resumed = lab.run("resume")
    assert resumed.exit_status == 0, said(resumed)
    (only,) = json.loads(lab.run("report", "latest", "--json").text)["trials"]
    assert (only["state"], only["attempt"], only["resumed"]) == ("ok", 1, 1)


def test_it_waits_for_a_controller_of_another_host(lab: LabUnderTest) -> None:
    with the_board(lab) as transport:
        leases = native_leases(transport, lab.board.workdir)
        theirs = leases.acquire("nightly")
        blamed(lab.run("deploy", "--no-wait"), 3, "infra", "in use by nightly on")
        with waiting(lab, "by nightly on") as running:
            leases.check(theirs)  # nobody took it
            leases.release(theirs)
        sent(lab, running)
