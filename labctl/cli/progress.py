"""Progress on standard error: live bars on a terminal, plain lines elsewhere."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Self

from rich.console import Console, RenderableType
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TaskProgressColumn,
)
from rich.table import Column
from rich.text import Text

from labctl.cli.output import is_quiet
from labctl.errors import printable_line
from labctl.progress import Pace, Throughput
from labctl.units import rate

#: Interval (s) of progress lines without a terminal.
PLAIN_INTERVAL_SECONDS = 30.0
#: Minimum time (s) between two lines about a lost link.
STILL_LOST_SECONDS = 10.0
#: Low: if the board is this host, redrawing disturbs the measurement.
_REDRAWS_PER_SECOND = 2
#: Maximum of a bar before its end: an estimated end may be too early.
_NEARLY = 0.99
_BAR_WIDTH = 12


class Step:
    """One long step, begun ``age_s`` ago. ``update`` may be called often."""

    def __init__(
        self, view: "ProgressView", description: str, total: float | None, age_s: float = 0.0
    ):
        self._view = view
        self._description = description = printable_line(description)
        self._total = total
        self._said = time.monotonic()
        self._began = self._said - age_s
        self._throughput = Throughput()
        self._task = view.bars.add_task(
            description,
            total=total,
            note="",
            below="",
            rate="",
            began=self._began,
            ends=None,
            stalled=False,
        )

    def update(
        self,
        done: float,
        total: float | None = None,
        note: str = "",
        *,
        unit: str = "",
        per_second: float | None = None,
        remaining_s: float | None = None,
    ) -> None:
        """Show ``done`` of ``total``; ``note`` is a short remark.

        With a ``unit`` (``bytes``, ``files``) its rate is shown. ``per_second`` and ``remaining_s``
        replace the estimates if the caller knows better.
        """
        self._total = total if total is not None else self._total
        now, note = time.monotonic(), printable_line(note)
        known = Pace(per_second, remaining_s)
        pace = self._throughput.pace(now, done, self._total, known)
        left, speed = pace.remaining_s, rate(pace.per_second, unit) if unit else ""
        self._view.bars.update(
            self._task,
            completed=done,
            total=self._total,
            note=note,
            rate=speed,
            below="",
            ends=None if left is None else now + left,
            stalled=False,
        )
        over = self._total is not None and done >= self._total  # finish() shows the result
        if not over and self._is_due():
            elapsed = f"{now - self._began:.0f} s elapsed"
            share = f"{100 * done / self._total:.0f}%" if self._total else elapsed
            parts = [part for part in (share, speed, _left(left), note) if part]
            self._view.say(f"{self._description}: {', '.join(parts)}")

    def clock(self, elapsed_s: float, remaining_s: float | None, text: str) -> None:
        """Show a step that is measured in time (``remaining_s`` None: unknown).

        ``text`` gets its own line below the bar.
        """
        total = None if remaining_s is None else elapsed_s + remaining_s
        done = elapsed_s if total is None else min(elapsed_s, _NEARLY * total)
        ends = None if remaining_s is None else time.monotonic() + remaining_s
        text = printable_line(text)
        self._view.bars.update(
            self._task, completed=done, total=total, below=text, ends=ends, stalled=False
        )
        if self._is_due():
            parts = [f"{elapsed_s:.0f} s elapsed", text, _left(remaining_s)]
            self._view.say(f"{self._description}: {', '.join(part for part in parts if part)}")

    def stall(self, why: str) -> None:
        """Show that the progress is unknown until the next update."""
        below = printable_line(why)
        self._view.bars.update(self._task, rate="", note="", ends=None, below=below, stalled=True)

    def stop_countdown(self) -> None:
        """Show no remaining time until the next update."""
        self._view.bars.update(self._task, ends=None)

    def _is_due(self) -> bool:
        """Return True if a line is due, for output that is not a terminal."""
        now = time.monotonic()
        due = not self._view.live and now - self._said >= PLAIN_INTERVAL_SECONDS
        if due:
            self._said = now
        return due

    def finish(self, result: str = "", took_s: float | None = None) -> None:
        """Remove the bar and leave one line. ``took_s``: duration of a step that is shown late."""
        self._view.bars.remove_task(self._task)
        took = time.monotonic() - self._began if took_s is None else took_s
        how = f"{result} (took {took:.1f} s)" if result else f"done in {took:.1f} s"
        self._view.say(f"{self._description}: {how}")

    def abandon(self) -> None:
        """Remove the bar; the error is shown elsewhere."""
        self._view.bars.remove_task(self._task)


class _Bars(Progress):
    """Bars, and below them the text of a step that does not fit beside its bar."""

    def get_renderables(self) -> Iterator[RenderableType]:
        """Yield the table of bars, then the lines."""
        yield self.make_tasks_table(self.tasks)
        for task in self.tasks:
            if below := task.fields["below"]:
                yield Text(f"  {below}", style="dim", no_wrap=True, overflow="ellipsis")


def _left(remaining_s: float | None) -> str:
    return "" if remaining_s is None else f"about {remaining_s:.0f} s left"


class _Clock(ProgressColumn):
    """The rate of a step, and its remaining time or else its elapsed time, with labels."""

    def get_table_column(self) -> Column:
        """Return a column that is never shortened: a time needs its label."""
        return Column(no_wrap=True)

    def render(self, task: Task) -> Text:
        """``12.3 MB/s 0:01:30 left`` or ``0:00:04 elapsed``."""
        now, ends, began = time.monotonic(), task.fields["ends"], task.fields["began"]
        seconds, word = (now - began, "elapsed") if ends is None else (ends - now, "left")
        style = "progress.elapsed" if ends is None else "progress.remaining"
        text = Text(task.fields["rate"] and f"{task.fields['rate']} ")
        return text.append(f"{timedelta(seconds=max(0, round(seconds)))} {word}", style=style)


class _Share(TaskProgressColumn):
    """The finished share; a question mark while it is unknown."""

    def render(self, task: Task) -> Text:
        """``45%``."""
        return Text("   ?") if task.fields["stalled"] else super().render(task)


class _Words(ProgressColumn):
    """A text of a task, shortened on a narrow terminal."""

    def __init__(self, words: Callable[[Task], str], style: str = ""):
        super().__init__()
        self._words = words
        self._style = style

    def render(self, task: Task) -> Text:
        """Return the text, shortened by an ellipsis if there is too little space."""
        return Text(self._words(task), style=self._style, no_wrap=True, overflow="ellipsis")


class ProgressView:
    """All steps of one command."""

    def __init__(self) -> None:
        self._quiet = is_quiet()
        self._console = Console(stderr=True, emoji=False)
        self.live = self._console.is_terminal and not self._quiet
        fixed = Column(no_wrap=True)  # bar, share, rate and time are seen whole in 80 columns
        self.bars = _Bars(
            SpinnerColumn(table_column=fixed),
            _Words(lambda task: task.description),
            BarColumn(bar_width=_BAR_WIDTH, table_column=fixed),
            _Share(),
            _Clock(),
            _Words(lambda task: task.fields["note"], "dim"),
            console=self._console,
            refresh_per_second=_REDRAWS_PER_SECOND,
            transient=True,
            disable=not self.live,
        )

    def __enter__(self) -> Self:
        self.bars.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self.bars.stop()

    def say(self, line: str) -> None:
        """Print one plain line above the bars; nothing if only results and errors are wanted."""
        if not self._quiet:
            self.say_error(line)

    def say_error(self, line: str) -> None:
        """Print one plain line above the bars for an error that does not end the command."""
        self._console.print(printable_line(line), markup=False, highlight=False, soft_wrap=True)

    def open(self, description: str, total: float | None = None, age_s: float = 0.0) -> Step:
        """Start a step that the caller finishes or abandons; it began ``age_s`` ago."""
        return Step(self, description, total, age_s)

    @contextmanager
    def step(self, description: str, total: float | None = None) -> Iterator[Step]:
        """Start a step that ends with the block; on an error, only remove its bar."""
        step = self.open(description, total)
        try:
            yield step
        except BaseException:
            step.abandon()
            raise
        step.finish()


class Steps:
    """Steps one after the other: each ends when another begins."""

    def __init__(self, view: ProgressView):
        self._view = view
        self._now: tuple[str, Step] | None = None

    def note(self, text: str) -> None:
        """Print one line; the current step is done."""
        self.end()
        self._view.say(text)

    def step(
        self,
        step: str,
        done: float,
        total: float | None,
        *,
        age_s: float = 0.0,
        unit: str = "",
        per_second: float | None = None,
        remaining_s: float | None = None,
    ) -> None:
        """Show a bar until another step begins; this one began ``age_s`` ago."""
        if self._now is None or self._now[0] != step:
            self.end()
            self._now = (step, self._view.open(step, total, age_s))
        self._now[1].update(done, total, unit=unit, per_second=per_second, remaining_s=remaining_s)

    def stall(self, why: str) -> None:
        """Show that the progress of the current step, if any, is unknown."""
        if self._now:
            self._now[1].stall(why)

    def end(self, took_s: float | None = None) -> None:
        """Finish the current step, if any."""
        if self._now:
            self._now[1].finish(took_s=took_s)
            self._now = None

    def abandon(self) -> None:
        """Remove the bar of the current step."""
        if self._now:
            self._now[1].abandon()
            self._now = None
