"""A shell on a console is proven before it gets a command, and gets it quoted."""

import os
from pathlib import Path

import pytest
from ptys import terminal

from labctl.board.console_shell import console_answer, run_on_console
from labctl.config.console import Console, ConsoleLogin
from labctl.errors import ConfigError, HostError

pytestmark = pytest.mark.usefixtures("private_state")

_LOGIN = r"""
while printf 'board login: ' && read -r user; do
    [ "$user" = root ] || continue
    printf 'Password: '; read -r word
    [ "$word" = "it's" ] && exec sh -i
done
"""


def console(device: str, login: ConsoleLogin | None = None) -> Console:
    return Console(device=device, baud=115200, login=login)


def test_a_command_reaches_a_proven_shell_quoted(tmp_path: Path) -> None:
    with terminal("sh", "-i") as device:
        name = f"{tmp_path}/a'b $(touch {tmp_path}/no)"
        run_on_console(
            console(device), [["sh", "-c", 'echo "$1" > "$2"', "-", name, f"{tmp_path}/f"]]
        )
        assert (tmp_path / "f").read_text() == f"{name}\n"
        assert not (tmp_path / "no").exists()
        with pytest.raises(HostError, match="false ended with status 1"):
            run_on_console(console(device), [["false"], ["touch", f"{tmp_path}/later"]])
        assert not (tmp_path / "later").exists()
        assert console_answer(console(device)) == "answers"


def test_what_only_echoes_gets_no_command() -> None:
    with terminal("cat") as device, pytest.raises(HostError, match="no shell answers"):
        run_on_console(console(device), [["true"]])


def test_a_silent_console_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("labctl.board.console_shell._PROMPT_SECONDS", 0.3)
    ours, theirs = os.openpty()
    try:
        assert console_answer(console(os.ttyname(theirs))).startswith("is silent")
    finally:
        os.close(ours)
        os.close(theirs)


def test_a_console_that_asks_for_a_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    login = ConsoleLogin(user="root", password_env="BOARD_PASSWORD")
    with terminal("sh", "-c", _LOGIN) as device:
        with pytest.raises(ConfigError, match="BOARD_PASSWORD"):
            run_on_console(console(device, login), [["true"]])
        monkeypatch.setenv("BOARD_PASSWORD", "it's")
        run_on_console(console(device, login), [["touch", f"{tmp_path}/in"]])
        assert (tmp_path / "in").exists()
