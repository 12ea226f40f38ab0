"""Progress on standard error: live bars on a terminal, plain lines elsewhere."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
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
)
from rich.text import Text

from labctl.cli.output import is_quiet
from labctl.errors import printable, printable_line
from labctl.units import remaining_seconds

#: How often a step without a terminal says how far it is.
PLAIN_INTERVAL_SECONDS = 30.0
#: Seldom: where the board is this very host, redrawing takes time from what is measured.
_REDRAWS_PER_SECOND = 2
#: A bar says that it is full at the end, and not when an estimate of the end was too early.
_NEARLY = 0.99


class Step:
    """One long step, begun ``age_s`` ago. ``update`` may be called as often as one likes."""

    def __init__(
        self, view: "ProgressView", description: str, total: float | None, age_s: float = 0.0
    ):
        self._view = view
        self._description = description = printable_line(description)
        self._total = total
        self._said = time.monotonic()
        self._began = self._said - age_s
        self._task = view.bars.add_task(
            escape(description), total=total, note="", below="", began=self._began, ends=None
        )

    def update(
        self,
        done: float,
        total: float | None = None,
        note: str = "",
        remaining_s: float | None = None,
    ) -> None:
        """Show ``done`` of ``total``, in any unit; ``note`` is a short remark.

        ``remaining_s``: what is left, where the caller knows better than the rate so far.
        """
        self._total = total if total is not None else self._total
        now, note = time.monotonic(), printable_line(note)
        if remaining_s is None:
            remaining_s = remaining_seconds(now - self._began, done, self._total)
        ends = None if remaining_s is None else now + remaining_s
        self._view.bars.update(
            self._task, completed=done, total=self._total, note=escape(note), ends=ends
        )
        over = self._total is not None and done >= self._total  # its end is told by its result
        if not over and self._is_due():
            share = (
                f"{100 * done / self._total:.0f} %" if self._total else f"{now - self._began:.0f} s"
            )
            self._view.say(f"{self._description}: {share}{_left(remaining_s)} {note}".rstrip())

    def clock(self, elapsed_s: float, remaining_s: float | None, text: str) -> None:
        """Show a step that is measured in time (``remaining_s`` None: unknown).

        ``text`` gets its own line below the bar.
        """
        total = None if remaining_s is None else elapsed_s + remaining_s
        done = elapsed_s if total is None else min(elapsed_s, _NEARLY * total)
        ends = None if remaining_s is None else time.monotonic() + remaining_s
        text = printable_line(text)
        self._view.bars.update(self._task, completed=done, total=total, below=text, ends=ends)
        if self._is_due():
            line = f"{self._description}: {elapsed_s:.0f} s, {text}{_left(remaining_s)}"
            self._view.say(line)

    def _is_due(self) -> bool:
        """Return True if a line is due, for output that is not a terminal."""
        now = time.monotonic()
        due = not self._view.live and now - self._said >= PLAIN_INTERVAL_SECONDS
        if due:
            self._said = now
        return due

    def finish(self, result: str = "", took_s: float | None = None) -> None:
        """Take the bar away and leave one line. ``took_s``: for a step that is shown late."""
        self._view.bars.remove_task(self._task)
        took = time.monotonic() - self._began if took_s is None else took_s
        self._view.say(f"{self._description}: {result or 'done'} ({took:.1f} s)")

    def abandon(self) -> None:
        """Take the bar away; the error speaks."""
        self._view.bars.remove_task(self._task)


class _Bars(Progress):
    """Bars, and below them what is told of a step in more words than fit beside its bar."""

    def get_renderables(self) -> Iterator[RenderableType]:
        """Yield the table of bars, then the lines."""
        yield self.make_tasks_table(self.tasks)
        for task in self.tasks:
            if below := task.fields["below"]:
                yield Text(f"  {below}", style="dim", no_wrap=True, overflow="ellipsis")


def _left(remaining_s: float | None) -> str:
    return "" if remaining_s is None else f", about {remaining_s:.0f} s left"


class _Clock(ProgressColumn):
    """The time that a step took, or that is left of it: from or to a field of its task."""

    def __init__(self, field: str, style: str):
        super().__init__()
        self._field = field
        self._style = style

    def render(self, task: Task) -> Text:
        """``0:01:30``; nothing where it is not known."""
        at: float | None = task.fields[self._field]
        if at is None:
            return Text("")
        seconds = time.monotonic() - at
        shown = timedelta(seconds=max(0, round(seconds if self._field == "began" else -seconds)))
        return Text(str(shown), style=self._style)


class ProgressView:
    """All steps of one command."""

    def __init__(self) -> None:
        self._quiet = is_quiet()
        self._console = Console(stderr=True)
        self.live = self._console.is_terminal and not self._quiet
        self.bars = _Bars(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=16),
            TaskProgressColumn(),
            _Clock("began", "progress.elapsed"),
            _Clock("ends", "progress.remaining"),
            TextColumn("[dim]{task.fields[note]}"),
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
        """One plain line, above the bars; none if only results and errors are wanted."""
        if not self._quiet:
            self.say_error(line)

    def say_error(self, line: str) -> None:
        """One plain line, above the bars, of an error that does not end the command."""
        self._console.print(printable(line), markup=False, highlight=False, soft_wrap=True)

    def open(self, description: str, total: float | None = None, age_s: float = 0.0) -> Step:
        """Start a step that the caller finishes or abandons; it began ``age_s`` ago."""
        return Step(self, description, total, age_s)

    @contextmanager
    def step(self, description: str, total: float | None = None) -> Iterator[Step]:
        """Start a step that ends with the block; on an error its bar disappears without a
        message.
        """
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
        """One line; the step under way is done."""
        self.end()
        self._view.say(text)

    def step(
        self,
        step: str,
        done: float,
        total: float | None,
        *,
        age_s: float = 0.0,
        remaining_s: float | None = None,
    ) -> None:
        """Show a bar until another step begins; this one began ``age_s`` ago."""
        if self._now is None or self._now[0] != step:
            self.end()
            self._now = (step, self._view.open(step, total, age_s))
        self._now[1].update(done, total, remaining_s=remaining_s)

    def end(self, took_s: float | None = None) -> None:
        """Finish the current step, if any."""
        if self._now:
            self._now[1].finish(took_s=took_s)
            self._now = None

    def abandon(self) -> None:
        """Take the bar of the step under way away."""
        if self._now:
            self._now[1].abandon()
            self._now = None
