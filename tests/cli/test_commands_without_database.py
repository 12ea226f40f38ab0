"""Commands while the lab's PostgreSQL is away: they wait, say so, and do what they do once."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from agent_builds import HOST
from chaos import write_inputs
from chaos_clients import SHELF, Clients, lab_clients
from postgres_server import PostgresServer, postgres_server

from labctl.cli import run
from labctl.cli.ci_output import CiOutput
from labctl.cli.root import run_cli
from labctl.config.lab import Lab, LabFile, find_lab
from labctl.database.base import patience
from labctl.errors import LeaseLost
from labctl.farm.queue_engine import wake_workers
from labctl.retry import wait_until
from labctl.runs.inputs.prepare import read_recipe
from labctl.runs.resume import ResumeRequest
from labctl.runs.run import RunRequest
from labctl.state.state import lab_state
from labctl.transport.built_in import TRANSPORTS


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    with postgres_server() as made:
        yield made


def board(name: str, port: int) -> str:
    where = f'{{kind: hdc, link: tcp, address: "127.0.0.1:{port}"}}'
    return f"  {name}:\n    target: {HOST}\n    transport: {where}\n    workdir: /nowhere\n"


@pytest.fixture
def desk(tmp_path: Path, server: PostgresServer) -> Path:
    folder = tmp_path / "desk"
    folder.mkdir()
    text = f"lab: clients\ndatabase: {server.url}\nstore: {tmp_path / 'store'}\nboards:\n"
    (folder / "devices.yaml").write_text(text + board("b-1", 8) + board(SHELF, 9))
    write_inputs(folder)
    return folder


@pytest.fixture
def clients(tmp_path: Path, desk: Path) -> Iterator[Clients]:
    state = lab_state(find_lab(desk, TRANSPORTS))
    state.jobs.submit()
    with lab_clients(tmp_path, state) as made:
        yield made


def kill_a_backend(server: PostgresServer) -> None:
    """Kill one process of the server: it ends all others, and recovers."""
    with suppress(psycopg.OperationalError), psycopg.connect(server.url) as connection:
        (pid,) = connection.execute("SELECT pg_backend_pid()").fetchone() or (0,)
        os.kill(pid, signal.SIGKILL)
        connection.execute("SELECT 1")


@pytest.mark.soak
def test_commands_wait_for_a_database_that_restarts(
    server: PostgresServer, clients: Clients
) -> None:
    for number in (signal.SIGINT, signal.SIGQUIT):
        clients.start(6)
        server.stop(number)
        clients.start(8)
        assert wait_until(lambda: clients.all_wait(8), timeout=240, interval=0.2)
        server.start()
    kill_a_backend(server)
    clients.start(6)
    clients.finish()
    clients.check()
    assert clients.waited >= 16
    assert len(clients.jobs) >= 3


@pytest.mark.soak
def test_commands_wait_for_a_database_that_is_away_for_a_minute(
    server: PostgresServer, clients: Clients
) -> None:
    for round_ in range(10):
        clients.start(20)
        server.stop(signal.SIGQUIT if round_ % 2 else signal.SIGINT)
        clients.start(20)
        assert wait_until(lambda: clients.all_wait(20), timeout=240, interval=0.2)
        threading.Event().wait(60.0 if round_ == 0 else 0.0)  # the absence is what is tested
        server.start()
        clients.finish()
        clients.check()


def test_a_wake_up_that_fails_after_the_commit_is_no_error(tmp_path: Path) -> None:
    url = "postgresql://labctl@127.0.0.1:1/postgres"
    wake_workers(LabFile(tmp_path, Lab(lab="a", database=url, boards={})), ["b-1"])


def unreachable(folder: Path) -> list[str]:
    text = "lab: a\ndatabase: postgresql://labctl@127.0.0.1:1/postgres\nboards: {}\n"
    (folder / "devices.yaml").write_text(text)
    return ["--lab", str(folder), "queue"]


def test_a_wait_says_for_what_and_how_long(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = unreachable(tmp_path)
    with patience(0.2):
        assert run_cli(words) == 3
        first, *_ = capsys.readouterr().err.splitlines()
        assert first.startswith("cannot use the database postgresql://labctl@127.0.0.1:1/postgres:")
        assert "retrying for at most 0.2 s" in first
        assert run_cli(["-q", *words]) == 3
        first, *_ = capsys.readouterr().err.splitlines()
        assert first == "waiting for the lab's database for at most 0.2 s"


def test_ctrl_c_ends_a_wait_with_130(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = unreachable(tmp_path)
    threading.Timer(1.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    assert run_cli(words) == 130
    assert "retrying for at most 10 minutes" in capsys.readouterr().err


@pytest.mark.parametrize("is_away", [True, False])
def test_a_run_that_lost_its_lease_in_an_absence_continues(
    desk: Path, monkeypatch: pytest.MonkeyPatch, *, is_away: bool
) -> None:
    lost, notes = LeaseLost("the lease of board b-1 was not renewed in time"), list[str]()
    lost.run, lost.is_of_host = "20261120T223000Z-q2-abcdef", is_away
    resumed: list[ResumeRequest] = []

    def run_recipe(*_: object) -> None:
        raise lost

    def resume(request: ResumeRequest, *_: object) -> str:
        resumed.append(request)
        return "the outcome"

    monkeypatch.setattr(run, "run_recipe", run_recipe)
    monkeypatch.setattr("labctl.runs.resume.resume", resume)
    lab = find_lab(desk, TRANSPORTS)
    recipe = read_recipe(desk / "recipes" / "sleeping.yaml", (), lab_root=desk)
    request = RunRequest(recipe, lab.board("b-1"), lab)
    observer = SimpleNamespace(note=notes.append)
    goes_on: Any = run._run_to_its_end
    if not is_away:  # somebody else has the board
        with pytest.raises(LeaseLost):
            goes_on(request, observer, CiOutput())
        return
    assert goes_on(request, observer, CiOutput()) == "the outcome"
    assert [(one.directory.path.name, one.board.name) for one in resumed] == [(lost.run, "b-1")]
    assert "continues when it answers" in notes[0]
