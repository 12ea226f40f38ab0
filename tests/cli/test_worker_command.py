"""``labctl worker``, and its list."""

import json
from pathlib import Path

import pytest
from postgres_server import PostgresServer

from labctl.cli.root import run_cli
from labctl.config.lab import find_lab
from labctl.state.state import lab_state
from labctl.transport.built_in import TRANSPORTS

BOARD = "{target: rk3568, transport: {kind: hdc, link: tcp, address: '127.0.0.1:%d'}%s}"


RECIPE = """\
name: one
target: rk3568
engine:
  name: command
  program: {file: tools/sleeper}
  arguments: ["1"]
  tokens: {stream: stdout, each: line, count: tokens}
models: {none: {file: models/any.bin}}
parameters: {tokens: 1}
max_time: 5m
"""


@pytest.fixture
def farm(postgres: PostgresServer, tmp_path: Path) -> Path:
    text = f"lab: {postgres.new_lab()}\ndatabase: {postgres.url}\nboards:\n"
    text += f"  rk1: {BOARD % (1, ', host: lab1')}\n  rk2: {BOARD % (2, ', host: lab2')}\n"
    (tmp_path / "devices.yaml").write_text(text)
    return tmp_path


def test_a_worker_serves_the_boards_of_its_host(
    farm: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_cli(["--lab", str(farm), "worker", "--host", "lab2", "--until-empty"]) == 0
    said = capsys.readouterr().err
    assert said.startswith("worker ")
    assert said.endswith(" serves rk2\n")


def test_a_host_without_boards_is_told_what_to_write(
    farm: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_cli(["--lab", str(farm), "worker", "--host", "lab7", "--until-empty"]) == 2
    said = capsys.readouterr().err
    assert "is attached to host lab7" in said
    assert "add `host: lab7` to a board" in said


def test_a_lab_on_one_host_has_a_worker_for_all_its_boards(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = f"boards:\n  rk1: {BOARD % (1, '')}\n  rk2: {BOARD % (2, '')}\n"
    (tmp_path / "devices.yaml").write_text(text)
    assert run_cli(["--lab", str(tmp_path), "worker", "--until-empty"]) == 0
    assert " serves rk1, rk2\n" in capsys.readouterr().err


def test_workers_are_listed_with_their_boards(
    farm: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_cli(["--lab", str(farm), "worker", "--list"]) == 0
    assert "no worker: start one with" in capsys.readouterr().err
    state = lab_state(find_lab(farm, TRANSPORTS))
    state.workers.give_sign("lab2:1:ab", "lab2", ["rk2"], "1.0")
    assert run_cli(["--lab", str(farm), "worker", "--list"]) == 0
    assert capsys.readouterr().out == "lab2  alive  rk2  labctl 1.0  lab2:1:ab\n"
    with state.changing() as connection:
        connection.exec_driver_sql("UPDATE worker SET alive_at = alive_at - 7200")
    assert run_cli(["--lab", str(farm), "worker", "--list", "--json"]) == 0
    (one,) = json.loads(capsys.readouterr().out)
    assert (one["host"], one["boards"], one["is_alive"]) == ("lab2", ["rk2"], False)
    assert list(one) == [
        *("name", "host", "boards", "version"),
        *("started_at", "alive_at", "silent_seconds", "damaged", "is_alive"),
    ]


def test_a_detached_run_is_left_to_the_boards_own_host(
    farm: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for folder in ("models", "tools"):
        (farm / folder).mkdir()
    (farm / "models" / "any.bin").write_bytes(b"model")
    (farm / "tools" / "sleeper").write_text("#!/bin/sh\n")
    (farm / "one.yaml").write_text(RECIPE)
    with (farm / "devices.yaml").open("a") as file:
        file.write(f"store: {tmp_path / 'store'}\n")
    words = ["--lab", str(farm), "run", str(farm / "one.yaml"), "--board", "rk2", "--detach"]
    assert run_cli(words) == 0
    assert "start `labctl worker` on lab2" in capsys.readouterr().err
    lab = find_lab(farm, TRANSPORTS)
    (job,) = lab_state(lab).jobs.list()
    assert job.boards == ("rk2",)
    assert run_cli(["--lab", str(farm), "queue"]) == 0
    said = capsys.readouterr().err
    assert "nobody serves the queue: start `labctl worker` on each lab host" in said
    assert "queue serve" not in said
    stored = {path.read_bytes() for path in (tmp_path / "store").rglob("*") if path.is_file()}
    assert stored == {b"model", b"#!/bin/sh\n"}
