"""``labctl serve`` as a process: what it prints, keeps and leaves."""

import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from dashboards import made_lab

from labctl.cli.root import run_cli
from labctl.cli.serve import _own_token
from labctl.errors import ConfigError, HostError
from labctl.web import server
from labctl.web.dashboard import Listening

HOLD = {"reason": "firmware test"}


@contextmanager
def serving(root: Path, *words: str) -> Iterator[tuple[str, "subprocess.Popen[str]"]]:
    """The address that it prints, and the process; it is told to end, and ends with 130."""
    env = {**os.environ, "LABCTL_STATE": str(root / "state")}
    with subprocess.Popen(
        [sys.executable, "-m", "labctl", "serve", *words],
        cwd=root,
        env=env,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        try:
            assert process.stdout is not None
            assert select.select([process.stdout], [], [], 60)[0]
            yield process.stdout.readline().strip(), process
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                assert process.wait(60) == 130
            finally:
                process.kill()


def test_who_is_told_the_address_can_connect_at_once() -> None:
    own, listening = server.listen(Listening(port=0))
    with own:
        socket.create_connection((listening.host, listening.port), timeout=60).close()
        # Nor can another server have the port.
        with pytest.raises(HostError, match="in use"):
            server.listen(listening)


def test_the_first_start_makes_a_token_that_only_its_user_can_read(tmp_path: Path) -> None:
    lab = made_lab(tmp_path / "kitchen")
    with serving(lab.root, "--port", "0") as (address, process):
        (kept,) = (lab.root / "state" / "tokens").iterdir()
        assert kept.stat().st_mode & 0o777 == 0o600
        token = kept.read_text().strip()
        headers = {"Authorization": f"Bearer {token}"}
        with httpx.Client(base_url=address, trust_env=False, timeout=60) as client:
            assert "rk1" in client.get("/").text
            held = client.post("/api/v1/boards/rk1/hold", json=HOLD, headers=headers)
            assert held.status_code == 200
        process.send_signal(signal.SIGTERM)
        assert process.stderr is not None
        said = process.stderr.read()
        assert str(kept) in said
        assert token not in said  # a journal would keep it
    with serving(lab.root, "--port", "0") as (address, again):
        with httpx.Client(base_url=address, trust_env=False, timeout=60) as client:
            assert client.get("/metrics").status_code == 200
        again.send_signal(signal.SIGTERM)
        assert again.stderr is not None
        assert token not in again.stderr.read()


def test_a_terminal_shows_the_first_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lab = made_lab(tmp_path / "kitchen")
    monkeypatch.setenv("LABCTL_STATE", str(tmp_path / "state"))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    _own_token(lab)
    (kept,) = (tmp_path / "state" / "tokens").iterdir()
    assert kept.read_text().strip() in capsys.readouterr().err


@pytest.mark.parametrize("named", [True, False])
def test_over_a_unix_socket_a_proxy_needs_no_secret(tmp_path: Path, named: bool) -> None:
    lab = made_lab(tmp_path / "k", more="web: {proxy: {roles: {anna: run}}}")
    path = lab.root / "s"
    with serving(lab.root, "--listen", f"unix:{path}") as (address, _):
        assert address == f"unix:{path}"
        assert path.stat().st_mode & 0o007 == 0
        transport = httpx.HTTPTransport(uds=str(path), retries=5)
        headers = {"Origin": "http://localhost"} | ({"X-Forwarded-User": "anna"} if named else {})
        with httpx.Client(transport=transport, base_url="http://localhost", timeout=60) as client:
            answer = client.post("/boards/rk1/hold", data=HOLD, headers=headers)
            assert answer.status_code == (303 if named else 401)
    assert not path.exists()


def test_a_second_server_does_not_take_the_socket_of_the_first(tmp_path: Path) -> None:
    path = tmp_path / "s"
    first, _ = server.listen(Listening(socket=path))
    with first:
        with pytest.raises(ConfigError, match="another server listens"):
            server.listen(Listening(socket=path))
        assert path.exists()
    second, _ = server.listen(Listening(socket=path))  # what a killed one left is in nobody's way
    second.close()


def test_a_server_removes_no_socket_but_its_own(tmp_path: Path) -> None:
    lab = made_lab(tmp_path / "k")
    path = lab.root / "s"
    with serving(lab.root, "--listen", f"unix:{path}"):
        path.unlink()
        later, _ = server.listen(Listening(socket=path))
    assert path.exists()
    later.close()


def test_all_addresses_need_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(made_lab(tmp_path / "k").root)
    assert run_cli(["serve", "--listen", "0.0.0.0", "--port", "0"]) == 2
    assert "web: {names: [lab.example.org]}" in capsys.readouterr().err
