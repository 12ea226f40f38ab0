"""Commands through a server whose bytes come when they come: each has its output and its end."""

from pathlib import Path

from erratic import ask, behind


def test_no_command_depends_on_how_its_bytes_come(tmp_path: Path) -> None:
    with behind(tmp_path, seed=1) as (server, key):
        for number in range(10):
            ask(server, key, number)
