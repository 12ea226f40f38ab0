"""``labctl hdc list`` and what boards and servers call themselves."""

import pytest
from hdc_server import Board, stand_in_server

from labctl.cli.root import run_cli


def test_names_cannot_steer_the_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    monkeypatch.chdir(str(tmp_path))
    board = Board("127.0.0.1:9", state="Connected", name="\x1b]0;mine\x07\x1b[2J")
    with stand_in_server({"key": board}) as server:
        assert run_cli(["hdc", "--server", f"127.0.0.1:{server.port}", "list"]) == 0
    shown = capsys.readouterr().out
    assert "key" in shown
    assert "\\x1b[2J" in shown
    assert "\x1b" not in shown
