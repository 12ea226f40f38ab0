"""A run on a board behind an hdc server of another host, whose ssh connection is cut."""

import os
import sys
from pathlib import Path

import pytest
from agent_builds import native_agent
from bare_board import TARGET, BareBoard
from hdc_server import Board, stand_in_server
from labs import said
from sshd_host import ssh_host

from labctl import process
from labctl.retry import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.soak, pytest.mark.timeout(600)]

RECIPE = f"""\
name: slow
target: {TARGET}
engine:
  name: command
  program: {{file: tool}}
  arguments: []
  tokens: {{stream: stdout, each: line}}
models: {{none: {{file: any.bin}}}}
max_time: 5m
"""


def test_a_run_outlives_its_tunnel(tmp_path: Path, private_state: Path) -> None:
    native_agent()
    lab = tmp_path / "lab"
    lab.mkdir()
    (lab / "recipe.yaml").write_text(RECIPE)
    (lab / "any.bin").write_bytes(bytes(1000))
    started = tmp_path / "started"
    (lab / "tool").write_text(
        f"#!/bin/sh\ntouch {started}\nfor n in 1 2 3 4 5 6; do echo token; sleep 2; done\n"
    )
    with (
        BareBoard(tmp_path / "board").served() as served,
        stand_in_server({"aaa": Board(served.address)}) as server,
        ssh_host(tmp_path / "host") as host,
    ):
        ssh = host.board()
        (lab / "devices.yaml").write_text(
            f"boards:\n  vb:\n    target: {TARGET}\n    workdir: {served.workdir}\n"
            "    transport: {kind: hdc, link: server, key: aaa,"
            f" server: '127.0.0.1:{server.port}',"
            f" ssh: {{host: 127.0.0.1, port: {ssh.port}, user: {ssh.user},"
            f" identity_file: {ssh.identity_file}, known_hosts: {ssh.known_hosts}}}}}\n"
        )
        words = [sys.executable, "-m", "labctl", "--lab", lab, "run", lab / "recipe.yaml"]
        running = process.start(words, cwd=lab, env=os.environ)
        try:
            assert wait_until(started.exists, timeout=240, interval=0.1)
            host.hang_up()
        finally:
            out, err = running.communicate(timeout=300)
        assert running.returncode == 0, (out + err).decode()
        shell = [sys.executable, "-m", "labctl", "--lab", lab, "boards"]
        done = process.run(shell, timeout=120, cwd=lab, env=os.environ)
        assert done.exit_status == 0, said(done)
