"""Progress of a running program, from its output so far. For display only."""

from dataclasses import dataclass

from labctl.records.telemetry import StreamSoFar

#: Names of a run's phases that engines distinguish.
LOADING, PROMPT, GENERATING, RUNNING = "loading", "reading the prompt", "generating", "running"


@dataclass(frozen=True)
class Seen:
    """Output of both streams so far; ``stderr_end`` is the end of standard error as text."""

    stdout: StreamSoFar
    stderr: StreamSoFar
    stderr_end: str = ""


@dataclass(frozen=True)
class ProgramProgress:
    """``done`` of ``total`` items (None: unknown), between two times of the board's clock."""

    phase: str
    done: int
    total: int | None
    unit: str
    first_ns: int | None = None
    last_ns: int | None = None

    @property
    def per_second(self) -> float | None:
        """Rate from the first to the last item; None for fewer than two items."""
        if self.first_ns is None or self.last_ns is None or self.last_ns <= self.first_ns:
            return None
        return (self.done - 1) * 1e9 / (self.last_ns - self.first_ns) if self.done > 1 else None

    def remaining_s(self, now_ns: int) -> float | None:
        """Return the remaining time in s at this rate, by the board's clock; None if unknown."""
        rate = self.per_second
        if rate is None or self.total is None or self.last_ns is None:
            return None
        return max(0.0, (self.total - self.done) / rate - (now_ns - self.last_ns) / 1e9)


def printed(seen: Seen) -> ProgramProgress:
    """Return the progress of an unknown program: the number of printed bytes."""
    stream = seen.stdout if seen.stdout.bytes else seen.stderr
    if stream.lines:
        times = stream.first_ns, stream.last_ns
        return ProgramProgress(RUNNING, stream.lines, None, "lines", *times)
    return ProgramProgress(RUNNING, stream.bytes, None, "bytes")


def generated(stream: StreamSoFar, count: int, asked: int | None, before: str) -> ProgramProgress:
    """Return the progress of a program with visible tokens; ``before``: phase before the first."""
    done = count if asked is None else min(count, asked)
    phase = GENERATING if done else before
    return ProgramProgress(phase, done, asked, "tokens", stream.first_ns, stream.last_ns)
