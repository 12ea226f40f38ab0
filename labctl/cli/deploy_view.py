"""Output of a deploy: before, during and after it."""

import threading
import time
from dataclasses import dataclass
from datetime import datetime

from labctl.cli.progress import STILL_LOST_SECONDS, ProgressView, Step, Steps
from labctl.deploy.plan import Object
from labctl.errors import BoardBusy, InfraError, printable_line
from labctl.runs.board.deploy_preview import DeployPreview
from labctl.runs.deploy import BoardTask, FleetView, SendProgress
from labctl.units import counted, duration, size

#: Interval (s) of a bar's updates while bytes are sent.
_SHOW_SECONDS = 0.25


def preview_lines(preview: DeployPreview) -> list[str]:
    """List missing files, transfer times, free space and problems, a line each."""
    name, plan = preview.board.name, preview.plan
    if plan.missing:
        files = counted(len(plan.missing), "file")
        there = f", {size(plan.arrived_bytes)} are there already" if plan.arrived_bytes else ""
        lines = [f"{name} needs {files} ({size(plan.bytes)}{there}){_time(preview)}:"]
        lines += [f"  {item.name}  {size(item.size_bytes)}" for item in plan.missing]
    else:
        lines = [f"{name} needs nothing"]
    lines += [f"  memory: {fit.message()}" for fit in preview.fits]
    lines += [f"  warning: {warning}" for warning in preview.warnings]
    lines += [f"  problem: {problem.message}" for problem in preview.problems]
    return [printable_line(line) for line in lines]


def _time(preview: DeployPreview) -> str:
    if preview.seconds is None or preview.bytes_per_second is None:
        return "; transfer time unknown, no speed was measured yet"
    limited = ", the limit" if preview.is_limited else ""
    speed = f"{size(preview.bytes_per_second)}/s{limited}"
    about = "at least" if preview.known_bytes_per_second is None else "about"
    return f"; {about} {duration(preview.seconds * 1e9)} at {speed}"


def result_text(task: BoardTask) -> str:
    """Describe the result of a board in one line."""
    name, preview = task.board.name, task.preview
    if task.error is not None or preview is None:
        return f"{name}: {task.error.message if task.error else 'nothing was done'}"
    sent, wanted = len(preview.plan.missing), len(preview.plan.objects)
    files = "its only file" if wanted == 1 else f"all {counted(wanted, 'file')}"
    text = f"{name} has {files}; {sent} {'was' if sent == 1 else 'were'} sent"
    if task.watch and task.watch.bytes_per_second:
        text += f": {size(task.watch.sent_bytes)} at {size(task.watch.bytes_per_second)}/s"
    return text


def waiting_text(error: BoardBusy) -> str:
    """Name the user of the board and the alternative, in one line."""
    return f"{error.message}; waiting until it is free (--no-wait does not)"


@dataclass
class _Sending:
    """The delivery to a board, as its bar shows it."""

    step: Step
    progress: SendProgress
    file: str = ""
    shown_at: float = 0.0

    def show(self) -> None:
        """Show the bytes that are on the board or being sent, and the rate of sending."""
        self.shown_at = time.monotonic()
        per_second, remaining_s = self.progress.pace(self.shown_at)
        self.step.update(
            self.progress.done_bytes,
            note=self.file,
            unit="bytes",
            per_second=per_second,
            remaining_s=remaining_s,
        )


class BoardsView(FleetView):
    """One bar for each board: its bytes, the rate, the current file."""

    def __init__(self, view: ProgressView, boards: int):
        self._view = view
        self._host = Steps(view)
        self._boards = boards
        self._lock = threading.Lock()
        self._sending: dict[str, _Sending] = {}
        #: Boards without a link: times of the loss and of the last line (monotonic clock, s).
        self._lost: dict[str, tuple[float, float]] = {}

    def note(self, text: str) -> None:
        """Print one line."""
        self._view.say(text)

    def step(self, step: str, done: int, total: int | None) -> None:
        """Show a bar until another step of this host begins."""
        with self._lock:
            self._host.step(step, done, total)

    def end_step(self) -> None:
        """Finish the step on this host."""
        self._host.end()

    def waits(self, error: BoardBusy) -> None:
        """Print one line that names the user of the board."""
        with self._lock:
            self._host.note(waiting_text(error))

    def begun(self, task: BoardTask, count: int) -> None:
        """Open the board's bar, for ``count`` bytes."""
        name = task.board.name
        with self._lock:
            sending = _Sending(self._view.open(f"send to {name}", count), SendProgress(count))
            self._sending[name] = sending
            sending.show()

    def sent(self, task: BoardTask, count: int) -> None:
        """Update the board's bar if its interval is over."""
        with self._lock:
            sending = self._sending[task.board.name]
            sending.progress.sent(count)
            if time.monotonic() - sending.shown_at >= _SHOW_SECONDS:
                sending.show()

    def moved(self, task: BoardTask, item: Object, done_bytes: int) -> None:
        """Update the board's bar."""
        name = task.board.name
        with self._lock:
            self._lost.pop(name, None)
            if (sending := self._sending.get(name)) is None:
                return  # the agent is too small for a bar
            sending.progress.arrived(item, done_bytes)
            sending.file = item.name
            sending.show()

    def lost(self, task: BoardTask, error: InfraError) -> None:
        """Print a line for a loss, and then every 10 s."""
        name, now = task.board.name, time.monotonic()
        with self._lock:
            if name in self._lost:
                began, told = self._lost[name]
                if now - told >= STILL_LOST_SECONDS:
                    self._lost[name] = began, now
                    self._view.say(f"{name}: still no link after {now - began:.0f} s; retrying")
            else:
                self._lost[name] = now, now
                self._view.say(f"{name}: {error.message}; retrying")
                if sending := self._sending.get(name):
                    sending.progress.lost()
                    since = f"{datetime.now():%H:%M:%S}"
                    sending.step.stall(
                        f"no link to {name} since {since}, retrying; sent data stays there"
                    )

    def ended(self, task: BoardTask) -> None:
        """Remove the bar; with several boards, print an error at once."""
        name, error = task.board.name, task.error
        with self._lock:
            sending = self._sending.pop(name, None)
            if sending and error is None:
                sending.step.finish()
            elif sending:
                sending.step.abandon()
            if error is not None:
                self._host.abandon()  # a failed step is not done
            if error is not None and self._boards > 1:
                self._view.say_error(f"{name}: {error.message}")
                for line in (error.details or "").splitlines():
                    self._view.say_error(f"  | {line}")
                if error.hint:
                    self._view.say_error(f"  hint: {error.hint}")

    def end(self) -> None:
        """Close the view."""
        for sending in self._sending.values():
            sending.step.abandon()
