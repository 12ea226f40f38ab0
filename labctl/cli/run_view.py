"""Shows the events of a run as they come: on a terminal, or as plain lines."""

from datetime import UTC, datetime

from labctl.cli.output import Invocation
from labctl.cli.progress import STILL_LOST_SECONDS, ProgressView, Step, Steps
from labctl.errors import Blame
from labctl.records.events import (
    Answers,
    AnyEvent,
    Contact,
    Deploy,
    End,
    Evaluation,
    Event,
    Fetch,
    Load,
    LoadTest,
    Loss,
    Note,
    Progress,
    Trial,
)
from labctl.units import counted, digits, duration


class RunView:
    """Shows the events of a run, from this process or a file, even if started late.

    Durations come from the events. All text goes through the ProgressView, which removes control
    sequences.
    """

    def __init__(self, view: ProgressView):
        self._view = view
        self._steps = Steps(view)
        #: The current step, and the event that began it.
        self._step: tuple[str, Event] | None = None
        self._overall: Step | None = None
        #: The current load of a load test, by name.
        self._loads: dict[str, Step] = {}
        self._trial: tuple[Step, Trial] | None = None
        #: The first loss of the link; None while there is a link.
        self._loss: Loss | None = None
        #: The last loss that a line was printed for.
        self._told: Loss | None = None
        self._skipped: set[str] = set()
        #: Progress of the trial at the last answer of its board.
        self._seen = ""
        self._run: str | None = None
        #: The activity of the run in one line; empty between trials.
        self.now = ""

    def show(self, event: AnyEvent) -> None:
        """Show one event."""
        match event:
            case Note():
                self.end_step(event)
                self._view.say(event.text)
            case Fetch() | Deploy():
                self._link_is_back(event)
                self._show_step(event.step, event)
            case Progress(number=None):
                self._show_step(event.phase, event)
            case Progress():
                self._progress(event)
            case Trial(state="started"):
                self._start(event)
            case Trial():
                self._end(event)
            case Answers():
                self._answers(event)
            case Loss():
                self._lose_link(event)
            case Load():
                self._load(event)
            case Contact() | Evaluation() | LoadTest() | End():
                self._begin_or_end(event)

    def _begin_or_end(self, event: Contact | Evaluation | LoadTest | End) -> None:
        self.close()
        if not isinstance(event, End):
            self._run = event.run
        elif event.state == "finished" and (invocation := Invocation.current()):
            invocation.finished_run = self._run

    def _show_step(self, name: str, event: Fetch | Deploy | Progress) -> None:
        if self._step is None or self._step[0] != name:
            self.end_step(event)
            self._step, self.now = (name, event), name
        age = _age_s(self._step[1])
        self._steps.step(
            name,
            event.done or 0,
            event.total,
            age_s=age,
            unit="bytes" if isinstance(event, Deploy) else "",
            per_second=None if isinstance(event, Progress) else event.per_second,
            remaining_s=event.remaining_s,
        )

    def _lose_link(self, event: Loss) -> None:
        """Print a line for a loss and then every 10 s; the known progress is outdated."""
        if self._loss is not None and self._told is not None:
            if _seconds(self._told, event) >= STILL_LOST_SECONDS:
                self._told = event
                away = _seconds(self._loss, event)
                self._view.say(f"still no link to the board after {away:.0f} s; retrying")
        else:
            self._loss = self._told = event
            self._view.say(f"{event.text}; retrying")
            since = f"no link to the board since {event.utc.astimezone():%H:%M:%S}, retrying"
            last = f"; last seen: {self._seen}" if self._trial and self._seen else ""
            self._steps.stall(since)
            if self._overall:
                self._overall.stop_countdown()
            if self._trial:
                self._trial[0].stall(since + last)
                self.now = f"{_title(self._trial[1])}: {since}{last}"

    def _link_is_back(self, event: Event) -> None:
        if self._loss is not None:
            self._view.say(f"the link is back after {_seconds(self._loss, event):.0f} s")
            self._loss = None
            if self._trial:
                self._show_overall(self._trial[1])

    def end_step(self, now: Event | None = None) -> None:
        """End the current step, if any, at the time of an event."""
        if self._step:
            self._steps.end(None if now is None else _seconds(self._step[1], now))
            self._step, self.now = None, ""

    def close(self) -> None:
        """Remove the bars of a run whose controller has ended."""
        self._steps.abandon()
        for step in (self._trial and self._trial[0], self._overall, *self._loads.values()):
            if step:
                step.abandon()
        self._loads = {}
        self._step = self._trial = self._overall = None

    def _start(self, event: Trial) -> None:
        self.end_step(event)
        if self._trial:  # its controller died
            self._trial[0].abandon()
        self._show_overall(event)
        step = self._view.open(_title(event), event.expected_s, age_s=_age_s(event))
        self._trial, self.now, self._seen = (step, event), _title(event), ""

    def _show_overall(self, started: Trial) -> None:
        age, left = _age_s(started), started.run_remaining_s
        if self._overall is None:
            self._overall = self._view.open("all trials", started.trials, age_s=age)
        left = None if left is None else max(0.0, left - age)
        self._overall.update(started.number - 1, remaining_s=left)

    def _progress(self, event: Progress) -> None:
        self._link_is_back(event)
        if self._trial and event.elapsed_s is not None:
            age, left = _age_s(event), event.remaining_s
            left = None if left is None else max(0.0, left - age)
            self._seen = progress_text(event)
            self._trial[0].clock(event.elapsed_s + age, left, self._seen)
            self.now = f"{_title(self._trial[1])}: {self._seen}"

    def _answers(self, event: Answers) -> None:
        age, left = _age_s(event), event.remaining_s
        if self._overall is None:
            self.end_step(event)
            self._overall = self._view.open("answers", event.planned, age_s=age)
        left = None if left is None else max(0.0, left - age)
        note = answers_text(event)
        self._overall.update(event.done, event.planned, note, remaining_s=left)
        self.now = f"{event.done} of {event.planned} answers"

    def _load(self, event: Load) -> None:
        if event.load not in self._loads:
            self.close()
            self._loads[event.load] = self._view.open(event.load, age_s=_age_s(event))
        step = self._loads[event.load]
        if event.total is not None:
            remark = "warming up" if event.is_warming_up else ""
            step.update(event.done, event.total, remark, unit="requests")
        elif event.duration_s is not None:
            elapsed = event.elapsed_s + _age_s(event)
            left = max(0.0, event.duration_s - elapsed)
            step.clock(elapsed, left, counted(event.done, "answer"))
        self.now = f"{event.load}: {counted(event.done, 'answer')}"

    def _end(self, event: Trial) -> None:
        """Print one result line; for trials that are not run, one line for each variant."""
        self.now = ""
        if self._trial:
            step, began = self._trial
            step.finish(_result(event), took_s=_seconds(began, event))
            self._trial = None
        elif event.variant not in self._skipped:
            self._skipped.add(event.variant)
            self._view.say(f"{_title(event)}: {_result(event)}")
        if event.failure and event.failure.blame is Blame.JOB and event.failure.hint:
            self._view.say(f"  hint: {event.failure.hint}")
        self._loss = None


