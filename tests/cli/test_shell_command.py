"""``labctl shell``, ``labctl help`` and where the lab is, as typed."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from daemons import daemon

from labctl.cli.root import run_cli


@pytest.fixture
def lab(tmp_path: Path, private_state: Path) -> Iterator[Path]:
    (tmp_path / "board").mkdir()
    (tmp_path / "lab").mkdir()
    with daemon(tmp_path / "board") as address:
        (tmp_path / "lab" / "devices.yaml").write_text(
            "boards:\n  rk1:\n    target: rk3568\n"
            f'    transport: {{kind: hdc, link: tcp, address: "{address}"}}\n'
        )
        yield tmp_path / "lab"


@pytest.mark.parametrize(
    ("words", "printed", "status"),
    [
        (("rk1", "--", "echo", "a  b"), "a  b\n", 0),
        (("rk1", "echo", "a  b"), "a  b\n", 0),
        (("--", "echo", "--", "x"), "-- x\n", 0),
        (("-b", "rk1", "--", "echo", "x"), "x\n", 0),
        (("--board", "rk1", "echo", "x"), "x\n", 0),
        (("--timeout", "9", "--", "sh", "-c", "exit 7"), "", 7),
        (("rk1",), None, 255),
        (("--",), None, 255),
        (("rk2", "--", "true"), None, 255),
    ],
)
def test_words_reach_the_board_however_it_is_named(
    lab: Path,
    capfd: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    printed: str | None,
    status: int,
) -> None:
    assert run_cli(["--lab", str(lab), "shell", *words]) == status
    shown = capfd.readouterr()
    assert shown.out == (printed or "")
    assert (shown.err == "") == (printed is not None)


def test_a_quoted_pipe_is_answered_with_the_way_to_write_it(
    lab: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run_cli(["--lab", str(lab), "shell", "--", "ps | grep x"]) == 127
    assert "labctl shell … -- sh -c 'ps | grep x'" in capfd.readouterr().err
    assert run_cli(["--lab", str(lab), "shell", "--", "nosuchprogram"]) == 127
    assert "sh -c" not in capfd.readouterr().err


def test_a_command_taken_for_a_board_is_answered_with_the_way_to_write_it(
    lab: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run_cli(["--lab", str(lab), "shell", "echo", "a b"]) == 255
    assert "for a command on rk1: labctl shell -- echo 'a b'" in capfd.readouterr().err
    assert run_cli(["--lab", str(lab), "shell", "rk2", "--", "echo"]) == 255
    assert "for a command" not in capfd.readouterr().err


def test_the_environment_may_name_the_lab(
    lab: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir("/")
    monkeypatch.setenv("LABCTL_LAB", str(lab))
    assert run_cli(["shell", "--", "echo", "here"]) == 0
    assert capfd.readouterr().out == "here\n"


def test_help_is_a_command_too(capfd: pytest.CaptureFixture[str]) -> None:
    shown = {}
    for words in (["help"], ["--help"], ["help", "models", "add"], ["models", "add", "--help"]):
        assert run_cli(words) == 0
        shown[" ".join(words)] = capfd.readouterr().out
    assert shown["help"] == shown["--help"]
    assert shown["help models add"] == shown["models add --help"]
    assert run_cli(["help", "modles"]) == 2
    assert "did you mean 'models'" in capfd.readouterr().err
    assert run_cli(["help", "run", "fast"]) == 2
    assert run_cli(["-V"]) == 0
