"""A pull request's recipe on a board: where it may run, and what is found out afterwards."""

import hashlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import forked
import pytest
from agent_builds import native_agent
from bare_board import TARGET, BareBoard
from labs import said, virtual_board_process, write_devices
from wrapped_transport import WrappedTransport

from labctl import process
from labctl.config.lab import find_lab
from labctl.errors import BoardOutOfService, ConfigError
from labctl.farm.untrusted_run import run_untrusted
from labctl.retry import wait_until
from labctl.runs.inputs.prepare import read_recipe
from labctl.runs.inputs.untrusted_recipe import Workspace
from labctl.runs.observer import Observer
from labctl.runs.run import RunRequest
from labctl.state.health import NOT_LOOKED_THROUGH, BoardHealth, Health, Healths
from labctl.state.job import Job
from labctl.state.state import lab_state
from labctl.transport.base import CommandResult, Transport
from labctl.transport.built_in import TRANSPORTS
from labctl.transport.hdc import HdcTcpConfig
from labctl.virtual.board import VirtualBoard, serving

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200)]

RECIPE = f"""\
name: pull
target: {TARGET}
engine:
  name: command
  program: {{file: tool}}
  arguments: []
  tokens: {{stream: stdout, each: line}}
models: {{none: {{file: any.bin}}}}
max_time: 5m
"""
GOOD = "#!/bin/sh\nfor n in 1 2 3; do echo token; sleep 0.1; done\n"
#: Whatever a program with all rights may do to what labctl keeps on the board.
CHANGES_THE_STORE = GOOD + 'for f in ../../store/*; do [ -x "$f" ] || echo more >>"$f"; done\n'
#: What is looked through is not there; it comes back, changed, once nobody looks.
HIDES_THE_STORE = GOOD + "mkdir ../../away; mv ../../store/* ../../away; true\n"
CHANGES_THE_AGENT = GOOD + (
    'for f in ../../store/*.name; do grep -q agent "$f" && a=${f%.name}; done\n'
    'printf "#!/bin/sh\\necho the agent lies\\n" >"$a.new"; chmod 755 "$a.new"; mv "$a.new" "$a"\n'
)


class PullRequest:
    """A lab, a board for untrusted recipes, and a checkout apart from it."""

    def __init__(self, root: Path):
        self.lab, self.folder = root / "lab", root / "checkout"
        for folder in (self.lab, self.folder):
            folder.mkdir(parents=True)
        self.address = self.workdir = ""
        (self.folder / "recipe.yaml").write_text(RECIPE)
        (self.folder / "any.bin").write_bytes(b"\0" * 1000)
        self.program(GOOD)

    def program(self, text: str) -> None:
        (self.folder / "tool").write_text(text)

    def labctl(self, *words: str) -> process.Completed:
        return forked.run(("--lab", str(self.lab), *words), cwd=self.folder, timeout=500)

    def run(self, *words: str) -> process.Completed:
        return self.labctl("run", "recipe.yaml", "--untrusted", *words)

    def mark(self) -> None:
        path = self.lab / "devices.yaml"
        path.write_text(path.read_text() + "    untrusted: true\n")

    def _healths(self) -> Healths:
        return lab_state(find_lab(self.lab, TRANSPORTS)).health

    def job(self, name: str) -> Job:
        return lab_state(find_lab(self.lab, TRANSPORTS)).jobs.find(name)

    def health(self) -> BoardHealth:
        return self._healths().get("vb")

    def record(self) -> dict[str, object]:
        (path,) = self.lab.glob("runs/*/run.json")
        found: dict[str, object] = json.loads(path.read_text())
        return found


@pytest.fixture
def pull(tmp_path: Path, private_state: Path) -> Iterator[PullRequest]:
    native_agent()
    pull = PullRequest(tmp_path)
    with BareBoard(tmp_path / "board").served() as served:
        write_devices(pull.lab, served.address, served.workdir, target=TARGET)
        pull.address, pull.workdir = served.address, served.workdir
        yield pull


def test_only_on_a_board_that_is_marked(pull: PullRequest) -> None:
    done = pull.run()
    assert done.exit_status == 2
    assert "takes no untrusted recipes" in said(done)
    assert not list(pull.lab.glob("runs/*"))


