import importlib
import json
import os
import pty
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from labctl.cli.commands import COMMANDS, GROUPS
from labctl.cli.progress import ProgressView
from labctl.cli.root import cli, run_cli
from labctl.cli.run_view import RunView
from labctl.errors import ConfigError, DeviceLost, ExitStatus, LabctlError, ProgramFailed
from labctl.records.events import End, Evaluation, RunState


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    """A command that raises what the test gives."""

    def install(error: BaseException, name: str = "report") -> None:
        import click

        @click.command()
        def command() -> None:
            raise error

        monkeypatch.setattr(type(cli), "get_command", lambda *_: command)
        assert name in COMMANDS

    return install


@pytest.mark.parametrize(
    ("error", "status", "blame"),
    [
        (ConfigError("no board 'x'", hint="it knows 'y'"), 2, "config"),
        (DeviceLost("lost rk1"), 3, "infra"),
        (ProgramFailed("SIGILL"), 1, "job"),
    ],
)
def test_an_error_is_one_sentence_with_blame_and_exit_status(  # type: ignore[no-untyped-def]
    failing, capsys: pytest.CaptureFixture[str], error: LabctlError, status: int, blame: str
) -> None:
    failing(error)
    assert run_cli(["report"]) == status
    said = capsys.readouterr().err
    assert f"error ({blame}): {error.message}" in said
    assert (error.hint or "") in said
    assert "Traceback" not in said


def test_debug_shows_the_traceback(failing, capsys: pytest.CaptureFixture[str]) -> None:  # type: ignore[no-untyped-def]
    failing(DeviceLost("lost rk1"))
    assert run_cli(["--debug", "report"]) == ExitStatus.INFRA
    assert "Traceback" in capsys.readouterr().err


def test_the_unforeseen_is_shown_as_a_bug(failing, capsys: pytest.CaptureFixture[str]) -> None:  # type: ignore[no-untyped-def]
    failing(ZeroDivisionError("division by zero"))
    assert run_cli(["report"]) == ExitStatus.INFRA
    said = capsys.readouterr().err
    assert said.startswith("bug: ZeroDivisionError: division by zero (test_root.py:")
    assert "Traceback" not in said


def test_interruption(failing, capsys: pytest.CaptureFixture[str]) -> None:  # type: ignore[no-untyped-def]
    failing(KeyboardInterrupt())
    assert run_cli(["report"]) == ExitStatus.INTERRUPTED


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ("finished", "interrupted; the run has finished: labctl report 2026-r1"),
        ("interrupted", "interrupted; to continue: the same command again"),
    ],
)
def test_an_interrupt_after_a_run_is_no_reason_to_measure_again(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    state: RunState,
    said: str,
) -> None:
    import click

    @click.command()
    def command() -> None:
        with ProgressView() as view:
            shown = RunView(view)
            shown.show(Evaluation(run="2026-r1", recipe="sums", planned=4))
            shown.show(End(state=state, exit_status=0))
        raise KeyboardInterrupt  # while the board is given up

    monkeypatch.setattr(type(cli), "get_command", lambda *_: command)
    assert run_cli(["run"]) == ExitStatus.INTERRUPTED
    assert capsys.readouterr().err.splitlines()[-1] == said


def test_shell_keeps_255_for_its_own_failures(failing) -> None:  # type: ignore[no-untyped-def]
    failing(DeviceLost("lost rk1"), "shell")
    assert run_cli(["shell"]) == ExitStatus.SHELL_FAILURE


def test_control_sequences_in_evidence_do_not_reach_the_terminal(  # type: ignore[no-untyped-def]
    failing, capsys: pytest.CaptureFixture[str]
) -> None:
    failing(ProgramFailed("crash", details="\x1b]0;owned\x07\x1b[2Jred"))
    run_cli(["report"])
    said = capsys.readouterr().err
    assert "\x1b]" not in said
    assert "\\x1b]0;owned\\x07" in said


def test_an_interrupt_while_labctl_is_loaded_is_no_traceback() -> None:
    script = """
        import sys
        class Interrupt:
            def find_spec(self, name, *_):
                if name == "labctl.cli.root":
                    raise KeyboardInterrupt
        sys.meta_path.insert(0, Interrupt())
        from labctl.cli import main
        main(["--version"])
    """
    words = [sys.executable, "-c", textwrap.dedent(script)]
    done = subprocess.run(words, capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (ExitStatus.INTERRUPTED, b"", b"")


def test_an_output_that_nobody_reads_is_no_failure() -> None:
    read, write = os.pipe()
    os.close(read)
    words = [sys.executable, "-m", "labctl", "schema", "recipe"]
    with subprocess.Popen(words, stdout=write, stderr=subprocess.PIPE, text=True) as running:
        os.close(write)
        assert running.communicate(timeout=120)[1] == ""
    assert running.returncode == ExitStatus.OK


@pytest.mark.parametrize("words", [["--version"], ["schema", "recipe"], ["docs"]])
def test_an_output_that_cannot_be_written_is_an_error_of_this_host(
    words: list[str], tmp_path: Path
) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "labctl", "--lab", str(tmp_path), *words],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    said = "error (infra): cannot write standard output: No space left on device\n"
    assert (done.returncode, done.stderr) == (ExitStatus.INFRA, said)


