import os
import socket
import subprocess
import threading
from pathlib import Path

import pytest
from interleaved import medians, show

from labctl.hdc import Session, receive_file, send_file, shell
from labctl.transport import connect
from labctl.virtual import VirtualBoard, serving

pytestmark = pytest.mark.bench

FILE_BYTES = 300 << 20


def test_shell_round_trip(tmp_path: Path) -> None:
    with (
        serving(VirtualBoard("b", tmp_path)) as (board,),
        connect("hdc", address=board.address) as transport,
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
    assert found["fork and exec"] < found["hdc shell"] < found["with exit status"]


def test_send_and_receive(tmp_path: Path) -> None:
    local = tmp_path / "file"
    with local.open("wb") as file:
        for _ in range(FILE_BYTES >> 20):
            file.write(os.urandom(1 << 20))
    with serving(VirtualBoard("b", tmp_path / "board")) as (board,):
        session = Session.connect(board.host, board.port, timeout=10)
        remote = str(board.directory / "copy")

        def push() -> None:
            with local.open("rb") as source:
                send_file(session, source, remote, timeout=60, on_chunk=lambda _chunk: None)

        def pull() -> None:
            with (tmp_path / "back").open("wb") as back:
                receive_file(session, remote, timeout=60, write=back.write)

        found = medians(
            5, {"sendfile": lambda: _sendfile(local, tmp_path), "send": push, "receive": pull}
        )
        session.close()
    assert (tmp_path / "back").read_bytes() == local.read_bytes()
    show(f"{FILE_BYTES >> 20} MiB over loopback, without hashing", found, "sendfile")


def _sendfile(source: Path, folder: Path) -> None:
    """The least that a copy over TCP costs: the kernel sends, another thread writes a file."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def receive() -> None:
            connection, _ = server.accept()
            with connection, (folder / "sent").open("wb") as file:
                while block := connection.recv(1 << 20):
                    file.write(block)

        receiver = threading.Thread(target=receive)
        receiver.start()
        with socket.create_connection(server.getsockname()) as sender, source.open("rb") as file:
            sender.sendfile(file)
        receiver.join()
