"""Every fault of a board against every operation of a host.

Each ends in the right typed error or in success with proven content, in time; nothing half-written
has a final name; no thread, descriptor or process stays.
"""

import hashlib
import os
import random
import signal
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import agent_builds
import pytest
import stored
from agent_fences import native_fence
from leaks import nothing_left

from labctl.board.agent import BoardAgent
from labctl.board.job import JobSpec
from labctl.board.store import BoardStore, StoredObject
from labctl.errors import (
    BoardError,
    BoardNoSpace,
    BoardPermission,
    BoardRebooted,
    CommandTimeout,
    DeviceLost,
    IntegrityError,
    LabctlError,
    LinkRefused,
    ProgramFailed,
    ProtocolError,
    RemoteExit,
)
from labctl.hdc.host.link import interactive_shell
from labctl.hdc.host.session import Session
from labctl.retry import wait_until
from labctl.transport.base import OpenOptions, TransferOptions, Transport
from labctl.transport.directories import pull_directory, push_directory
from labctl.transport.hdc import Forwarded, HdcTcpConfig
from labctl.transport.readiness import reboot
from labctl.virtual import fault_script as f
from labctl.virtual.board import Served, VirtualBoard, serving
from labctl.virtual.fault_script import Fault, FaultScript

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("private_state")]

FILE_BYTES = 1_500_000
PATIENCE = 30.0
#: Where nothing will come: long for a board on this host, and most of this test's time.
SHORT_PATIENCE = 1.5
ECHOED_BYTES = 60_000
#: Parts whose packets are a stream of bytes.
UNNUMBERED = ("shell", "interactive", "forward", "reverse")
Outcome = type[LabctlError] | None


@dataclass
class Bench:
    """A served board and what operations need beside it."""

    board: Served
    local: Path
    content: bytes
    seed: int
    retry_timeout: float = PATIENCE
    restart_timeout: float = PATIENCE
    count: int = 0

    def connect(self) -> Transport:
        options = OpenOptions(timeout=self.retry_timeout)
        link = HdcTcpConfig(address=self.board.address).open(options)
        link.forward_seconds = min(link.forward_seconds, self.retry_timeout)
        return link

    def fresh(self, name: str) -> Path:
        """A name that no case had before."""
        self.count += 1
        return self.local / f"{name}{self.count}"

    def on_board(self, name: str) -> Path:
        self.count += 1
        return self.board.workdir / f"{name}{self.count}"

    @property
    def source(self) -> Path:
        return self.local / "source"

    @property
    def tree(self) -> Path:
        return self.local / "tree"


def shell(bench: Bench, link: Transport) -> None:
    said = link.run("echo one && sleep 0.3 && echo two", timeout=bench.retry_timeout).check()
    assert said.output == b"one\ntwo\n"


def push(bench: Bench, link: Transport) -> None:
    target = bench.on_board("push")
    link.push(bench.source, str(target), TransferOptions(timeout=bench.retry_timeout))
    assert target.read_bytes() == bench.content


def pull(bench: Bench, link: Transport) -> None:
    (bench.board.workdir / "there").write_bytes(bench.content)
    folder = bench.fresh("pulled")
    try:
        link.pull(
            f"{bench.board.workdir}/there",
            folder / "file",
            TransferOptions(timeout=bench.retry_timeout),
        )
    except LabctlError:
        assert not folder.exists() or not list(folder.iterdir())
        raise
    assert (folder / "file").read_bytes() == bench.content


def push_a_directory(bench: Bench, link: Transport) -> None:
    target = bench.on_board("tree")
    push_directory(link, bench.tree, str(target), TransferOptions(timeout=bench.retry_timeout))
    assert contents(target) == contents(bench.tree)


def pull_a_directory(bench: Bench, link: Transport) -> None:
    there = bench.board.workdir / "tree"
    if not there.exists():
        for path, data in contents(bench.tree).items():
            (there / path).parent.mkdir(parents=True, exist_ok=True)
            (there / path).write_bytes(data)
    folder = bench.fresh("pulled")
    folder.mkdir()
    try:
        pull_directory(
            link, str(there), folder / "tree", TransferOptions(timeout=bench.retry_timeout)
        )
    except LabctlError:
        assert list(folder.iterdir()) == []
        raise
    assert contents(folder / "tree") == contents(bench.tree)