def test_a_good_one_leaves_a_good_board_and_no_baseline(pull: PullRequest) -> None:
    pull.mark()
    done = pull.run()
    assert done.exit_status == 0, said(done)
    record = pull.record()
    assert (record["untrusted_recipe"], record["untrusted_board"]) == (True, True)
    done = pull.labctl("baseline", "set", "mine", "latest")
    assert done.exit_status == 2
    assert "takes untrusted recipes" in said(done)
    (probe,) = pull.lab.rglob("probe-*.json")
    assert json.loads(probe.read_text())["memory"]
    # It has no history of probes that would show more.
    assert pull.health().may_work
    assert "not looked through" not in (pull.health().reason or "")
    done = pull.labctl("resume", "latest")
    assert done.exit_status == 2


def test_a_job_of_the_queue_outlives_its_checkout(pull: PullRequest) -> None:
    """The queue has the files as they were; its run is confined and its board looked through."""
    refused = pull.run("--detach")
    assert refused.exit_status == 2
    assert "takes no untrusted recipes" in said(refused)
    pull.mark()
    done = pull.run("--detach", "--on", f"target={TARGET}")
    assert done.exit_status == 0, said(done)
    job = done.text.strip()
    pull.program("not what was submitted")
    (pull.folder / "any.bin").unlink()
    assert wait_until(lambda: pull.job(job).ended_at is not None, timeout=400, interval=0.5)
    log = (pull.lab / "worker.log").read_text()
    assert (pull.job(job).kind, pull.job(job).exit_status) == ("untrusted", 0), log
    record = pull.record()
    assert (record["untrusted_recipe"], record["untrusted_board"]) == (True, True)
    assert record["id"] == pull.job(job).run
    assert len(list(pull.lab.rglob("probe-*.json"))) == 1
    assert pull.health().may_work
    assert not list((pull.lab / "untrusted").iterdir())


def run_here(pull: PullRequest, connect: Callable[[], Transport]) -> None:
    """Run the recipe in this process, with links of the test's own."""
    lab = find_lab(pull.lab, TRANSPORTS)
    path = pull.folder / "recipe.yaml"
    recipe = read_recipe(path, lab_root=pull.lab, workspace=Workspace.of(path, pull.lab))
    run_untrusted(RunRequest(recipe, lab.board("vb"), lab), lambda _board: connect(), Observer())


