import filecmp
import itertools
import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import agent_builds
import pytest
from hdc_server import Board, stand_in_server
from interleaved import medians, show
from slow_link import delayed_link
from virtual_process import virtual_board_process

from labctl.board.store import BoardStore
from labctl.deploy.plan import agent_hash, describe, plan
from labctl.deploy.send import deploy
from labctl.hdc.host.files import Sending, receive_file, send_file
from labctl.hdc.host.link import shell
from labctl.hdc.host.session import Session
from labctl.transport import directories
from labctl.transport.base import TransferOptions, Transport
from labctl.transport.directories import pull_directory, push_directory
from labctl.transport.file_transfer import BoardHash
from labctl.transport.hdc import HdcServerConfig, HdcTcpConfig
from labctl.virtual.board import VirtualBoard, serving

pytestmark = pytest.mark.bench

FILE_BYTES = 1 << 30
PROVEN_BYTES = 600 << 20


def test_shell_round_trip(tmp_path: Path) -> None:
    with (
        serving(VirtualBoard("b", tmp_path)) as (board,),
        HdcTcpConfig(address=board.address).open() as transport,
    ):
        session = Session.connect(board.host, board.port, timeout=10)
        program = str(board.directory / "system/bin/sh")
        found = medians(
            300,
            {
                "fork and exec": lambda: subprocess.run([program, "-c", ":"], check=True),
                "hdc shell": lambda: list(shell(session, ":", timeout=10)),
                "with exit status": lambda: transport.run(":", timeout=10),
            },
        )
        session.close()
    show("shell round trip", found, "fork and exec")
    more = (found["with exit status"] - found["fork and exec"]) * 1e3
    print(f"  a command over hdc costs {more:.1f} ms more than its fork and exec")
    assert found["fork and exec"] < found["hdc shell"] < found["with exit status"]


def test_send_and_receive(tmp_path: Path) -> None:
    local, back = tmp_path / "file", tmp_path / "back"
    with local.open("wb") as file:
        for _ in range(FILE_BYTES >> 20):
            file.write(os.urandom(1 << 20))
    with (
        virtual_board_process(tmp_path / "board") as board,
        HdcTcpConfig(address=board.address).open() as transport,
    ):
        host, _, port = board.address.rpartition(":")
        session = Session.connect(host, int(port), timeout=10)
        remote = f"{board.workdir}/copy"

        def send() -> None:
            with local.open("rb") as source:
                send_file(session, source, remote, timeout=60, on_chunk=lambda _chunk: None)

        def receive() -> None:
            with back.open("wb") as file:
                receive_file(session, remote, timeout=60, write=file.write)

        found = medians(
            3,
            {
                "sendfile": lambda: _sendfile(local, tmp_path / "sent"),
                "send": send,
                "receive": receive,
                "push (proven)": lambda: transport.push(local, remote, TransferOptions(timeout=60)),
                "pull (proven)": lambda: transport.pull(remote, back, TransferOptions(timeout=60)),
            },
        )
        session.close()
        peaks = {"host": _peak_bytes(os.getpid()), "board": _peak_bytes(board.process.pid)}
    assert filecmp.cmp(back, local, shallow=False)
    show(f"{FILE_BYTES >> 20} MiB over loopback", found, "sendfile")
    for name, seconds in found.items():
        print(f"  {name:32} {found['sendfile'] / seconds:6.2f} of the speed of sendfile")
    for name, peak in peaks.items():
        print(f"  peak memory of the {name}: {peak >> 20} MiB")
    assert max(peaks.values()) < FILE_BYTES / 4


def test_proof_by_the_agent(tmp_path: Path, private_state: Path) -> None:
    """What `labctl hdc send` asks of a board of devices.yaml that carries the agent."""
    local = tmp_path / "file"
    with local.open("wb") as file:
        for _ in range(PROVEN_BYTES >> 20):
            file.write(os.urandom(1 << 20))
    agent = describe(agent_builds.native_agent(), name="agent", executable=True)
    with (
        virtual_board_process(tmp_path / "board") as board,
        HdcTcpConfig(address=board.address).open() as transport,
    ):
        store = BoardStore(transport, board.workdir)
        deploy(store, plan(store, [agent]))
        host, _, port = board.address.rpartition(":")
        session = Session.connect(host, int(port), timeout=10)
        remote = f"{board.workdir}/copy"
        by_agent = agent_hash(transport, board.workdir, agent_builds.HOST, tmp_path)
        assert by_agent is not None

        def send() -> None:
            digest = by_agent.digest()  # as it goes, on this side
            with local.open("rb") as source:
                send_file(session, source, remote, timeout=60, on_chunk=digest.update)

        def prove(how: BoardHash) -> None:
            how.ask(transport, remote, PROVEN_BYTES, 60)

        found = medians(
            5,
            {
                "transfer": send,
                "proof by the agent": lambda: prove(by_agent),
                "proof by sha256sum": lambda: prove(BoardHash("sha256", ("sha256sum",))),
            },
        )
        session.close()
    show(f"proof of {PROVEN_BYTES >> 20} MiB on a virtual board", found, "transfer")
    assert found["proof by the agent"] <= 0.3 * found["transfer"]


def _peak_bytes(pid: int) -> int:
    """The most memory that a process has had (proc(5), VmHWM)."""
    status = Path(f"/proc/{pid}/status").read_text()
    match = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert match is not None
    return int(match[1]) * 1024


