"""Servers that labctl starts for an evaluation, on this host and on a board."""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import labs
import pytest
import shouter
from labs import LabUnderTest
from model_hub import model_hub

from labctl import process
from labctl.config.lab import LabFile, find_lab
from labctl.config.models import ModelSource
from labctl.config.recipe import EngineChoice
from labctl.errors import (
    BoardBusy,
    BoardError,
    BoardRebooted,
    ConfigError,
    LeaseLost,
    LinkError,
    ProgramFailed,
)
from labctl.evaluation.servers.started import ServerRequest, StartedEndpoint, started_endpoint
from labctl.records.board import Execution
from labctl.retry import wait_until
from labctl.runs.observer import Observer
from labctl.transport.base import OpenOptions
from labctl.transport.built_in import TRANSPORTS
from labctl.virtual import fault_script as f
from labctl.virtual.control import Control

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

SUPPORT = Path(__file__).parents[1] / "support"
LOCAL = ModelSource(file="models/tiny.gguf")


@pytest.fixture
def shouting(
    native_lab: LabUnderTest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> LabUnderTest:
    """A lab with a virtual board of this host's kind, and the fake server's engine."""
    site = shouter.install_shouter(tmp_path / "site")
    shouter.give_shouter(native_lab.root)
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setenv("PYTHONPATH", f"{site}:{SUPPORT}")
    return native_lab


def lab_file(lab: LabUnderTest) -> LabFile:
    return find_lab(lab.root, TRANSPORTS)


def start(
    lab: LabUnderTest,
    *,
    on_board: bool,
    target: str | None = None,
    model: ModelSource = LOCAL,
    **parameters: Any,
) -> AbstractContextManager[StartedEndpoint]:
    found = lab_file(lab)
    board = found.board("vb")
    request = ServerRequest(
        name="loud",
        model="tiny",
        models={"tiny": model},
        parameters=parameters,
        max_seconds=300,
        board=board if on_board else None,
        engine=EngineChoice(name="shouter", task="serve"),
        api="openai-chat",
        target=target,
    )
    return started_endpoint(
        request,
        found,
        lab.root / "logs",
        Observer(),
        lambda: board.transport.open(OpenOptions()),
    )


def say(started: StartedEndpoint, text: str) -> str:
    answer = httpx.post(f"{started.address}/say", json={"prompt": text}, timeout=30)
    said: str = answer.json()["text"]
    return said


def jobs(lab: LabUnderTest) -> list[Path]:
    return sorted(Path(lab.board.workdir, "jobs").glob("*"))


def servers_running(lab: LabUnderTest) -> list[int]:
    """Processes of the fake server's program, wherever they were started."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
            marked = str(lab.root).encode() in (entry / "environ").read_bytes()
        except OSError:
            continue
        if (
            b"--port" in words
            and any(word.endswith(b"fake_server.py") for word in words)
            and marked
        ):
            found.append(int(entry.name))
    return found


@pytest.mark.parametrize("on_board", [False, True])
def test_a_server_is_started_described_and_stopped(shouting: LabUnderTest, on_board: bool) -> None:
    with start(shouting, on_board=on_board, load=0.3) as started:
        assert [say(started, text) for text in ("one", "zwei")] == ["ONE", "ZWEI"]
        assert started.served_name.startswith("labctl-")
        started.check()
        record = started.record
        assert len(servers_running(shouting)) == 1
    assert (record.name, record.api, record.model) == ("loud", "openai-chat", "tiny")
    assert record.sha256_proven
    assert (record.address, record.served_name) == (None, None)
    assert record.server == "shouter 1.0"
    assert record.template_sha256 == sha256(b"{{ shout }}").hexdigest()
    assert record.board == ("vb" if on_board else None)
    assert record.execution is Execution.NATIVE_HOST
    assert record.parameters == {"load": 0.3, "stubborn": False}
    model = shouting.root / "models" / "tiny.gguf"
    assert started.model.sha256 == sha256(model.read_bytes()).hexdigest()
    assert servers_running(shouting) == []
    assert jobs(shouting) == [] or not on_board
    assert (shouting.root / "logs" / "1" / "stderr").is_file()


def test_an_interrupt_stops_it_too(shouting: LabUnderTest) -> None:
    for on_board in (False, True):
        with pytest.raises(KeyboardInterrupt), start(shouting, on_board=on_board):
            raise KeyboardInterrupt
        assert servers_running(shouting) == []


def test_one_that_ends_before_it_is_ready_leaves_its_last_words(shouting: LabUnderTest) -> None:
    with pytest.raises(ProgramFailed) as failed, start(shouting, on_board=True, die_on_load=3):
        pass
    assert "no such model" in (failed.value.details or "")
    assert "no such model" in (shouting.root / "logs" / "1" / "stderr").read_text()
    assert jobs(shouting) == []


def test_the_death_of_a_server_is_told(shouting: LabUnderTest) -> None:
    with start(shouting, on_board=True) as started:
        with pytest.raises(httpx.HTTPError):
            say(started, "die")
        assert wait_until(lambda: servers_running(shouting) == [], timeout=30, interval=0.05)
        with pytest.raises(ProgramFailed, match="SIGSEGV"):
            wait_until(lambda: started.check() is not None, timeout=30, interval=0.1)
        started.restart()
        assert say(started, "again") == "AGAIN"
    assert "about to crash" in (shouting.root / "logs" / "1" / "stderr").read_text()
    assert (shouting.root / "logs" / "2" / "stderr").is_file()


def test_the_address_outlives_the_link(shouting: LabUnderTest) -> None:
    control = Control(shouting.board.directory)
    with start(shouting, on_board=True) as started:
        address = started.address
        assert say(started, "before") == "BEFORE"
        control.add(f.Drop(on="forward"))
        with pytest.raises(httpx.TransportError):
            say(started, "lost")
        assert say(started, "after") == "AFTER"
        assert started.address == address
        started.check()


def test_a_board_that_restarts_is_no_fault_of_the_server(shouting: LabUnderTest) -> None:
    with start(shouting, on_board=True) as started:
        Control(shouting.board.directory).add(f.Reboot(on="now"))

        def noticed() -> bool:
            started.check()
            return False

        with pytest.raises(BoardRebooted):
            wait_until(noticed, timeout=60, interval=0.1)
        started.restart()
        assert say(started, "again") == "AGAIN"
        assert len(jobs(shouting)) == 1
    assert jobs(shouting) == []


def test_a_supervisor_that_was_killed_is_no_fault_of_the_server(shouting: LabUnderTest) -> None:
    with start(shouting, on_board=True) as started:
        control = Control(shouting.board.directory)
        control.add(f.KillProcesses(on="now"))

        def noticed() -> bool:
            started.check()
            return False

        with pytest.raises(BoardError, match="the agent was killed on the board"):
            wait_until(noticed, timeout=60, interval=0.1)
        killed = wait_until(lambda: control.states()[0].fired == 1, timeout=60, interval=0.1)
        assert killed  # all of them: a new process is not among them
        started.restart()
        assert say(started, "again") == "AGAIN"
    assert jobs(shouting) == []


def test_a_board_that_another_takes_is_lost(shouting: LabUnderTest) -> None:
    with start(shouting, on_board=True) as started:
        lease = Path(shouting.board.workdir, "lease")
        taken = json.loads(lease.read_text())
        lease.write_text(json.dumps({**taken, "epoch": taken["epoch"] + 1, "token": "other"}))

        def noticed() -> bool:
            started.check()
            return False

        with pytest.raises(LeaseLost):
            wait_until(noticed, timeout=60, interval=0.1)


def test_nothing_is_fetched_for_a_server_whose_board_is_off_or_in_use(
    shouting: LabUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with model_hub((shouting.root / "models" / "tiny.gguf").read_bytes() + bytes(9)) as hub:
        source = {"address": f"{hub.address}/tiny.gguf", "sha256": hub.sha256}
        model = ModelSource.model_validate({"url": source})
        with start(shouting, on_board=True), pytest.raises(BoardBusy):
            start(shouting, on_board=True, model=model).__enter__()
        shouting.board.process.kill()
        shouting.board.process.wait()
        with pytest.raises(LinkError), start(shouting, on_board=True, model=model):
            pass
        assert hub.requests == []


def test_a_board_serves_one_model_at_a_time(shouting: LabUnderTest) -> None:
    with (
        start(shouting, on_board=True),
        pytest.raises(BoardBusy, match="board vb is in use"),
        start(shouting, on_board=True),
    ):
        pass


def test_what_cannot_be_in_memory_is_refused_before_anything_is_sent(
    shouting: LabUnderTest,
) -> None:
    with (
        pytest.raises(ConfigError, match=r"loud does not fit: loud: .* KV cache"),
        start(shouting, on_board=True, anonymous_bytes=1 << 50),
    ):
        pass
    assert servers_running(shouting) == []
    assert list(Path(shouting.board.workdir, "store").glob("*.name")) != []  # the agent alone
    assert "tiny.gguf" not in {
        path.read_text().strip() for path in Path(shouting.board.workdir, "store").glob("*.name")
    }


def test_a_program_of_another_machine_is_refused(shouting: LabUnderTest) -> None:
    for on_board, where in ((False, "this host"), (True, "board vb, a host-")):
        with (
            pytest.raises(ConfigError, match=f"programs for target rk3588 do not run on {where}"),
            start(shouting, on_board=on_board, target="rk3588"),
        ):
            pass


CONTROLLER = """\
import sys, time
from pathlib import Path
sys.path[:0] = sys.argv[3:]
import test_started_endpoints as t
from labs import LabUnderTest
lab = LabUnderTest(Path(sys.argv[1]), None)
with t.start(lab, on_board=sys.argv[2] == "board") as started:
    print(started.address, flush=True)
    time.sleep(600)  # until it is killed
"""


@contextmanager
def controller(lab: LabUnderTest, where: str) -> Iterator[str]:
    """A labctl of its own that serves, until it is killed at the end."""
    folders = (Path(__file__).parent, Path(labs.__file__).parent)
    argv = [sys.executable, "-c", CONTROLLER, lab.root, where, *folders]
    running = process.start(argv, env=os.environ, stderr=None)
    try:
        assert running.stdout is not None
        address = running.stdout.readline().decode().strip()
        assert address.startswith("http://127.0.0.1:")
        yield address
    finally:
        running.kill()
        running.communicate()


def test_a_killed_controller_leaves_nothing_on_this_host(shouting: LabUnderTest) -> None:
    with controller(shouting, "host") as address:
        assert httpx.get(f"{address}/ready").status_code == 200
        assert len(servers_running(shouting)) == 1
    assert wait_until(lambda: servers_running(shouting) == [], timeout=30, interval=0.05)


def test_a_killed_controllers_server_is_cleared_from_the_board_by_the_next(
    shouting: LabUnderTest,
) -> None:
    with controller(shouting, "board"):
        (left,) = jobs(shouting)
        (pid,) = servers_running(shouting)
    assert servers_running(shouting) == [pid]  # a job of the agent's outlives its controller
    with start(shouting, on_board=True) as started:
        assert say(started, "mine") == "MINE"
        assert left not in jobs(shouting)
        assert wait_until(lambda: pid not in servers_running(shouting), timeout=30, interval=0.05)
    assert jobs(shouting) == []
    assert servers_running(shouting) == []
