"""What labctl says to mistakes that people make: mistakes.yaml, run one by one."""

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import gguf
import pytest
import yaml
from clocks import skip_waits
from tiny_gguf import write_tiny_gguf

from labctl.cli.root import run_cli
from labctl.config.lab import find_lab
from labctl.runs.board.claim import board_state, lock_board, note_of_use
from labctl.runs.board.lab_lease import BoardUse
from labctl.transport.built_in import TRANSPORTS

MISTAKES: list[dict[str, Any]] = yaml.safe_load(
    Path(__file__).with_name("mistakes.yaml").read_text()
)
RECIPE = """\
name: tiny
target: rk3568
engine: {name: command, program: {board: /bin/echo}, arguments: ["{tokens}"], tokens: {each: line}}
models:
  tiny: {file: models/tiny.gguf}
description: says how many
parameters: {tokens: 24}
repeats: 2
max_time: 10m
"""
DEVICES = """\
boards:
  rk1:
    target: rk3568
    transport: {{kind: hdc, link: tcp, address: "{closed}"}}
"""
PAGE = b"HTTP/1.0 400 Bad Request\r\n\r\n<html>"


@contextmanager
def peer(answer: bytes) -> Iterator[str]:
    """A server of whatever that gives one answer to each connection; its address."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        connections = []

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:  # closed
                    return
                connections.append(connection)
                if answer:
                    connection.sendall(answer)

        threading.Thread(target=serve, daemon=True).start()
        try:
            yield f"127.0.0.1:{server.getsockname()[1]}"
        finally:
            server.shutdown(socket.SHUT_RDWR)
            for connection in connections:
                connection.close()


@pytest.fixture
def places() -> Iterator[dict[str, str]]:
    with peer(PAGE) as web, peer(b"") as silent:
        with socket.create_server(("127.0.0.1", 0)) as server:
            closed = f"127.0.0.1:{server.getsockname()[1]}"
        yield {"web": web, "silent": silent, "closed": closed}


def in_use(lab: Path, places: dict[str, str]) -> AbstractContextManager[object]:
    """Hold the board as another labctl of this host does."""
    found = find_lab(lab, TRANSPORTS)
    board = found.board("rk1")
    lock = board_state(f"hdc tcp {places['closed']}", board).with_suffix(".lock")
    return lock_board(board, lock, note_of_use(found, board, BoardUse("run q2")))


def prepare(case: dict[str, Any], lab: Path) -> None:
    """Bring the lab to where the mistake is made."""
    recipe = lab / "recipes" / "good.yaml"
    if change := case.get("recipe"):
        assert change["from"] in RECIPE
        recipe.write_text(RECIPE.replace(change["from"], change["to"]))
    for name, text in case.get("files", {}).items():
        (lab / name).write_text(text)
    whole = lab / "models" / "tiny.gguf"
    if case.get("truncated"):
        (lab / "truncated.gguf").write_bytes(whole.read_bytes()[:3000])
    if case.get("split"):
        (lab / "parts").mkdir()
        write_tiny_gguf(lab / "parts" / "tiny.gguf", tensors_per_part=8)
    if case.get("quantized"):
        raw = write_tiny_gguf(lab / "q8.gguf").read_bytes()
        key = b"general.file_type" + struct.pack("<I", gguf.GGUFValueType.UINT32)
        assert raw.count(key) == 1
        is_q8_0 = struct.pack("<I", gguf.LlamaFileType.MOSTLY_Q8_0)
        start = raw.index(key) + len(key)
        (lab / "q8.gguf").write_bytes(raw[:start] + is_q8_0 + raw[start + len(is_q8_0) :])
        assert run_cli(["models", "add", "q", "q8.gguf"]) == 0
    if case.get("changed"):
        assert run_cli(["models", "add", "m", str(whole)]) == 0
        write_tiny_gguf(whole, name="another")


@pytest.mark.usefixtures("private_state")
@pytest.mark.parametrize("case", MISTAKES, ids=[case["mistake"] for case in MISTAKES])
def test_a_mistake_is_named_with_its_place_and_cure(
    case: dict[str, Any],
    places: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    lab = tmp_path / "lab"
    (lab / "models").mkdir(parents=True)
    (lab / "recipes").mkdir()
    (lab / "recipes" / "good.yaml").write_text(RECIPE)
    write_tiny_gguf(lab / "models" / "tiny.gguf")
    if case.get("lab", True):
        (lab / "devices.yaml").write_text(DEVICES.format(**places))
    monkeypatch.chdir(lab)
    monkeypatch.setenv("LABCTL_CACHE", str(tmp_path / "cache"))  # nothing is built
    monkeypatch.setenv("HF_ENDPOINT", f"http://{places['closed']}")
    skip_waits(monkeypatch)
    for name, value in case.get("environment", {}).items():
        monkeypatch.setenv(name, value)
    prepare(case, lab)
    capfd.readouterr()
    with in_use(lab, places) if case.get("in_use") else nullcontext():
        status = run_cli([word.format(**places) for word in case["command"]])
    printed = capfd.readouterr()
    said = " ".join((printed.out + printed.err).split())
    for text in case["says"]:
        assert text.format(**places) in said
    for text in case.get("never", ()):
        assert text not in said
    assert "Traceback" not in said
    assert status == case["status"], said