@pytest.mark.parametrize("words", [["--version"], ["schema", "recipe"], ["runs"]])
def test_a_closed_output_is_no_failure(words: list[str], tmp_path: Path) -> None:
    (tmp_path / "devices.yaml").write_text("boards: {}\n")
    done = subprocess.run(
        [
            "sh",
            "-c",
            'exec "$0" "$@" >&-',
            sys.executable,
            "-m",
            "labctl",
            "--lab",
            str(tmp_path),
            *words,
        ],
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert (done.returncode, "bug" in done.stderr) == (ExitStatus.OK, False)


def test_an_error_before_the_command_is_json_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["--lab", "/nope", "boards", "--json"]) == ExitStatus.CONFIG
    assert "'/nope' does not exist" in json.loads(capsys.readouterr().err)["message"]
    run_cli(["--lab", "/nope", "shell", "--", "x", "--json"])
    assert capsys.readouterr().err.startswith("Usage: labctl")


UNREAD = """
    import sys, click
    from threading import Semaphore, current_thread, main_thread
    from labctl.cli import root
    from labctl.cli.progress import ProgressView
    from labctl.errors import DeviceLost

    @click.command()
    def slow():
        with ProgressView() as view, view.step("a step"):
            view.say("begun")
            sys.stdin.read()
            for _ in range(2):
                view.say("x" * 10_000)
                view.bars.refresh()
            if view.live:  # the thread that redraws has its turn
                drawn, table = Semaphore(0), view.bars.make_tasks_table

                def counted(tasks):
                    if current_thread() is not main_thread():
                        drawn.release()
                    return table(tasks)

                view.bars.make_tasks_table = counted
                for _ in range(2):  # the second time, the first has been written
                    assert drawn.acquire(timeout=60)
            print("done", file=open(sys.argv[1], "w"), flush=True)
        raise DeviceLost("the board's own error")

    root.LazyGroup.get_command = lambda *_: slow
    root.main(["run"])
"""


@pytest.mark.parametrize("terminal", [False, True])
def test_a_command_goes_on_to_its_own_end_when_nobody_reads_its_progress(
    tmp_path: Path, terminal: bool
) -> None:
    read, write = pty.openpty() if terminal else os.pipe()
    words = [sys.executable, "-c", textwrap.dedent(UNREAD), str(tmp_path / "done")]
    with subprocess.Popen(words, stdin=-1, stderr=write, start_new_session=True) as running:
        os.close(write)
        shown = b""
        while b"begun" not in shown:
            shown += os.read(read, 1 << 16)
        os.close(read)
        running.communicate(timeout=120)
    assert (tmp_path / "done").read_text() == "done\n"
    assert running.returncode == ExitStatus.INFRA


def test_a_run_keeps_its_exit_status_when_nobody_reads_its_table(tmp_path: Path) -> None:
    script = """
        import sys
        from pathlib import Path
        from records_made import plan, planned_run, run, trial
        from labctl.cli.output import tell
        from labctl.records.trial import TrialState
        from labctl.runs.runner import Outcome
        from labctl.runs.record.directory import RunDirectory

        failed = trial(1, state=TrialState.FAILED)
        directory = planned_run(Path.cwd(), run("20261122T041111Z-q2-abcdef"), plan())
        outcome = Outcome(directory, run("20261122T041111Z-q2-abcdef"), (failed,), ())
        sys.exit(40 + tell(outcome, sys.argv[1], None))
    """
    for kind in ("json", "table"):
        (folder := tmp_path / kind).mkdir()
        read, write = os.pipe()
        os.close(read)
        words = [sys.executable, "-c", textwrap.dedent(script), kind]
        path = os.pathsep.join(filter(None, sys.path))
        environment = {**os.environ, "PYTHONPATH": path}
        ended = subprocess.run(
            words, cwd=folder, stdout=write, stderr=-1, env=environment, check=False
        )
        os.close(write)
        assert (ended.returncode, ended.stderr) == (41, b"")