def publish(bench: Bench, link: Transport) -> None:
    content = bench.content + bench.fresh("x").name.encode()
    item = StoredObject(hashlib.sha256(content).hexdigest(), len(content))
    local = bench.fresh("object")
    local.write_bytes(content)
    workdir = str(bench.board.workdir)
    store = BoardStore(link, workdir, fence=native_fence(link, workdir))
    final = Path(store.path(item.sha256))
    try:
        stored.publish(store, local, item, stall_timeout=bench.retry_timeout)
    finally:
        assert not final.exists() or final.read_bytes() == content
    assert final.exists()


def job(bench: Bench, link: Transport) -> None:
    bench.count += 1
    workdir = str(bench.board.workdir)
    agent = BoardAgent(link, str(agent_builds.native_agent()), workdir)
    script = "echo begun; sleep 0.5; echo ended"
    directory = agent.job_directory(f"job{bench.count}")
    started = agent.start(JobSpec(directory, ("/bin/sh", "-c", script), 60, 1), reattach_s=30)
    status = agent.wait(started, timeout_s=60, reattach_s=30)
    if (status.outcome, status.signal) == ("signaled", signal.SIGKILL):
        raise ProgramFailed("the job was killed")  # as a run says of it
    assert (status.outcome, status.exit_status) == ("exited", 0)
    files = agent.collect(directory, bench.fresh("job"), status=status, reattach_s=30)
    assert files["stdout"].read_bytes() == b"begun\nended\n"


def restart(bench: Bench, link: Transport) -> None:
    before = link.run("echo $LABCTL_SANDBOX", timeout=bench.retry_timeout).text.strip()
    after = reboot(link, timeout=bench.restart_timeout)
    assert after is not None
    assert after != before


def forward(bench: Bench, link: Transport) -> None:
    with echoing() as port, link.over_hdc("carry").forward("tcp:0", f"tcp:{port}") as carried:
        exchange(bench, carried)


def reverse(bench: Bench, link: Transport) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        there = free.getsockname()[1]
    rules = link.over_hdc("carry")
    with echoing() as port, rules.forward(f"tcp:{there}", f"tcp:{port}", reverse=True) as carried:
        exchange(bench, carried)


def exchange(bench: Bench, carried: Forwarded) -> None:
    """Send something through what is carried; it comes back whole, or the connection ends."""
    sent, back = bench.content[:ECHOED_BYTES], b""
    port = int(carried.listen.removeprefix("tcp:"))
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=bench.retry_timeout) as sock:
            sock.sendall(sent)
            while len(back) < len(sent) and (piece := sock.recv(1 << 16)):
                back += piece
    except TimeoutError:
        raise CommandTimeout("nothing comes") from None  # as any client of a network sees it
    except ConnectionError:
        pass
    assert sent.startswith(back)
    if len(back) < len(sent):
        raise carried.failure or DeviceLost("the connection was closed")


@contextmanager
def echoing() -> Iterator[int]:
    """A server that returns what it gets."""

    class Echo(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with suppress(OSError):
                while piece := self.request.recv(1 << 16):
                    self.request.sendall(piece)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Echo) as server:
        serving = threading.Thread(target=server.serve_forever, args=(0.02,))
        serving.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            serving.join()


def interactive(bench: Bench, link: Transport) -> None:
    with Session.connect("127.0.0.1", bench.board.port, timeout=bench.retry_timeout) as session:
        until = time.monotonic() + bench.retry_timeout
        with interactive_shell(session, timeout=bench.retry_timeout) as typed:
            typed.send(b"echo $((40 + 1)); sleep 0.2; echo $((40 + 2))\nexit\n")
            said = b""
            while time.monotonic() < until:
                piece = typed.receive(until - time.monotonic())
                if piece is None:
                    break
                said += piece
            else:
                raise CommandTimeout("the shell did not end")
    if b"42" not in said:
        raise DeviceLost("the shell ended before its time")  # a person sees that


