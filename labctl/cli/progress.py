"""Progress on standard error: live bars on a terminal, plain lines elsewhere."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from types import TracebackType
from typing import Self

from rich.console import Console, RenderableType
from rich.markup import escape
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from labctl.errors import printable, printable_line

#: How often a step without a terminal says how far it is.
PLAIN_INTERVAL_SECONDS = 30.0
#: Seldom: where the board is this very host, redrawing takes time from what is measured.
_REDRAWS_PER_SECOND = 2
#: A bar says that it is full at the end, and not when an estimate of the end was too early.
_NEARLY = 0.99


class Step:
    """One long step. ``update`` may be called as often as one likes."""

    def __init__(self, view: "ProgressView", description: str, total: float | None):
        self._view = view
        self._description = description = printable_line(description)
        self._total = total
        self._began = self._said = time.monotonic()
        self._task = view.bars.add_task(
            escape(description), total=total, note="", below="", ends=None
        )

    def update(self, done: float, total: float | None = None, note: str = "") -> None:
        """``done`` of ``total``, in any unit; ``note`` is a short remark."""
        self._total = total if total is not None else self._total
        note = printable_line(note)
        self._view.bars.update(self._task, completed=done, total=self._total, note=escape(note))
        over = self._total is not None and done >= self._total  # its end is told by its result
        if not over and self._is_due():
            now = time.monotonic()
            self._view.say(f"{self._description}: {self._plain(done, now)} {note}".rstrip())

    def clock(self, elapsed_s: float, remaining_s: float | None, told: str) -> None:
        """A step that is measured in time (``remaining_s`` None: nobody knows how long).

        ``told`` gets a line of its own below the bar.
        """
        total = None if remaining_s is None else elapsed_s + remaining_s
        done = elapsed_s if total is None else min(elapsed_s, _NEARLY * total)
        ends = None if remaining_s is None else time.monotonic() + remaining_s
        self._view.bars.update(self._task, completed=done, total=total, below=told, ends=ends)
        if self._is_due():
            left = "" if remaining_s is None else f", about {remaining_s:.0f} s left"
            self._view.say(f"{self._description}: {elapsed_s:.0f} s, {told}{left}")

    def _is_due(self) -> bool:
        """Whether a line is due where there is no terminal."""
        now = time.monotonic()
        due = not self._view.live and now - self._said >= PLAIN_INTERVAL_SECONDS
        if due:
            self._said = now
        return due

    def _plain(self, done: float, now: float) -> str:
        if not self._total or done <= 0:
            return f"{now - self._began:.0f} s"
        left = (now - self._began) * (self._total - done) / done
        return f"{100 * done / self._total:.0f} %, about {left:.0f} s left"

    def finish(self, result: str = "") -> None:
        """Take the bar away and leave one line."""
        self._view.bars.remove_task(self._task)
        took = time.monotonic() - self._began
        self._view.say(f"{self._description}: {result or 'done'} ({took:.1f} s)")

    def abandon(self) -> None:
        """Take the bar away; the error speaks."""
        self._view.bars.remove_task(self._task)


class _Bars(Progress):
    """Bars, and below them what is told of a step in more words than fit beside its bar."""

    def get_renderables(self) -> Iterator[RenderableType]:
        """The table of bars, then the lines."""
        yield self.make_tasks_table(self.tasks)
        for task in self.tasks:
            if below := task.fields["below"]:
                yield Text(f"  {below}", style="dim", no_wrap=True, overflow="ellipsis")


class _Left(ProgressColumn):
    """Time remaining, only where the end or a total is known."""

    def __init__(self) -> None:
        super().__init__()
        self._remaining = TimeRemainingColumn()

    def render(self, task: Task) -> Text:
        """``0:01:30``."""
        ends: float | None = task.fields["ends"]
        if ends is not None:
            left = timedelta(seconds=max(0, round(ends - time.monotonic())))
            return Text(str(left), style="progress.remaining")
        return self._remaining.render(task) if task.total else Text("")


class ProgressView:
    """All steps of one command."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self.live = self._console.is_terminal
        self.bars = _Bars(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=16),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            _Left(),
            TextColumn("[dim]{task.fields[note]}"),
            console=self._console,
            refresh_per_second=_REDRAWS_PER_SECOND,
            transient=True,
            disable=not self.live,
        )

    def __enter__(self) -> Self:
        self.bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.bars.stop()

    def say(self, line: str) -> None:
        """One plain line, above the bars."""
        self._console.print(printable(line), markup=False, highlight=False, soft_wrap=True)

    def open(self, description: str, total: float | None = None) -> Step:
        """A step that the caller finishes or abandons."""
        return Step(self, description, total)

    @contextmanager
    def step(self, description: str, total: float | None = None) -> Iterator[Step]:
        """A step that ends with the block; on an error its bar goes without a word."""
        step = self.open(description, total)
        try:
            yield step
        except BaseException:
            step.abandon()
            raise
        step.finish()