def test_a_board_that_becomes_another_while_a_model_is_fetched_is_refused(
    pull: PullRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its model is not hashed yet: the board is let go meanwhile, and held again."""
    pull.mark()
    monkeypatch.chdir(pull.folder)
    with serving(VirtualBoard("other", tmp_path / "other")) as (other,):
        links = iter([pull.address, other.address, other.address])
        with pytest.raises(ConfigError, match="is not real hardware"):
            run_here(pull, lambda: HdcTcpConfig(address=next(links)).open())
        assert next(links) == other.address
    assert not list(Path(pull.workdir, "jobs").glob("*/started.json"))
    assert pull.health().may_work


def test_what_others_remove_while_a_model_is_fetched_is_no_damage(
    pull: PullRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    pull.mark()
    monkeypatch.chdir(pull.folder)
    content = b"of another user"
    item = Path(pull.workdir, "store", hashlib.sha256(content).hexdigest())
    item.parent.mkdir(exist_ok=True)
    item.write_bytes(content)
    links = 0

    def connect() -> Transport:
        nonlocal links
        links += 1
        if links == 2:
            item.unlink()
        return HdcTcpConfig(address=pull.address).open()

    run_here(pull, connect)
    assert not item.exists()
    assert pull.health().may_work


class BeforeTake(WrappedTransport):
    """A link on which something happens just before the board is taken."""

    def __init__(self, inner: Transport, happens: Callable[[], None]):
        super().__init__(inner)
        self._happens = happens

    def run(self, command: str, *, timeout: float, separate_stderr: bool = False) -> CommandResult:
        if " take --lease " in command:
            self._happens()
        return super().run(command, timeout=timeout, separate_stderr=separate_stderr)

    def close(self) -> None:
        self.inner.close()


@pytest.mark.soak
def test_what_others_remove_before_the_board_is_taken_is_no_damage(
    pull: PullRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store is known as it is once nobody else can change it."""
    pull.mark()
    monkeypatch.chdir(pull.folder)
    content = b"of another user"
    item = Path(pull.workdir, "store", hashlib.sha256(content).hexdigest())
    item.parent.mkdir(exist_ok=True)
    item.write_bytes(content)

    def connect() -> Transport:
        link = HdcTcpConfig(address=pull.address).open()
        return BeforeTake(link, lambda: item.unlink(missing_ok=True))

    run_here(pull, connect)
    assert not item.exists()
    assert pull.health().may_work


def test_a_board_that_turns_bad_while_a_model_is_fetched_is_not_used(
    pull: PullRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    pull.mark()
    monkeypatch.chdir(pull.folder)
    links = 0

    def connect() -> Transport:
        nonlocal links
        links += 1
        if links == 2:
            pull._healths().set("vb", Health.BAD, reason="it smokes", by="ann@desk")
        return HdcTcpConfig(address=pull.address).open()

    with pytest.raises(BoardOutOfService, match="the health of board vb is bad: it smokes"):
        run_here(pull, connect)
    assert not list(Path(pull.workdir, "jobs").glob("*/started.json"))
    assert pull.health().reason == "it smokes"


#: It shows nothing of its job: no environment, folder, open file or session.
LEAVES_A_PROCESS = GOOD + "cd /; (setsid env -i /bin/sleep 987653 <&- >&- 2>&- &); kill -9 $PPID\n"


def test_a_process_that_outlives_its_run_is_ended_by_the_look(
    pull: PullRequest, tmp_path: Path
) -> None:
    pull.mark()
    (tmp_path / "board" / ".labctl-fakes" / "no_pid_namespaces").write_text("1\n")
    pull.program(LEAVES_A_PROCESS)
    done = pull.run()
    assert done.exit_status == 3, said(done)
    assert "processes of earlier jobs were ended on the board: " in said(done)
    assert "(sleep)" in said(done)
    words = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
    assert not [word for word in words if b"987653" in word.split(b"\0")]


@pytest.mark.soak
def test_a_batch_is_confined_too(pull: PullRequest) -> None:
    pull.mark()
    (pull.folder / "plan.yaml").write_text("name: pulls\njobs: [{recipe: recipe.yaml}]\n")
    done = pull.labctl("batch", "--untrusted", "plan.yaml", "--json")
    assert done.exit_status == 0, said(done)
    record = pull.record()
    assert (record["untrusted_recipe"], record["untrusted_board"]) == (True, True)
    assert len(list(pull.lab.rglob("probe-*.json"))) == 1
    assert pull.health().may_work


@pytest.mark.parametrize(
    "attack",
    [
        pytest.param(CHANGES_THE_STORE, id="store"),
        pytest.param(HIDES_THE_STORE, id="hidden", marks=pytest.mark.soak),
        pytest.param(CHANGES_THE_AGENT, id="agent", marks=pytest.mark.soak),
    ],
)
def test_a_changed_board_is_quarantined(pull: PullRequest, attack: str) -> None:
    pull.mark()
    pull.program(attack)
    done = pull.run()
    # Without its agent the run itself ends first.
    assert done.exit_status == (1 if attack == CHANGES_THE_STORE else 3), said(done)
    assert "is quarantined: an untrusted recipe changed" in said(done)
    health = pull.health()
    assert health.health == "bad"
    assert health.evidence["damaged"]
    again = pull.run()
    assert again.exit_status == 3, said(again)


def test_a_board_that_was_not_looked_through_takes_no_other_work(pull: PullRequest) -> None:
    pull.mark()
    pull.program(GOOD.replace("0.1", "60"))
    running = process.start(
        [sys.executable, "-m", "labctl", "--lab", pull.lab, "run", "recipe.yaml", "--untrusted"],
        cwd=pull.folder,
        env=os.environ,
    )
    (pull.lab / "recipe.yaml").write_text(RECIPE)
    for name in ("tool", "any.bin"):
        (pull.lab / name).write_bytes((pull.folder / name).read_bytes())
    try:
        assert wait_until(lambda: pull.health().health == "bad", timeout=120, interval=0.1)
        # While it runs the board is in use, also for the next untrusted recipe.
        for words in (("recipe.yaml", "--untrusted"), (str(pull.lab / "recipe.yaml"),)):
            done = pull.labctl("run", *words, "--no-wait")
            assert done.exit_status == 3, said(done)
            assert "in use: an untrusted recipe has it" in said(done)
        assert pull.health().reason == NOT_LOOKED_THROUGH
    finally:
        running.kill()
        running.communicate()
    assert "not looked through" in (pull.health().reason or "")
    done = pull.labctl("run", str(pull.lab / "recipe.yaml"))
    assert done.exit_status == 3, said(done)
    assert "not looked through" in said(done)


def test_an_emulated_board_is_a_host(tmp_path: Path, private_state: Path) -> None:
    native_agent()
    pull = PullRequest(tmp_path)
    with virtual_board_process(tmp_path / "board", "--target", TARGET) as board:
        write_devices(pull.lab, board.address, board.workdir, target=TARGET)
        pull.mark()
        done = pull.run()
    assert done.exit_status == 2
    assert "on the host of its emulator" in said(done)
    assert not list(pull.lab.glob("runs/*"))
