"""What a person sees of a trial: on a terminal, and where there is none."""

import errno
import fcntl
import os
import pty
import re
import struct
import termios
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from labctl.board.prune import StoreEntry
from labctl.build.progress import BuildProgress, Step
from labctl.cli import build, progress
from labctl.cli.deploy_view import BoardsView, result_text
from labctl.cli.progress import ProgressView
from labctl.cli.run_view import RunView, progress_text
from labctl.cli.store import age_text
from labctl.errors import Blame, HostError
from labctl.records.events import Deploy, Fetch, Load, Loss, Note, Progress, Trial
from labctl.records.trial import Failure
from labctl.runs.deploy import BoardTask

TRIAL = Trial(number=2, trials=12, slug="smollm2-q8_0-threads4-r2", variant="q8_0", state="started")


LOSS = Loss(text="the link broke")


def half(elapsed_s: float) -> Progress:
    return Progress(
        number=2,
        phase="generating",
        elapsed_s=elapsed_s,
        done=17,
        total=32,
        unit="tokens",
        per_second=3.2123,
        temperature_mc=61_250,
        remaining_s=245.0,
    )


STANDING = "generating, 17/32 tokens, 3.21 tokens/s, 61.2 °C"


class Terminal:
    """A terminal of so many columns, and what was written to it."""

    def __init__(self, columns: int):
        self.mine, self.theirs = pty.openpty()
        fcntl.ioctl(self.theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        self.columns = columns
        self.file = os.fdopen(self.theirs, "w")

    def close(self) -> str:
        """Everything that was shown, without colours."""
        self.file.close()
        shown = b""
        try:
            while piece := os.read(self.mine, 1 << 16):  # what the kernel has passed on so far
                shown += piece
        except OSError as error:
            assert error.errno == errno.EIO  # noqa: PT017 - Linux says so of a terminal's end
        os.close(self.mine)
        return re.sub(r"\x1b\[[0-9;?]*m", "", shown.decode())


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    made: list[Terminal] = []

    def make(columns: int) -> Terminal:
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.delenv("COLUMNS", raising=False)
        one = Terminal(columns)
        made.append(one)
        console = Console(file=one.file, force_terminal=True, width=columns, color_system=None)
        monkeypatch.setattr(progress, "Console", lambda **_: console)
        return one

    yield make
    assert all(one.file.closed for one in made)


@pytest.mark.parametrize("columns", [80, 120])
def test_a_terminal_shows_where_a_trial_is_in_one_redrawn_block(
    terminal: Any, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("labctl.cli.progress.time.monotonic", lambda: 1000.0)
    shown_on = terminal(columns)
    with ProgressView() as view:
        run = RunView(view)
        run.show(TRIAL)
        run.show(half(5))
        view.bars.refresh()
    shown = shown_on.close()
    assert STANDING in shown
    assert "trial 2/12 smollm2-q8_0-threads4-r2" in shown
    assert "0:04:05 left" in shown
    # It is redrawn in its place, and gone in the end: every line down is one up again.
    assert shown.count("\n") == shown.count("\x1b[1A") > 0
    assert shown.endswith("\x1b[2K")
    assert all(
        len(line) <= columns for line in re.sub(r"\x1b\[[^A-Za-z]*[A-Za-z]", "", shown).split("\r")
    )


def test_without_a_terminal_a_line_comes_now_and_then(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [1000.0]
    monkeypatch.setattr("labctl.cli.progress.time.monotonic", lambda: clock[0])
    with ProgressView() as view:
        run = RunView(view)
        run.show(TRIAL)
        for asked in range(1, 14):  # a minute, asked every five seconds
            clock[0] += 5
            run.show(half(5 * asked))
    lines = capsys.readouterr().err.splitlines()
    description = "trial 2/12 smollm2-q8_0-threads4-r2"
    assert lines == [
        f"{description}: 30 s elapsed, {STANDING}, about 245 s left",
        f"{description}: 60 s elapsed, {STANDING}, about 245 s left",
    ]


def test_a_run_that_is_read_late_tells_the_times_of_its_events(
    capsys: pytest.CaptureFixture[str],
) -> None:
    began = datetime.now(UTC) - timedelta(hours=1)

    def later(event: Any, seconds: float) -> Any:
        at = {"utc": began + timedelta(seconds=seconds), "mono_ns": round(seconds * 1e9)}
        return event.model_copy(update=at)

    fetch = Fetch(step="fetch q8", done=1, total=9)
    with ProgressView() as view:
        run = RunView(view)
        run.show(later(fetch, 1))
        run.show(later(TRIAL, 11))
        run.show(later(TRIAL.model_copy(update={"state": "ok", "token_ns": 9e6}), 31.5))
    assert capsys.readouterr().err.splitlines() == [
        "fetch q8: done in 10.0 s",
        "trial 2/12 smollm2-q8_0-threads4-r2: 9.00 ms per token (took 20.5 s)",
    ]


def test_each_loss_of_the_link_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    sent = Deploy(step="send q8", done=1, total=9)
    with ProgressView() as view:
        run = RunView(view)
        for event in (sent, LOSS, LOSS, LOSS, sent, LOSS, TRIAL, LOSS, half(5), LOSS):
            run.show(event)
    assert capsys.readouterr().err.count("the link broke; retrying") == 3


def test_a_link_that_stays_away_is_told_every_ten_seconds(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with ProgressView() as view:
        run = RunView(view)
        for seconds in (0, 0.5, 3.5, 7.5, 12.5, 17.5, 22.5, 27.5):  # as retries come
            run.show(LOSS.model_copy(update={"mono_ns": LOSS.mono_ns + int(seconds * 1e9)}))
        run.show(half(5).model_copy(update={"mono_ns": LOSS.mono_ns + 30_000_000_000}))
        run.show(LOSS.model_copy(update={"mono_ns": LOSS.mono_ns + 40_000_000_000}))
    assert capsys.readouterr().err.splitlines() == [
        "the link broke; retrying",
        "still no link to the board after 12 s; retrying",
        "still no link to the board after 22 s; retrying",
        "the link is back after 30 s",
        "the link broke; retrying",
    ]


def test_what_a_board_sent_is_shown_as_text(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [1000.0]
    monkeypatch.setattr("labctl.cli.progress.time.monotonic", lambda: clock[0])
    evil = "\x1b]0;owned\x07\x9b31m"
    with ProgressView() as view:
        run = RunView(view)
        run.show(Note(text=evil))
        run.show(Loss(text=evil))
        run.show(Deploy(step=evil, done=1, total=9))
        run.show(TRIAL.model_copy(update={"slug": evil}))
        clock[0] += 40
        run.show(half(40).model_copy(update={"phase": evil, "unit": evil}))
        run.show(TRIAL.model_copy(update={"state": "retrying", "reason": evil}))
        failure = Failure(kind="x", blame=Blame.JOB, message=evil, hint=evil)
        run.show(TRIAL.model_copy(update={"state": "failed", "failure": failure}))
    told = capsys.readouterr().err
    assert told.count("owned") >= 7
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f]", told)


def test_the_name_of_a_file_is_no_more_than_a_name(terminal: Any) -> None:
    shown_on = terminal(200)
    with ProgressView() as view:
        step = view.open("send to rk1", 10)
        step.update(5, note="\x1b]0;owned\x07\n.gguf")
        view.bars.refresh()
    shown = shown_on.close()
    assert "\x1b]" not in shown
    assert "\\x1b]0;owned\\x07\\x0a.gguf" in shown


def test_what_failed_on_this_host_is_not_called_done(capsys: pytest.CaptureFixture[str]) -> None:
    board = SimpleNamespace(name="rk1")
    error = HostError("cannot reach huggingface.co")
    with ProgressView() as view:
        shown = BoardsView(view, 1)
        shown.step("ask for a/b", 0, None)
        shown.ended(BoardTask(board, None, error=error))  # type: ignore[arg-type]
        shown.end_step()
    assert "done" not in capsys.readouterr().err


def last_drawn(shown: str, count: int) -> list[str]:
    """The last lines that were drawn."""
    plain = re.sub(r"\x1b\[[^A-Za-z]*[A-Za-z]", "", shown)
    return [line.rstrip() for line in re.split(r"[\r\n]+", plain) if line.strip()][-count:]


LONG_NAME = "Llama-3.1-8B-Instruct-abliterated.Q4_K_M.gguf"


@pytest.mark.parametrize("columns", [80, 120])
def test_a_deploy_keeps_bar_share_rate_and_time_left(
    terminal: Any, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [1000.0]
    monkeypatch.setattr("labctl.cli.progress.time.monotonic", lambda: clock[0])
    shown_on = terminal(columns)
    with ProgressView() as view:
        step = view.open("send to dayu200-in-the-rack", 4_920_000_000)
        step.update(920_000_000, note=LONG_NAME, unit="bytes")  # from an earlier attempt
        clock[0] += 10
        step.update(1_120_000_000, note=LONG_NAME, unit="bytes")
        view.bars.refresh()
    (line,) = last_drawn(shown_on.close(), 1)
    assert len(line) <= columns
    assert line[2:13] == "send to day"
    assert "━━╸" in line
    assert " 23% 20.0 MB/s 0:03:10 left" in line


def test_a_build_keeps_bar_share_rate_and_time_left_in_80_columns(
    terminal: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [1000.0]
    monkeypatch.setattr("labctl.cli.progress.time.monotonic", lambda: clock[0])
    monkeypatch.setattr(build, "build_artifact", lambda _request, on_progress: on_progress)
    shown_on = terminal(80)
    with ProgressView() as view:
        shown = build.BuildView(view)
        message = "llama.cpp (new) for rk3568: llama-completion, llama-bench, llama-quantize"
        shown._show(BuildProgress(Step.COMPILE, message))
        for done in (1, 31):
            object_file = f"Building CXX object src/CMakeFiles/llama-arch-{done}.cpp.o"
            shown._show(BuildProgress(Step.COMPILE, object_file, done, 271))
            clock[0] += 10
        view.bars.refresh()
    (line,) = last_drawn(shown_on.close(), 1)
    assert len(line) <= 80
    assert " 11% 3.00 files/s 0:01:10 left" in line


def test_all_trials_have_a_time_left_as_soon_as_one_has_ended(terminal: Any) -> None:
    shown_on = terminal(80)
    known = {"number": 5, "trials": 6, "run_remaining_s": 130.4, "utc": datetime.now(UTC)}
    started = TRIAL.model_copy(update=known)
    with ProgressView() as view:
        RunView(view).show(started)
        view.bars.refresh()
    overall, trial = last_drawn(shown_on.close(), 2)
    assert overall[2:].startswith("all trials")
    assert re.search(" 67% 0:02:(10|09) left", overall)
    assert trial.endswith("elapsed")  # nothing is known of this one


def test_a_lost_link_shows_since_when_and_no_old_progress(
    terminal: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("labctl.cli.progress.time.monotonic", lambda: 1000.0)
    at = datetime(2026, 11, 22, 14, 3, 22).astimezone()
    loss = LOSS.model_copy(update={"utc": at})
    shown_on = terminal(80)
    with ProgressView() as view:
        run = RunView(view)
        run.show(TRIAL.model_copy(update={"utc": datetime.now(UTC)}))
        run.show(half(5))
        run.show(loss)
        view.bars.refresh()
        assert "no link to the board since 14:03:22" in run.now
    trial, below = last_drawn(shown_on.close(), 2)
    assert below.startswith("  no link to the board since 14:03:22, retrying; last seen: gener")
    assert re.search(r" \? 0:00:0\d elapsed$", trial)
    assert "left" not in trial


def test_all_trials_count_no_time_down_while_the_link_is_lost(
    terminal: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("labctl.cli.progress.time.monotonic", lambda: 1000.0)
    began = TRIAL.model_copy(update={"run_remaining_s": 130.4, "utc": datetime.now(UTC)})
    shown_on = terminal(80)
    with ProgressView() as view:
        run = RunView(view)
        run.show(began)
        run.show(half(5))
        run.show(LOSS.model_copy(update={"utc": datetime.now(UTC)}))
        view.bars.refresh()
    overall, _trial, _below = last_drawn(shown_on.close(), 3)
    assert re.search(r" 8% 0:00:0\d elapsed$", overall)

    shown_on = terminal(80)
    with ProgressView() as view:
        run = RunView(view)
        for event in (began, half(5), LOSS, half(5)):
            run.show(event)
        view.bars.refresh()
    overall, _trial, _below = last_drawn(shown_on.close(), 3)
    assert re.search(r" 8% 0:02:(10|09) left$", overall)


def test_a_link_that_is_back_is_told_with_its_time(capsys: pytest.CaptureFixture[str]) -> None:
    back = half(40).model_copy(update={"mono_ns": LOSS.mono_ns + 35_000_000_000})
    with ProgressView() as view:
        run = RunView(view)
        for event in (TRIAL, LOSS, LOSS, back, back):
            run.show(event)
    assert capsys.readouterr().err.splitlines() == [
        "the link broke; retrying",
        "the link is back after 35 s",
    ]


@pytest.mark.parametrize(
    ("done", "total", "said"),
    [(1, None, "1 line"), (2, None, "2 lines"), (1, 1, "1/1 line"), (1, 2, "1/2 lines")],
)
def test_one_line_is_no_lines(done: int, total: int | None, said: str) -> None:
    progress = Progress(phase="running", done=done, total=total, unit="lines")
    assert progress_text(progress) == f"running, {said}"


def test_a_board_that_needs_one_file_has_its_only_file() -> None:
    plan = SimpleNamespace(missing=["model"], objects=["model"])
    task = BoardTask(SimpleNamespace(name="rk1"), None, SimpleNamespace(plan=plan))  # type: ignore[arg-type]
    assert result_text(task) == "rk1 has its only file; 1 was sent"


@pytest.mark.parametrize(
    ("hours", "said"),
    [(1, "used in the last 24 hours"), (47, "unused for 1 day"), (48, "unused for 2 days")],
)
def test_the_age_of_a_stored_file_is_in_words(hours: int, said: str) -> None:
    entry = StoreEntry("store/a", 5, hours * 3600)
    assert age_text(entry) == f", {said}"


def test_without_a_terminal_each_step_of_a_build_is_told_as_it_begins(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(build, "build_artifact", lambda _request, on_progress: on_progress)
    with ProgressView() as view:
        shown = build.BuildView(view)
        shown._show(BuildProgress(Step.WAIT, "another build of agent (process 5) is at it"))
        assert capsys.readouterr().err == "wait: another build of agent (process 5) is at it ...\n"
        for done in (None, 1, 2):
            shown._show(BuildProgress(Step.COMPILE, "agent", done, 2))
        lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("wait: another build of agent (process 5) is at it: done in ")
    assert lines[1:] == ["compile: agent ..."]


def test_a_load_test_shows_one_load_after_the_other(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [1000.0]
    monkeypatch.setattr("labctl.cli.progress.time.monotonic", lambda: clock[0])
    with ProgressView() as view:
        run = RunView(view)
        for done in (0, 20, 40):
            run.show(Load(load="rate 2", done=done, total=60, elapsed_s=clock[0] - 1000))
            clock[0] += 31
        assert run.now == "rate 2: 40 answers"
        run.show(Load(load="rate 4", done=1, elapsed_s=1, duration_s=60))
        assert run.now == "rate 4: 1 answer"
        run.close()
    told = capsys.readouterr().err
    assert "rate 2" in told
    assert "67%" in told