def progress_text(progress: Progress) -> str:
    """Format ``generating, 17/32 tokens, 3.21 tokens/s, 61.3 °C``, as far as it is known."""
    parts = [progress.phase]
    if progress.done:
        total = "" if progress.total is None else f"/{progress.total}"
        one = (progress.done if progress.total is None else progress.total) == 1
        unit = progress.unit.removesuffix("s") if one else progress.unit
        parts.append(f"{progress.done}{total} {unit}")
    if progress.per_second is not None:
        parts.append(f"{digits(progress.per_second)} {progress.unit}/s")
    if progress.temperature_mc is not None:
        parts.append(f"{progress.temperature_mc / 1000:.1f} °C")
    return ", ".join(parts)


def answers_text(event: Answers) -> str:
    """Format ``small/plain 51.6 % (48.9-54.3), 3 retries``, as far as it is known."""
    parts = [
        f"{one.variant} {100 * one.correct / one.graded:.1f}%"
        f" ({100 * one.low:.1f}-{100 * one.high:.1f})"
        for one in event.accuracies
    ]
    if event.retries:
        parts.append("1 retry" if event.retries == 1 else f"{event.retries} retries")
    return ", ".join(parts)


def _title(event: Trial) -> str:
    return f"trial {event.number}/{event.trials} {event.slug}"


def _result(event: Trial) -> str:
    if event.state == "retrying":
        return f"interrupted: {event.reason}; retrying"
    if event.state == "skipped":
        return f"not measured: {event.reason}"
    if event.failure:
        # Any other failure ends the run, and is shown at its end.
        why = f": {event.failure.message}" if event.failure.blame is Blame.JOB else ""
        return f"failed ({event.failure.blame}){why}"
    return f"{duration(event.token_ns)} per token" if event.token_ns else "ok"


def _seconds(began: Event, ended: Event) -> float:
    return max(0.0, (ended.mono_ns - began.mono_ns) / 1e9)


def _age_s(event: Event) -> float:
    """Return the age (s) of an event that is read late."""
    return max(0.0, (datetime.now(UTC) - event.utc).total_seconds())
