import os
import subprocess
import sys
import textwrap
from io import BytesIO, StringIO, TextIOWrapper
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from measured_lab import RUNS, measured_lab
from measured_runs import PAIR, Made, measured
from records_made import run, trial
from rich.console import Console
from terminals import terminal

from labctl.cli.output import PAGE, tell
from labctl.report.figures.measured import MeasuredRun
from labctl.report.tables import print_sparklines, sparkline
from labctl.runs.record.directory import RunDirectory
from labctl.runs.runner import Outcome


def printed(of: MeasuredRun, *, width: int = 80, encoding: str = "utf-8") -> list[str]:
    raw = BytesIO()
    file = TextIOWrapper(raw, encoding=encoding)
    console = Console(file=file, width=width, force_terminal=True, color_system=None)
    print_sparklines(console, of.run, of.trials)
    file.flush()
    return raw.getvalue().decode(encoding).splitlines()


def test_each_variant_has_its_line_with_its_times() -> None:
    lines = printed(measured(tokens=20))
    assert [line.split()[0] for line in lines[1:]] == ["q8_0", "q2_k"]
    assert "█" not in lines[1], "noise of 2 % is flat"
    assert " ms" in lines[1]


def test_a_trial_that_slows_down_inside_rises() -> None:
    line = printed(measured(PAIR[:1], repeats=1, throttled=1, tokens=20))[1].split()[1]
    assert line[-1] > line[0]


@pytest.mark.parametrize("width", [24, 40, 50, 80, 200])
def test_lines_keep_to_the_terminals_width(width: int) -> None:
    long = measured([Made("a-model-with-quite-a-long-name-Q8_0"), Made("模型", 50)], tokens=300)
    lines = printed(long, width=width, encoding="gbk")  # a wide character: two bytes there
    assert all(len(line.encode("gbk")) <= width for line in lines)
    assert (width < 40) == (not lines)


def test_a_terminal_without_blocks_gets_ascii() -> None:
    lines = printed(measured(), encoding="ascii")
    assert len(lines) == 3
    assert lines[1].isascii()


def test_nothing_is_printed_but_on_a_terminal_nor_without_tokens() -> None:
    file = StringIO()
    some = measured()
    print_sparklines(Console(file=file, width=80), some.run, some.trials)
    assert file.getvalue() == ""
    assert printed(MeasuredRun(run(), [trial(timing=None)])) == []


def test_names_are_no_markup_and_no_control_sequence() -> None:
    (_, line) = printed(measured([Made("[red]x\x1b[31m")]))
    assert "[red]x" in line
    assert "\x1b" not in line


@given(st.lists(st.floats(1, 1e12), min_size=1, max_size=300), st.integers(1, 60))
def test_a_sparkline_is_as_wide_as_asked_and_highest_where_the_time_is(
    times: list[float], width: int
) -> None:
    line = sparkline(times, width)
    assert len(line) == min(width, len(times))
    if len(times) <= width:
        assert line[times.index(max(times))] == max(line)
        assert line[times.index(min(times))] == min(line)


def test_a_run_ends_with_them_on_a_terminal_alone(tmp_path: Path) -> None:
    script = """
        import sys, tempfile
        from pathlib import Path
        from measured_runs import measured
        from labctl.cli.output import tell
        from labctl.runs.runner import Outcome
        from records_made import plan, planned_run

        made = measured()
        directory = planned_run(Path(tempfile.mkdtemp(dir=sys.argv[1])), made.run, plan())
        tell(Outcome(directory, made.run, tuple(made.trials), ()), "table", None)
    """
    words = [sys.executable, "-c", textwrap.dedent(script), tmp_path]
    path = os.pathsep.join(filter(None, sys.path))
    environment = {**os.environ, "PYTHONPATH": path, "TERM": "xterm"}
    with terminal(80) as (screen, seen):
        subprocess.run(words, stdout=screen, env=environment, check=True)
    assert "from the second to the last" in b"".join(seen).decode()
    piped = subprocess.run(words, stdout=-1, env=environment, check=True).stdout
    assert b"per token" in piped
    assert b"from the second to the last" not in piped


def test_a_run_that_writes_a_report_prints_its_table_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = measured_lab(tmp_path / "lab")
    directory = RunDirectory(root / "runs" / RUNS[0])
    outcome = Outcome(directory, directory.run(), tuple(directory.trials()), ())
    page = tmp_path / "x.html"
    assert tell(outcome, PAGE, page) == 0
    said = capsys.readouterr()
    assert "per token" in said.out
    assert said.err == f"wrote {page}\n"
    assert "<html" in page.read_text()
