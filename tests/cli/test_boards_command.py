import json
import socket
from pathlib import Path

import pytest

from labctl.cli.root import run_cli

BOARD = """\
  {name}:
    target: rk3568
    transport: {{kind: hdc, link: tcp, address: "{address}"}}
"""


def test_a_board_that_cannot_be_hides_no_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        free = f"127.0.0.1:{server.getsockname()[1]}"
    for boards, status in (({"off": free, "odd": "a..b:5555"}, 2), ({"off": free}, 3)):
        text = "boards:\n" + "".join(BOARD.format(name=n, address=a) for n, a in boards.items())
        (tmp_path / "devices.yaml").write_text(text)
        assert run_cli(["--lab", str(tmp_path), "boards", "--json"]) == status
        states = {board["name"]: board["state"] for board in json.loads(capsys.readouterr().out)}
        expected = {"off": "offline", "odd": "misconfigured"}
        assert states == {name: expected[name] for name in boards}
