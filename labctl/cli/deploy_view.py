"""Output of a deploy: before, during and after it."""

import threading
import time
from datetime import datetime

from labctl.cli.progress import ProgressView, Step, Steps
from labctl.deploy import Object
from labctl.errors import BoardBusy, InfraError, printable_line
from labctl.progress import Throughput
from labctl.runs import BoardTask, DeployPreview, FleetView
from labctl.units import counted, duration, size


def preview_text(preview: DeployPreview) -> str:
    """List missing files, transfer times, free space and problems."""
    name, plan = preview.board.name, preview.plan
    if plan.missing:
        files = counted(len(plan.missing), "file")
        there = f", {size(plan.arrived_bytes)} of it are there" if plan.arrived_bytes else ""
        lines = [f"{name} needs {files} ({size(plan.bytes)}{there}){_time(preview)}:"]
        lines += [
            f"  {printable_line(item.name)}  {size(item.size_bytes)}" for item in plan.missing
        ]
    else:
        lines = [f"{name} needs nothing"]
    lines += [f"  memory: {fit.message()}" for fit in preview.fits]
    lines += [f"  warning: {warning}" for warning in preview.warnings]
    lines += [f"  problem: {problem.message}" for problem in preview.problems]
    return "\n".join(lines)


def _time(preview: DeployPreview) -> str:
    if preview.seconds is None or preview.bytes_per_second is None:
        return "; transfer time unknown: no speed was measured yet"
    limited = ", the limit" if preview.is_limited else ""
    speed = f"{size(preview.bytes_per_second)}/s{limited}"
    return f"; about {duration(preview.seconds * 1e9)} at {speed}"


def result_text(task: BoardTask) -> str:
    """Describe the result of a board in one line."""
    name, preview = task.board.name, task.preview
    if task.error is not None or preview is None:
        return f"{name}: {task.error.message if task.error else 'nothing was done'}"
    sent, all_of_them = len(preview.plan.missing), counted(len(preview.plan.objects), "file")
    text = f"{name} has all {all_of_them}; {sent} {'was' if sent == 1 else 'were'} sent"
    if task.watch and task.watch.bytes_per_second:
        text += f": {size(task.watch.sent_bytes)} at {size(task.watch.bytes_per_second)}/s"
    return text


def waiting_text(error: BoardBusy) -> str:
    """Name who uses the board, and what to do about it, in one line."""
    return f"{error.message}; waiting until it is free (--no-wait does not)"


class BoardsView(FleetView):
    """One bar for each board: how much it has, how fast, what comes just now."""

    def __init__(self, view: ProgressView, boards: int):
        self._view = view
        self._host = Steps(view)
        self._boards = boards
        self._lock = threading.Lock()
        self._steps: dict[str, Step] = {}
        #: Bytes of each object, by SHA-256: those that are there, and those that were at first.
        self._done: dict[str, tuple[dict[str, int], dict[str, int]]] = {}
        self._speeds: dict[str, Throughput] = {}
        self._lost: set[str] = set()

    def note(self, text: str) -> None:
        """One line."""
        self._view.say(text)

    def step(self, step: str, done: int, total: int | None) -> None:
        """Show a bar until another step of this host begins."""
        with self._lock:
            self._host.step(step, done, total)

    def end_step(self) -> None:
        """Finish the step on this host."""
        self._host.end()

    def waits(self, error: BoardBusy) -> None:
        """One line that names who uses the board."""
        with self._lock:
            self._host.note(waiting_text(error))

    def moved(self, task: BoardTask, item: Object, done_bytes: int) -> None:
        """Move the board's bar."""
        name, preview = task.board.name, task.preview
        wanted = {o.sha256 for o in preview.plan.missing} if preview else set()
        with self._lock:
            self._lost.discard(name)
            if item.sha256 not in wanted:
                return  # the agent: it is not worth a bar
            if name not in self._steps:
                total = preview.plan.bytes if preview else None
                self._steps[name] = self._view.open(f"send to {name}", total)
            done, first = self._done.setdefault(name, ({}, {}))
            # What was there already, from an earlier attempt, was not fast: it was not sent.
            first.setdefault(item.sha256, done_bytes)
            done[item.sha256] = done_bytes
            whole, now = sum(done.values()), time.monotonic()
            speed = self._speeds.setdefault(name, Throughput())
            per_second = speed.per_second(now, whole - sum(first.values()))
            total = preview.plan.bytes if preview else whole
            self._steps[name].update(
                whole,
                note=item.name,
                unit="bytes",
                per_second=per_second,
                remaining_s=(total - whole) / per_second if per_second else None,
            )

    def lost(self, task: BoardTask, error: InfraError) -> None:
        """One line each time, however often it is tried again."""
        name = task.board.name
        with self._lock:
            if name not in self._lost:
                self._lost.add(name)
                self._view.say(f"{name}: {error.message}; trying again")
                if name in self._steps:
                    since = f"{datetime.now():%H:%M:%S}"
                    self._steps[name].stall(
                        f"no link to {name} since {since}, trying again; what came stays there"
                    )

    def ended(self, task: BoardTask) -> None:
        """Take the bar away; with several boards, an error is shown at once."""
        name, error = task.board.name, task.error
        with self._lock:
            step = self._steps.pop(name, None)
            if step and error is None:
                step.finish()
            elif step:
                step.abandon()
            if error is not None:
                self._host.abandon()  # what failed is not done
            if error is not None and self._boards > 1:
                self._view.say_error(f"{name}: {error.message}")
                for line in (f"hint: {error.hint}" if error.hint else "", error.details or ""):
                    if line:
                        self._view.say_error(f"  {line}")

    def end(self) -> None:
        """Nothing moves any more."""
        for step in self._steps.values():
            step.abandon()
