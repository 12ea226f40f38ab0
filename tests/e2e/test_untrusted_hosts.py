"""A pull request's recipe, submitted on one lab host, on a board of another."""

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import forked
import pytest
from agent_builds import native_agent
from bare_board import TARGET, BareBoard
from labs import said
from postgres_server import PostgresServer
from test_untrusted_run import CHANGES_THE_STORE, GOOD, RECIPE

from labctl import process
from labctl.build.artifact import artifacts_dir
from labctl.config.lab import find_lab
from labctl.retry import wait_until
from labctl.state.job import Job
from labctl.state.state import LabState, lab_state
from labctl.transport.built_in import TRANSPORTS

pytestmark = [pytest.mark.e2e, pytest.mark.soak, pytest.mark.timeout(1200)]


@dataclass(frozen=True)
class Hosts:
    """``lab1`` has the checkout beside it, the worker of ``lab2`` has the board."""

    root: Path
    state: LabState

    def submit(self, program: str) -> str:
        """Submit the recipe on lab1; return the job."""
        (self.root / "checkout" / "tool").write_text(program)
        words = ("--lab", str(self.root / "lab1"), "run", "recipe.yaml", "--untrusted", "--detach")
        done = forked.run(
            (*words, "--on", f"target={TARGET}"), cwd=self.root / "checkout", timeout=300
        )
        assert done.exit_status == 0, said(done)
        return done.text.strip()

    def ended(self, job: str) -> Job:
        """Wait for the end of a job."""
        assert wait_until(
            lambda: self.state.jobs.find(job).ended_at is not None, timeout=400, interval=0.2
        ), self.log()
        return self.state.jobs.find(job)

    def log(self) -> str:
        """What the worker said."""
        return (self.root / "lab2" / "worker.log").read_text()

    def kept(self) -> list[str]:
        """Copies of what was submitted, on both hosts."""
        folders = (self.root / lab / "untrusted" for lab in ("lab1", "lab2"))
        return [path.name for one in folders if one.is_dir() for path in one.iterdir()]


@pytest.fixture
def hosts(tmp_path: Path, private_state: Path, postgres: PostgresServer) -> Iterator[Hosts]:
    agent = native_agent().parents[1]
    for name in ("lab1", "lab2", "checkout"):
        (tmp_path / name).mkdir()
    (tmp_path / "checkout" / "recipe.yaml").write_text(RECIPE)
    (tmp_path / "checkout" / "any.bin").write_bytes(bytes(1000))
    cache = tmp_path / "cache of lab2"
    shutil.copytree(agent, cache / agent.relative_to(artifacts_dir().parent))
    own = {
        **os.environ,
        "LABCTL_CACHE": str(cache),
        "LABCTL_STATE": str(tmp_path / "state of lab2"),
    }
    with BareBoard(tmp_path / "board").served() as served:
        devices = (
            f"lab: {postgres.new_lab()}\ndatabase: {postgres.url}\nstore: {tmp_path / 'store'}\n"
            f"boards:\n  spare:\n    host: lab2\n    untrusted: true\n    target: {TARGET}\n"
            f'    transport: {{kind: hdc, link: tcp, address: "{served.address}"}}\n'
            f"    workdir: {served.workdir}\n"
        )
        for name in ("lab1", "lab2"):
            (tmp_path / name / "devices.yaml").write_text(devices)
        with (tmp_path / "lab2" / "worker.log").open("ab") as log:
            words = ("worker", "--host", "lab2")
            worker = forked.start(words, cwd=tmp_path / "lab2", stderr=log.fileno(), env=own)
        try:
            yield Hosts(tmp_path, lab_state(find_lab(tmp_path / "lab1", TRANSPORTS)))
        finally:
            process.stop(worker)
            assert worker.stdout is not None
            worker.stdout.close()


def test_a_job_of_another_host_is_confined_and_its_board_looked_through(hosts: Hosts) -> None:
    job = hosts.ended(hosts.submit(GOOD))
    assert (job.kind, job.exit_status) == ("untrusted", 0), hosts.log()
    assert hosts.state.health.get("spare").may_work
    done = forked.run(
        ("--lab", str(hosts.root / "lab1"), "runs", "--json"), cwd=hosts.root, timeout=300
    )
    (run,) = json.loads(done.stdout)
    assert run["id"] == job.run, said(done)
    (record,) = hosts.root.glob(f"lab2/runs/{job.run}/run.json")
    found = json.loads(record.read_text())
    assert (found["untrusted_recipe"], found["untrusted_board"]) == (True, True)

    # One that changes the board is found by the host that has it, and told to all.
    job = hosts.ended(hosts.submit(CHANGES_THE_STORE))
    assert job.exit_status == 1, hosts.log()
    health = hosts.state.health.get("spare")
    assert health.health == "bad"
    assert health.evidence["damaged"]
    # Nobody's next job goes there.
    waiting = hosts.submit(GOOD)
    assert hosts.kept() == [waiting]  # those of jobs that ended elsewhere are gone

    def why() -> str:
        return hosts.state.jobs.find(waiting).reason or ""

    assert wait_until(lambda: "the health of board spare is bad" in why(), timeout=60, interval=0.2)