_RECEIVER = """
import socket, sys
with socket.create_server(("127.0.0.1", 0)) as server, open(sys.argv[1], "wb") as file:
    print(server.getsockname()[1], flush=True)
    connection, _ = server.accept()
    with connection:
        while block := connection.recv(1 << 20):
            file.write(block)
"""


def _sendfile(source: Path, target: Path) -> None:
    """The least that a copy over TCP costs: the kernel sends, another process writes a file."""
    with subprocess.Popen(
        [sys.executable, "-c", _RECEIVER, target], stdout=subprocess.PIPE
    ) as receiver:
        assert receiver.stdout is not None
        address = ("127.0.0.1", int(receiver.stdout.readline()))
        with socket.create_connection(address) as sender, source.open("rb") as file:
            sender.sendfile(file)
    assert receiver.returncode == 0


def _send_unproven(session: Session, folder: Path, remote: str) -> None:
    """All files over one channel, as hdc sends a directory."""
    with session.open_send(remote, timeout=60) as channel:
        sending = Sending(channel, remote)
        for path in folder.iterdir():
            with path.open("rb", buffering=0) as file:
                sending.send(file, f"{folder.name}/{path.name}", lambda _chunk: None)
        sending.finish()


def test_directories(tmp_path: Path) -> None:
    """What it costs to prove each file and keep modes and empty directories."""
    here = tmp_path / "here"
    here.mkdir()
    for number in range(500):
        (here / f"file-{number}").write_bytes(os.urandom(2000))
    with (
        virtual_board_process(tmp_path / "board") as board,
        HdcTcpConfig(address=board.address).open() as transport,
    ):
        host, _, port = board.address.rpartition(":")
        session = Session.connect(host, int(port), timeout=10)
        counter = itertools.count()
        found = medians(
            3,
            {
                "hdc's own (nothing proven)": lambda: _send_unproven(
                    session, here, f"{board.workdir}/a-{next(counter)}"
                ),
                "ours (all proven)": lambda: push_directory(
                    transport,
                    here,
                    f"{board.workdir}/b-{next(counter)}",
                    TransferOptions(timeout=60),
                ),
            },
        )
        session.close()
    show("500 files of 2 kB", found, "hdc's own (nothing proven)")


@pytest.mark.parametrize("link", ["tcp", "server"])
@pytest.mark.parametrize("delay", [0.0, 0.002])
def test_proof_of_many_small_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, delay: float, link: str
) -> None:
    """300 files of 1 kB, with the proof and without it."""
    here = tmp_path / "here"
    here.mkdir()
    for number in range(300):
        (here / f"file-{number}").write_bytes(os.urandom(1024))
    counter = itertools.count()
    with ExitStack() as stack:
        board = stack.enter_context(virtual_board_process(tmp_path / "board"))
        if link == "tcp":
            address = stack.enter_context(delayed_link(board.address, delay))
            config: HdcTcpConfig | HdcServerConfig = HdcTcpConfig(address=address)
        else:
            key = "7001005458323933328a01ce1"
            server = stack.enter_context(stand_in_server({key: Board(board.address)}))
            near = stack.enter_context(delayed_link(f"127.0.0.1:{server.port}", delay))
            config = HdcServerConfig(key=key, server=near)
        transport = stack.enter_context(config.open())
        options = TransferOptions(timeout=60)
        there = f"{board.workdir}/there"

        def send() -> None:
            push_directory(transport, here, f"{board.workdir}/{next(counter)}", options)

        def receive() -> None:
            pull_directory(transport, there, tmp_path / f"back-{next(counter)}", options)

        def unproven(work: Callable[[], None]) -> None:
            with monkeypatch.context() as patch:
                patch.setattr(directories, "_prove", lambda *_: None)
                work()

        push_directory(transport, here, there, options)
        found = medians(
            7,
            {
                "send, nothing proven": lambda: unproven(send),
                "send": send,
                "receive, nothing proven": lambda: unproven(receive),
                "receive": receive,
            },
        )
    show(f"300 files of 1 kB over {link}, {delay * 1e3:g} ms away", found, "send, nothing proven")
    for way in ("send", "receive"):
        ratio = found[way] / found[f"{way}, nothing proven"]
        print(f"  {way}: {ratio:.2f} x the time without proof")
        assert ratio <= 1.5


def test_many_boards_at_once(tmp_path: Path) -> None:
    plans = [VirtualBoard(f"b{number}", tmp_path / f"b{number}") for number in range(200)]
    with ExitStack() as stack:
        boards = stack.enter_context(serving(*plans, timeout=300))
        transports = [stack.enter_context(HdcTcpConfig(address=b.address).open()) for b in boards]
        pool = stack.enter_context(ThreadPoolExecutor(len(boards)))

        def ask(transport: Transport) -> str:
            return transport.run("echo $LABCTL_SANDBOX", timeout=60).text.strip()

        def all_at_once() -> None:
            assert list(pool.map(ask, transports)) == [board.boot_id for board in boards]

        all_at_once()  # opens the links
        found = medians(
            3,
            {
                "one after another": lambda: [ask(transport) for transport in transports],
                "all at once": all_at_once,
            },
        )
    show("200 boards with one command each", found, "one after another")
