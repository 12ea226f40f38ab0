import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hdc_server import Board, stand_in_server
from interleaved import medians, show
from official_adb import official_adb
from postgres_server import PostgresServer
from virtual_process import virtual_board_process

from labctl.transport.adb import AdbConfig
from labctl.transport.base import Transport
from labctl.transport.hdc import HdcServerConfig, HdcTcpConfig

pytestmark = pytest.mark.bench


LABCTL = Path(sys.executable).with_name("labctl")


#: As installed: with the bytecode of all modules.
ENVIRONMENT = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}


def run(*words: str | Path) -> None:
    quiet = subprocess.DEVNULL
    subprocess.run(words, check=True, stdout=quiet, stderr=quiet, env=ENVIRONMENT)


def import_click() -> None:
    run(sys.executable, "-c", "import click")


def import_psycopg() -> None:
    run(sys.executable, "-c", "import psycopg")


def run_true(way: Transport) -> None:
    """What a command costs without the start of a program: link, handshake, command, end."""
    with way:
        way.run("true", timeout=60)


def test_help_costs_little_more_than_importing_click() -> None:
    found = medians(
        40, {"import click": import_click, "labctl --help": lambda: run(LABCTL, "--help")}
    )
    show("start-up", found, "import click")
    assert found["labctl --help"] <= 1.5 * found["import click"]


def test_commands_that_only_read_start_fast(
    tmp_path: Path, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ENVIRONMENT, "XDG_CACHE_HOME", str(tmp_path / "cache"))  # no artifacts
    lab, shared = tmp_path / "lab", tmp_path / "shared"
    run(LABCTL, "init", lab)
    run(LABCTL, "init", shared)
    devices = shared / "devices.yaml"
    lines = f"lab: {postgres.new_lab()}\ndatabase: {postgres.url}\nstore: {tmp_path / 'store'}\n"
    devices.write_text(f"{lines}{devices.read_text()}")
    new = itertools.count()
    commands: dict[str, Callable[[], object]] = {
        "runs": lambda: run(LABCTL, "--lab", lab, "runs"),
        "queue": lambda: run(LABCTL, "--lab", lab, "queue"),
        "runs, PostgreSQL": lambda: run(LABCTL, "--lab", shared, "runs"),
        "queue, PostgreSQL": lambda: run(LABCTL, "--lab", shared, "queue"),
        "models list": lambda: run(LABCTL, "--lab", lab, "models", "list"),
        "artifacts list": lambda: run(LABCTL, "artifacts", "list"),
        "schema recipe": lambda: run(LABCTL, "schema", "recipe"),
        "init": lambda: run(LABCTL, "init", tmp_path / str(next(new))),
    }
    imports = {"import click": import_click, "import psycopg": import_psycopg}
    found = medians(20, {**imports, **commands})
    show("start-up of commands that only read", found, "import click")
    for command in commands:
        # A database on a server needs its driver, whose import alone is half of the bound.
        driver = found["import psycopg"] if command.endswith("PostgreSQL") else 0
        assert found[command] <= 8 * found["import click"] + driver, command


def test_a_command_on_a_board_starts_fast(tmp_path: Path) -> None:
    with (
        virtual_board_process(tmp_path / "board") as board,
        stand_in_server({"key": Board(board.address)}) as stand_in,
    ):
        server = f"127.0.0.1:{stand_in.port}"
        found = medians(
            40,
            {
                "import click": import_click,
                "warm, HOST:PORT": lambda: run_true(HdcTcpConfig(address=board.address).open()),
                "shell true, HOST:PORT": lambda: run(
                    LABCTL, "hdc", "-t", board.address, "shell", "true"
                ),
                "warm, key": lambda: run_true(HdcServerConfig(key="key", server=server).open()),
                "shell true, key": lambda: run(
                    LABCTL, "hdc", "--server", server, "-t", "key", "shell", "true"
                ),
            },
        )
    show("start-up of `labctl hdc`", found, "import click")
    for way in ("HOST:PORT", "key"):
        assert found[f"shell true, {way}"] <= 2.5 * found["import click"] + found[f"warm, {way}"]


def test_a_command_on_a_phone_of_a_lab_starts_as_fast_as_on_a_board(tmp_path: Path) -> None:
    """Most of it is devices.yaml, whatever the link."""
    with (
        virtual_board_process(tmp_path / "phone", "--protocol", "adb") as phone,
        virtual_board_process(tmp_path / "board") as board,
        official_adb("36", tmp_path) as adb,
    ):
        way = AdbConfig(serial=phone.address, server=adb.address)
        over_hdc = {"kind": "hdc", "link": "tcp", "address": board.address}
        over_adb = {"kind": "adb", "serial": way.serial, "server": way.server}
        boards = {
            "board": {"target": "rk3568", "transport": over_hdc},
            "phone": {"target": "android-arm64", "transport": over_adb},
        }
        (tmp_path / "devices.yaml").write_text(json.dumps({"boards": boards}))
        found = medians(
            20,
            {
                "import click": import_click,
                "warm": lambda: run_true(way.open()),
                "shell board": lambda: run(LABCTL, "--lab", tmp_path, "shell", "board", "true"),
                "shell phone": lambda: run(LABCTL, "--lab", tmp_path, "shell", "phone", "true"),
            },
        )
    show("start-up of `labctl shell`", found, "import click")
    assert found["shell phone"] <= 2.5 * found["import click"] + found["warm"]
    assert found["shell phone"] <= 1.1 * found["shell board"] + found["warm"]
