"""A board is looked at before anything is downloaded for it, and let go while that comes."""

import hashlib
import json
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from labs import RECIPE, LabUnderTest, blamed, said
from model_hub import Hub, model_hub

from labctl.config.lab import find_lab
from labctl.errors import ConfigError
from labctl.folders import cache_dir
from labctl.records.events import Fetch
from labctl.runs.board.lab_lease import BoardUse
from labctl.runs.board.opening import WayToBoard
from labctl.runs.board.session import hold_board
from labctl.runs.inputs.prepare import find_files, read_recipe
from labctl.runs.observer import Observer
from labctl.runs.record.directory import RunDirectory
from labctl.runs.record.event_log import EVENTS, EventReader
from labctl.runs.resume import ResumeRequest, resume
from labctl.transport.base import Transport
from labctl.transport.built_in import TRANSPORTS
from labctl.transport.hdc import HdcTcpConfig

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

SHORT = ("--set", "repeats=2", "--set", "tokens=60")
#: What a header is looked for in.
BEGINNING_BYTES = 1 << 20


@pytest.fixture
def hub(lab: LabUnderTest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A server with a model that is in no cache."""
    content = (lab.root / "models" / "tiny.gguf").read_bytes()
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with model_hub(content + hashlib.sha256(str(lab.root).encode()).digest()) as server:
        server.content += bytes(4 * BEGINNING_BYTES)
        lab.recipe(
            RECIPE.replace(
                "{file: models/tiny.gguf}",
                f'{{url: {{address: "{server.address}/tiny.gguf", sha256: {server.sha256}}}}}',
            )
        )
        yield server
        forget(server)


def forget(hub: Hub) -> None:
    """Remove the model from this user's cache."""
    shutil.rmtree(cache_dir() / "models" / hub.sha256, ignore_errors=True)


def switch_off(lab: LabUnderTest) -> None:
    lab.board.process.kill()
    lab.board.process.wait()


@pytest.mark.parametrize("command", ["run", "deploy"])
def test_nothing_is_fetched_for_a_board_that_is_off(
    lab: LabUnderTest, hub: Hub, command: str
) -> None:
    switch_off(lab)
    blamed(lab.run(command, "tiny"), 3, "infra", "Connection refused")
    assert (hub.requests, hub.sent_bytes) == ([], 0)


@contextmanager
def used_by_another(lab: LabUnderTest) -> Iterator[None]:
    """The board is locked, as by another labctl of this host."""
    found = find_lab(lab.root, TRANSPORTS)
    link = HdcTcpConfig(address=lab.board.address).open()
    with link, hold_board(found.board(None), link, found, BoardUse("test")):
        yield


@pytest.mark.parametrize("command", ["run", "deploy"])
def test_nothing_is_fetched_for_a_board_in_use(lab: LabUnderTest, hub: Hub, command: str) -> None:
    with used_by_another(lab):
        blamed(lab.run(command, "--no-wait", "tiny"), 3, "infra", "board vb is in use")
    assert (hub.requests, hub.sent_bytes) == ([], 0)


@pytest.mark.parametrize("command", ["run", "deploy"])
def test_a_board_is_looked_at_again_after_the_fetch(
    lab: LabUnderTest, hub: Hub, command: str
) -> None:
    hub.gate.clear()
    running = lab.start(command, "--no-wait", "tiny")
    running.waiting_for(lambda: hub.is_asked_for_all)
    with used_by_another(lab):
        hub.gate.set()
        blamed(running.finish(), 3, "infra", "board vb is in use")
    store = Path(lab.board.workdir, "store")
    assert not (store / hub.sha256).exists()
    assert list(lab.root.glob("runs/*/run.json")) == []


def test_nothing_is_fetched_for_a_run_whose_board_is_off_when_it_goes_on(
    lab: LabUnderTest, hub: Hub
) -> None:
    running = lab.start("run", "tiny", *SHORT)
    running.waiting_for(lambda: lab.is_under_way(1))
    running.process.send_signal(signal.SIGINT)
    assert running.finish().exit_status == 130
    switch_off(lab)
    forget(hub)
    hub.requests.clear()
    blamed(lab.run("resume"), 3, "infra", "Connection refused")
    assert hub.requests == []


def test_what_a_board_has_no_room_for_is_refused_by_its_header_and_size(
    lab: LabUnderTest, hub: Hub
) -> None:
    hub.sent_bytes = 0
    devices = lab.root / "devices.yaml"
    devices.write_text(devices.read_text() + "    limits: {storage: 10MB}\n")
    refused = lab.run("run", "tiny")
    blamed(refused, 2, "config", "limits.storage is 10.0 MB")
    assert hub.sent_bytes <= BEGINNING_BYTES
    assert not hub.is_asked_for_all


def test_it_is_asked_before_a_model_is_fetched_that_does_not_fit_in_memory(
    lab: LabUnderTest, hub: Hub
) -> None:
    (lab.board.directory / ".labctl-fakes" / "memory_kb").write_text("684\n")
    refused = lab.run("deploy", "tiny")
    blamed(refused, 2, "config", "not fit in memory", "use --yes")
    assert not hub.is_asked_for_all


def test_a_model_that_the_board_has_is_not_fetched_for_it(lab: LabUnderTest, hub: Hub) -> None:
    assert lab.run("deploy", "tiny").exit_status == 0
    forget(hub)
    hub.requests.clear()
    for words in (("deploy", "--plan", "tiny"), ("deploy", "tiny")):
        done = lab.run(*words)
        assert done.exit_status == 0, said(done)
        assert not hub.is_asked_for_all
    store = lab.run("store", "verify", "--json")
    assert json.loads(store.text)[0]["damaged"] == []
    (Path(lab.board.workdir) / "store" / hub.sha256).unlink()
    done = lab.run("deploy", "tiny")
    assert done.exit_status == 0, said(done)
    assert hub.is_asked_for_all


def test_the_board_is_everybodys_while_the_model_comes(lab: LabUnderTest, hub: Hub) -> None:
    lab.recipe(name="local")
    hub.gate.clear()
    running = lab.start("run", "tiny", "--set", "repeats=1", "--set", "tokens=8")
    running.waiting_for(lambda: hub.is_asked_for_all)
    other = lab.run("deploy", "--no-wait", "local")
    assert other.exit_status == 0, said(other)
    assert not running.ended
    hub.gate.set()
    done = running.finish()
    assert done.exit_status == 0, said(done)
    (directory,) = lab.root.glob("runs/2*")
    events = list(EventReader(directory / EVENTS).read())
    kinds = list(dict.fromkeys(event.event for event in events))
    assert kinds.index("contact") < kinds.index("fetch") < kinds.index("trial")
    fetched = [e for e in events if isinstance(e, Fetch) and e.step.startswith("fetch ")]
    assert (fetched[-1].done, fetched[-1].total) == (len(hub.content), len(hub.content))


@pytest.mark.soak
def test_it_is_everybodys_while_a_local_model_is_hashed(lab: LabUnderTest) -> None:
    found = find_lab(lab.root, TRANSPORTS)
    recipe = read_recipe(Path(lab.recipe()), lab_root=lab.root)
    board, seen = found.board(None), []

    def link() -> Transport:
        return HdcTcpConfig(address=lab.board.address).open()

    use = BoardUse("test")

    class Looks(Observer):
        def step(self, step: str, done: float, total: float | None) -> None:
            if step.startswith("hash"):
                with link() as other, hold_board(board, other, found, use) as held:
                    seen.append((step, held.board.name))

    files = find_files(recipe, board, lab.root)
    with WayToBoard(board, [files], link, Looks(), found, use=use) as way:
        (prepared,) = way.prepare(way.look()).prepared
        assert seen
        content = (lab.root / "models" / "tiny.gguf").read_bytes()
        assert prepared.models["tiny"].identity.sha256 == hashlib.sha256(content).hexdigest()


def test_a_run_that_another_controller_finished_meanwhile_is_not_made_again(
    lab: LabUnderTest,
) -> None:
    running = lab.start("run", lab.recipe(), *SHORT)
    running.waiting_for(lambda: lab.is_under_way(1))
    running.process.send_signal(signal.SIGINT)
    assert running.finish().exit_status == 130
    (end,) = lab.root.glob("runs/*/end.json")
    fetches = [e for e in EventReader(end.parent / EVENTS).read() if isinstance(e, Fetch)]
    assert "hash tiny.gguf" in [event.step for event in fetches]
    found = find_lab(lab.root, TRANSPORTS)

    def connect() -> Transport:
        """Reach the board a moment after the other one came to its end."""
        end.write_text(json.dumps({**json.loads(end.read_text()), "state": "finished"}))
        return HdcTcpConfig(address=lab.board.address).open()

    request = ResumeRequest(RunDirectory(end.parent), found.board(None), found)
    with pytest.raises(ConfigError, match="is finished; nothing to resume"):
        resume(request, connect, Observer())
    assert json.loads(end.read_text())["state"] == "finished"


@pytest.mark.soak
def test_a_model_that_does_not_fit_is_told_once(lab: LabUnderTest, hub: Hub) -> None:
    (lab.board.directory / ".labctl-fakes" / "memory_kb").write_text("684\n")
    done = lab.run("run", "tiny", "--set", "repeats=1", "--set", "tokens=8")
    assert done.exit_status == 0, said(done)
    warnings = [
        line for line in said(done).splitlines() if "will not fit" in line or "killed" in line
    ]
    assert len(warnings) == 1, said(done)
    (run,) = lab.root.glob("runs/*/run.json")
    (noted,) = [note for note in json.loads(run.read_text())["plan_notes"] if note in warnings[0]]
    assert noted