@pytest.mark.parametrize(("kind", "state", "status"), [("json", "ok", 3), ("table", "failed", 41)])
def test_a_run_whose_table_cannot_be_written_names_the_command_that_prints_it(
    kind: str, state: str, status: int, tmp_path: Path
) -> None:
    script = """
        import sys
        from pathlib import Path
        from records_made import plan, planned_run, run, timing, trial
        from labctl.cli.output import tell
        from labctl.cli.root import explaining
        from labctl.errors import HostError
        from labctl.records.trial import TrialState
        from labctl.runs.runner import Outcome
        from labctl.runs.record.directory import RunDirectory

        sys.stdout = explaining(sys.stdout)
        one = trial(1, state=TrialState(sys.argv[2]), timing=timing([100]))
        directory = planned_run(Path.cwd(), run("20261122T041111Z-q2-abcdef"), plan())
        outcome = Outcome(directory, run("20261122T041111Z-q2-abcdef"), (one,), ())
        try:
            sys.exit(40 + tell(outcome, sys.argv[1], None))
        except HostError as error:
            print(f"{error.message}; {error.hint}", file=sys.stderr)
            sys.exit(error.exit_status)
    """
    words = [sys.executable, "-c", textwrap.dedent(script), kind, state]
    path = os.pathsep.join(filter(None, sys.path))
    environment = {**os.environ, "PYTHONPATH": path}
    with Path("/dev/full").open("wb") as full:
        ended = subprocess.run(
            words, cwd=tmp_path, stdout=full, stderr=-1, env=environment, check=False, text=True
        )
    said = "cannot write standard output: No space left on device; "
    said += "`labctl report 20261122T041111Z-q2-abcdef` prints"
    assert said in ended.stderr
    assert ended.returncode == status


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_who_is_told_to_end_puts_things_in_order_first(
    number: signal.Signals, tmp_path: Path
) -> None:
    """Also inside a text that `exec` runs, as dataclasses do while a command is imported."""
    script = """
        import time, click
        from labctl.cli import root

        @click.command()
        def slow():
            try:
                exec("print('begun', flush=True); time.sleep(60)")
            finally:
                print("in order", flush=True)

        root.LazyGroup.get_command = lambda *_: slow
        root.main(["report"])
    """
    (tmp_path / "slowly.py").write_text(textwrap.dedent(script))
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    words = [sys.executable, "-m", "slowly"]  # as `python -m labctl`
    environment = {**os.environ, "PYTHONPATH": path}
    with subprocess.Popen(words, stdout=-1, text=True, env=environment) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "begun\n"
        running.send_signal(number)
        assert running.communicate(timeout=120)[0] == "in order\n"
    assert running.returncode == ExitStatus.INTERRUPTED


def test_wrong_use_is_exit_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["nonsense"]) == ExitStatus.CONFIG
    assert run_cli(["--nonsense"]) == ExitStatus.CONFIG
    assert "No such" in capsys.readouterr().err


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_complete_help_with_an_example(name: str) -> None:
    module, function = COMMANDS[name].module_and_function(name)
    command = getattr(importlib.import_module(module), function)
    assert command.help.splitlines()[0] == COMMANDS[name].text
    assert "Example" in (command.epilog or "")
    for parameter in command.params:
        if parameter.param_type_name == "option":
            assert getattr(parameter, "help", None), f"{name} {parameter.name} has no help"


@pytest.mark.parametrize(("answer", "status", "said"), [("n\n", 1, "cancelled"), ("y\n", 0, "")])
def test_no_is_an_answer(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    answer: str,
    status: int,
    said: str,
) -> None:
    import click

    from labctl.cli.output import confirm

    @click.command()
    def send() -> None:
        confirm("2 GB to send", ["it is much"])

    monkeypatch.setattr(type(cli), "get_command", lambda *_: send)
    ours, theirs = pty.openpty()
    with os.fdopen(theirs) as keyboard, os.fdopen(ours, "wb", buffering=0) as keys:
        monkeypatch.setattr(sys, "stdin", keyboard)
        keys.write(answer.encode())
        assert run_cli(["report"]) == status
    printed = capsys.readouterr().err
    assert "it is much\n2 GB to send; continue?" in printed
    assert ("cancelled" in printed) == (said == "cancelled")


def test_where_nobody_can_be_asked_nothing_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    from labctl.cli.output import confirm

    with Path(os.devnull).open() as nobody:
        monkeypatch.setattr(sys, "stdin", nobody)
        with pytest.raises(ConfigError, match="cannot ask"):
            confirm("2 GB to send")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("eval", "run"),
        ("agreement", "compare"),
        ("reserve", "hold --from"),
        ("targets", "build --list"),
        ("audit", "state audit"),
        ("workers", "worker --list"),
    ],
)
def test_an_old_word_gets_the_right_one(
    old: str, new: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_cli([old]) == 2
    assert f"(did you mean 'labctl {new}'?)" in capsys.readouterr().err


def test_help_shows_every_command_once_in_five_or_six_groups(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run_cli(["--help"]) == 0
    text = capsys.readouterr().out
    assert 5 <= len(GROUPS) <= 6
    places = [text.index(f"{name}:\n") for name in GROUPS]
    assert places == sorted(places)
    for name in COMMANDS:
        assert text.count(f"\n  {name} ") == 1, name


@pytest.mark.parametrize("more", [["--strict"], ["--junit", "j.xml"], ["--new"], ["--dry-run"]])
def test_accepting_a_slowdown_takes_no_option_of_a_night(
    more: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for word in ("--accept", "--unaccept"):
        assert run_cli(["nightly", word, "row", *more, str(tmp_path / "plan.yaml")]) == 2
        assert "--accept and --unaccept run no night" in capsys.readouterr().err