#: What each operation is made of, on the link: first that which is its own.
OPERATIONS: dict[Callable[[Bench, Transport], None], tuple[f.Kind, ...]] = {
    shell: ("shell", "handshake"),
    interactive: ("interactive",),
    push: ("send", "shell"),
    pull: ("receive", "shell"),
    push_a_directory: ("send", "shell"),
    pull_a_directory: ("receive", "shell"),
    publish: ("send", "shell", "handshake"),
    job: ("shell", "receive"),
    forward: ("forward",),
    reverse: ("reverse",),
    restart: ("reboot", "shell"),
}


@dataclass(frozen=True)
class Case:
    """A fault and what may come of it; None is success."""

    fault: Fault
    outcomes: tuple[Outcome, ...]
    silent: bool = False
    later: bool = False
    unrestarted: bool = False
    """A board that is told to restart does not."""


#: What may come of an operation whatever the fault is. A job does not need the link, and whether a
#: board restarted is told from its boot id alone.
OWN_OUTCOMES: dict[str, tuple[Outcome, ...]] = {
    "job": (None,),
    "restart": (None, BoardError),
}
LOST = (DeviceLost, LinkRefused)
CASES = {
    "drop": Case(f.Drop(), LOST, unrestarted=True),
    "drop later": Case(f.Drop(after_bytes=30), LOST, later=True),
    "freeze": Case(f.Freeze(), (CommandTimeout,), silent=True),
    "short freeze": Case(f.Freeze(lasting="300ms"), (None,)),
    "hang up": Case(f.HangUp(), (DeviceLost,)),
    "hang up later": Case(f.HangUp(after_bytes=30), (DeviceLost,), later=True),
    "garbage": Case(f.Garbage(), (ProtocolError,)),
    "half frame": Case(f.HalfFrame(), (CommandTimeout, DeviceLost), silent=True),
    "delay": Case(f.Delay(by="50ms", times=None), (None,)),
    "late packet": Case(f.Delay(by="200ms", packet=2, direction="in"), (None,), later=True),
    "slow": Case(f.Slow(rate=5_000_000, times=None), (None,)),
    "double": Case(f.Duplicate(), (None, ProtocolError, DeviceLost)),
    "double later": Case(f.Duplicate(packet=3), (None, ProtocolError, DeviceLost), later=True),
    "double from host": Case(f.Duplicate(direction="in"), (None, ProtocolError, DeviceLost)),
    "truncate": Case(f.Truncate(after_bytes=20), (DeviceLost, IntegrityError, BoardError)),
    "corrupt": Case(f.Corrupt(after_bytes=2), (IntegrityError,)),
    "lie": Case(f.Lie(), (IntegrityError, BoardError), unrestarted=True),
    "no space": Case(f.NoSpace(after_bytes=3), (BoardNoSpace,)),
    "read only": Case(f.ReadOnly(), (BoardPermission,)),
    "denied": Case(f.PermissionDenied(), (BoardPermission,)),
    "reboot": Case(f.Reboot(after="20ms"), (*LOST, BoardRebooted, BoardError, None)),
    "kill": Case(f.KillProcesses(after="20ms"), (DeviceLost, BoardError, None)),
    "oom": Case(
        f.OomKill(after="20ms"),
        # On a busy host the job itself may have begun by then.
        (RemoteExit, DeviceLost, BoardError, IntegrityError, ProgramFailed, None),
    ),
    "throttle": Case(f.Throttle(within="200ms"), (None,)),
    "thermal zone": Case(f.ThermalZone(reads="78"), (None,)),
    "clock": Case(f.ClockJump(seconds=-86_400), (None,)),
}


