"""``-q``, ``-v``, ``--json``, ``NO_COLOR`` and closed pipes: one rule each, for all commands."""

import json
import os
import pty
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import click
import pytest
from commands import all_commands

from labctl.cli.output import json_option, note
from labctl.cli.progress import ProgressView
from labctl.cli.root import COMMANDS, cli, run_cli
from labctl.errors import ConfigError, DeviceLost, ExitStatus

LABCTL = [sys.executable, "-m", "labctl"]
DEVICES = """\
boards:
  rk1: {target: rk3568, transport: {kind: hdc, link: tcp, address: "127.0.0.1:1"}}
"""


@pytest.fixture
def speaking(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that prints a result, a note, progress and the output of a program, and fails."""
    from labctl import process

    @click.command()
    @json_option("As JSON.")
    @click.option("--fail", is_flag=True, help="Fail.")
    def command(as_json: bool, fail: bool) -> None:
        note("a note")
        with ProgressView() as view:
            view.say("progress")
        process.run(["echo", "two words"], timeout=20)
        if fail:
            raise ConfigError("bad", hint="better", details="why").at("a.yaml", 7)
        click.echo("the result")

    def get_command(group: Any, *_: object) -> click.Command:
        from labctl.cli import root

        root._let_verbosity_follow(command)
        return command

    monkeypatch.setattr(type(cli), "get_command", get_command)


@pytest.mark.parametrize("words", [["-q", "report"], ["report", "-q"], ["report", "--quiet"]])
@pytest.mark.usefixtures("speaking")
def test_quiet_leaves_results_and_errors(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_cli(words) == ExitStatus.OK
    assert tuple(capsys.readouterr()) == ("the result\n", "")
    assert run_cli([*words, "--fail"]) == ExitStatus.CONFIG
    assert capsys.readouterr().err == "error (config): bad\n  | why\nhint: better\n"


@pytest.mark.parametrize("words", [["-v", "report"], ["report", "-v"], ["report", "--verbose"]])
@pytest.mark.usefixtures("speaking")
def test_verbose_prints_each_program_and_only_for_that_command(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_cli(words) == ExitStatus.OK
    assert "+ echo 'two words'\n" in capsys.readouterr().err
    assert run_cli(["report"]) == ExitStatus.OK
    assert capsys.readouterr().err == "a note\nprogress\n"


def test_verbose_prints_each_command_on_a_board(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from labctl.transport.sentinel import Framed, execute

    class Answering:
        failure = None

        def __call__(self, script: str, *, timeout: float) -> Any:
            nonce = script.split(":", maxsplit=1)[0].removeprefix("{ echo ")
            yield f"{nonce}:12\n\x1e{nonce}:0\n".encode()

    @click.command()
    def command() -> None:
        framed = Framed.around("cat \x1b[2J/proc/uptime\nls")
        execute(Answering(), framed, label="hdc tcp rk1", timeout=1, write=lambda _: None)

    monkeypatch.setattr(type(cli), "get_command", lambda *_: command)
    assert run_cli(["-v", "report"]) == ExitStatus.OK
    assert capsys.readouterr().err == "+ [hdc tcp rk1] cat \\x1b[2J/proc/uptime\n    ls\n"


@pytest.mark.usefixtures("speaking")
def test_with_json_an_error_is_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["-q", "report", "--json", "--fail"]) == ExitStatus.CONFIG
    assert json.loads(capsys.readouterr().err) == {
        "blame": "config",
        "message": "bad",
        "hint": "better",
        "file": "a.yaml",
        "line": 7,
        "details": "why",
    }


def test_wrong_use_and_bugs_are_objects_too(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for words in (["run", "--json"], ["run", "--json", "--nonsense"], ["run", "--nonsense"]):
        assert run_cli(words) == ExitStatus.CONFIG
    missing, unknown, plain = capsys.readouterr().err.split("\n", 2)
    assert "RECIPE" in json.loads(missing)["message"]
    assert json.loads(unknown)["blame"] == "config"
    assert plain.startswith("Usage:")

    @click.command()
    @json_option("As JSON.")
    def command(as_json: bool) -> None:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr(type(cli), "get_command", lambda *_: command)
    assert run_cli(["report", "--json"]) == ExitStatus.INFRA
    bug = json.loads(capsys.readouterr().err)
    assert (bug["blame"], "report it" in bug["hint"]) == ("bug", True)


def test_with_json_a_wrong_file_is_named_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "devices.yaml").write_text(DEVICES)
    (tmp_path / "bad.yaml").write_text("name: x\ntarget: rk3568\nrepeat: 3\n")
    words = [*LABCTL, "plan", "--json", "bad.yaml"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, check=False)
    told = json.loads(done.stderr)
    assert (done.returncode, told["blame"]) == (ExitStatus.CONFIG, "config")
    assert (told["file"], told["line"]) == ("bad.yaml", 1)
    (tmp_path / "worse.yaml").write_text("name: x\n\ttarget: rk3568\n")
    words[-1] = "worse.yaml"
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, check=False)
    assert json.loads(done.stderr)["line"] == 2
    words[-1] = "none.yaml"
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, check=False)
    assert json.loads(done.stderr)["line"] is None


def test_every_command_has_the_options() -> None:
    for words, command in all_commands():
        options = {name: p for p in command.params for name in p.opts}
        # Some pass their words on to the board, and `hdc list -v` is hdc's own.
        if not command.context_settings.get("ignore_unknown_options"):
            assert {"-q", "-v"} <= options.keys(), words
        if "--json" in options:
            assert options["--json"].is_eager, f"{words}: made without json_option"


@pytest.mark.parametrize(("value", "coloured"), [(None, True), ("", True), ("1", False)])
def test_errors_have_no_colour_where_nobody_wants_any(value: str | None, coloured: bool) -> None:
    environment = {name: v for name, v in os.environ.items() if name != "NO_COLOR"}
    if value is not None:
        environment["NO_COLOR"] = value
    mine, theirs = pty.openpty()
    words = [*LABCTL, "report", "nowhere/at/all"]
    done = subprocess.run(words, cwd="/", stderr=theirs, env=environment, check=False)
    os.close(theirs)
    shown = os.read(mine, 1 << 16)
    os.close(mine)
    assert done.returncode == ExitStatus.CONFIG
    assert (b"\x1b[" in shown) is coloured


@pytest.mark.parametrize("options", [[], ["--json"], ["--form", "experiment"]])
def test_a_report_that_nobody_reads_ends_quietly(options: list[str], tmp_path: Path) -> None:
    script = """
        import sys
        from pathlib import Path
        from records_made import plan, planned_run, run, trial
        from labctl.cli import root
        from labctl.runs.record.directory import RunDirectory

        record = run("20261122T041111Z-q8-q2-latency-f146cb")
        planned_run(Path("runs"), record, plan()).add(trial(1))
        root.main(["report", *sys.argv[1:]])
    """
    (tmp_path / "devices.yaml").write_text(DEVICES)
    assert unread(tmp_path, "-c", textwrap.dedent(script), *options) == (0, b"")


@pytest.mark.parametrize(
    "words", [["--help"], ["run", "--help"], ["--version"], ["artifacts", "list"], ["boards", "-h"]]
)
def test_what_nobody_reads_ends_quietly(words: list[str], tmp_path: Path) -> None:
    assert unread(tmp_path, "-m", "labctl", *words) == (0, b"")


def unread(folder: Path, *words: str) -> tuple[int, bytes]:
    """How a command ends whose standard output is closed already, and what it says of it."""
    read, write = os.pipe()
    os.close(read)
    path = os.pathsep.join(filter(None, sys.path))
    done = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        stdout=write,
        stderr=-1,
        env={**os.environ, "PYTHONPATH": path},
        check=False,
    )
    os.close(write)
    return done.returncode, done.stderr


def test_a_lost_board_keeps_its_status_with_json(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    @click.command()
    @json_option("As JSON.")
    def command(as_json: bool) -> None:
        raise DeviceLost("lost rk1")

    monkeypatch.setattr(type(cli), "get_command", lambda *_: command)
    assert "report" in COMMANDS
    assert run_cli(["report", "--json"]) == ExitStatus.INFRA
    assert json.loads(capsys.readouterr().err)["blame"] == "infra"