def cases() -> list[object]:
    found = []
    for name, case in CASES.items():
        for operation, parts in OPERATIONS.items():
            for part in parts:
                if part in case.fault.possible and says_something(case, operation.__name__, part):
                    label = f"{name}-{operation.__name__}-{part}"
                    marks = () if part == parts[0] else (pytest.mark.soak,)
                    found.append(pytest.param(operation, part, case, id=label, marks=marks))
    return found


def says_something(case: Case, operation: str, part: str) -> bool:
    """Not what nobody could notice, or what could not strike."""
    # A packet of output that comes twice looks like output: hdc numbers nothing, TCP repeats none.
    doubled = isinstance(case.fault, f.Duplicate) and part in UNNUMBERED
    if isinstance(case.fault, f.OomKill) and (operation, part) == ("pull_a_directory", "shell"):
        return False  # none of its commands runs for so long
    # These have a patience of their own, which is long.
    patient = case.silent and (operation == "job" or (operation, part) == ("publish", "shell"))
    # Not so many packets, not so many bytes.
    short = case.later and (
        part == "reboot" or (part == "shell" and isinstance(case.fault, f.Delay))
    )
    # Nothing runs on the board that memory could be taken from.
    idle = isinstance(case.fault, f.OomKill) and part != "shell"
    return not (doubled or patient or short or idle)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.fixture(
    scope="module",
    params=[0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in (1, 2))],
    ids=lambda seed: f"seed {seed}",
)
def bench(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Bench]:
    local = tmp_path_factory.mktemp("matrix")
    content = random.Random(request.param).randbytes(FILE_BYTES)
    (local / "source").write_bytes(content)
    # Small files are read with a command; a larger one is received as a file.
    for name, size in (("one", 3000), ("two", 3000), ("sub/three", 200_000)):
        path = local / "tree" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes((name.encode() * size)[:size])
    script = FaultScript(seed=request.param, faults=())
    with serving(VirtualBoard("b", local / "board", faults=script)) as (board,):
        (board.workdir / "store").mkdir()
        yield Bench(board, local, content, request.param)


@pytest.mark.parametrize(("operation", "part", "case"), list(cases()))
def test_a_fault_ends_in_its_error_or_in_proven_success(
    bench: Bench,
    operation: Callable[[Bench, Transport], None],
    part: f.Kind,
    case: Case,
) -> None:
    faults = bench.board.faults
    bench.retry_timeout = SHORT_PATIENCE if case.silent else PATIENCE
    bench.restart_timeout = SHORT_PATIENCE if case.unrestarted else PATIENCE
    began = time.monotonic()
    outcome: LabctlError | None = None
    with nothing_left(bench.board.directory):
        injected = faults.add(struck_at(case, part, bench.seed))
        try:
            with bench.connect() as link:
                operation(bench, link)
        except LabctlError as error:
            outcome = error
        finally:
            took = time.monotonic() - began
            struck = wait_until(lambda: injected.fired > 0, timeout=120, interval=0.01)
            faults.clear()
            wait_until_it_answers(bench)
    assert struck, f"{injected.state} {outcome!r}"
    assert took < PATIENCE + 2
    allowed = (*case.outcomes, *OWN_OUTCOMES.get(operation.__name__, ()))
    assert (type(outcome) if outcome else None) in allowed, repr(outcome)
    if outcome is not None:
        assert outcome.message
        assert os.fspath(bench.local) not in (outcome.hint or "")


def struck_at(case: Case, part: f.Kind, seed: int) -> Fault:
    """The case's fault; where it begins is left to chance, but for the first seed."""
    fault = case.fault.model_copy(update={"on": part})
    if seed == 0 or not fault.after_bytes:
        return fault
    chance = random.Random(f"{seed} {fault} {part}")
    return fault.model_copy(update={"after_bytes": chance.randrange(1, fault.after_bytes + 1)})


def wait_until_it_answers(bench: Bench) -> None:
    """A board that restarts does so meanwhile, and what ran on it is gone."""

    def answers() -> bool:
        with HdcTcpConfig(address=bench.board.address).open(OpenOptions(timeout=30)) as link:
            return link.is_alive()

    assert wait_until(answers, timeout=120, interval=0.02)
