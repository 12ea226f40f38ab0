"""Arrival time of each generated token, from stdout and its timeline.

llama.cpp flushes after every token, so a chunk of stdout is a token, with exceptions. Tokens can
share a chunk when the reader was late. A token can print nothing (special tokens) or part of a
UTF-8 character. Two newlines that belong to no token end the output. The end of the text is itself
a sampled token; it shows as `` [end of text]``.

Two other stamps reveal tokens at the ends that have no arrival: the line before the prompt is read,
and the two newlines right after the last token (``tools/completion/completion.cpp``).

With ``--log-jsonl`` the program stamps its tokens itself. Format (``common/log.cpp``, 2026-10): one
JSON object per line on stdout, ``{"type":"log","time":US,"level":LEVEL,"msg":TEXT}``. Tokens have
the level ``none``, also tokens without text; ``time`` is in microseconds from the program's start.
Objects of other types have no stamp. The program takes a stamp from the **wall clock** when it
hands the entry to the printing thread: setting the clock moves the stamps. Slewing it (NTP) moves
the agent's monotonic clock too.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from pydantic import ConfigDict

from labctl.config.printed import FailFastModel
from labctl.engines.base import RawOutput, lines_of
from labctl.engines.llama_cpp.perf_lines import Perf
from labctl.engines.timeline import MOST_PIECES, STDERR, STDOUT, Timeline
from labctl.errors import OutputNotUnderstood
from labctl.records.timing import ClockCheck
from labctl.records.trial import Check
from labctl.units import duration

#: Ends the text of a completion.
TAIL = b"\n\n"
END_OF_TEXT = b" [end of text]\n"
NO_TAIL = "stdout does not end with the two newlines that llama.cpp prints after the last token"
#: The last line before the prompt is read, in all versions.
READY = "generate: n_ctx = "
#: Waits, in token times: below the first no token is missing, within the second one token is.
_NONE, _ONE = 0.25, (0.5, 1.5)


@dataclass(frozen=True)
class Arrivals:
    """Board times (monotonic, ns) at which generated text arrived.

    ``ready_ns``: time of the line before the prompt; None if it was not read separately.
    ``end_ns``: time of the newlines after the last token. ``joined``: True if the end of the text
    arrived together with the word before it. ``counts``: tokens of each arrival, if the output
    shows them.
    """

    start_ns: int
    times_ns: tuple[int, ...]
    ended_text: bool
    joined: bool
    ready_ns: int | None
    end_ns: int
    counts: tuple[int, ...] | None = None

    @property
    def tokens(self) -> int:
        """Smallest number of tokens in the arrivals."""
        return sum(self.counts) if self.counts else len(self.times_ns) + self.joined

    @property
    def held(self) -> dict[int, int]:
        """Number of tokens of each gap with several tokens, as far as known."""
        if self.counts:
            return {n: held for n, held in enumerate(self.counts[1:]) if held > 1}
        return {len(self.times_ns) - 2: 2} if self.joined and len(self.times_ns) > 1 else {}

    @property
    def after_ns(self) -> int:
        """Time from the last arrival to the program's last newlines."""
        return self.end_ns - self.times_ns[-1]

    def before_ns(self, prompt_ns: int | None) -> int | None:
        """Time from the end of the prompt, as the program reports it, to the first arrival."""
        if self.ready_ns is None or prompt_ns is None:
            return None
        return self.times_ns[0] - self.ready_ns - prompt_ns

    def unseen_first(self, perf: Perf) -> int | None:
        """Tokens before the first arrival, plus tokens in it, minus one; None if unknown."""
        if self.counts:
            return self.counts[0] - 1
        return self._tokens_in(self.before_ns(perf.prompt_eval_ns), perf)

    def unseen_last(self, perf: Perf) -> int | None:
        """Tokens after the last arrival: 0 or 1; None if unknown."""
        return 0 if self.ended_text or self.counts else self._tokens_in(self.after_ns, perf)

    def _tokens_in(self, wait_ns: int | None, perf: Perf) -> int | None:
        if wait_ns is None or len(self.times_ns) < 2:
            return None
        # Joined tokens widen the gaps; a stall increases the program's mean.
        gaps = median(late - early for early, late in pairwise(self.times_ns))
        token = min(gaps, perf.decode_ns / perf.decode_steps)
        if abs(wait_ns) < _NONE * token:
            return 0
        return 1 if _ONE[0] * token <= wait_ns < _ONE[1] * token else None


def find_arrivals(stdout: bytes, stderr: bytes, timeline: Timeline) -> Arrivals:
    """Cut stdout into arrivals.

    Raises OutputNotUnderstood if stdout is not from a finished completion, if the timeline belongs
    to other output, or if no token printed anything.
    """
    chunks = timeline.of(STDOUT)
    timed = chunks[-1].end if chunks else 0
    if timed != len(stdout):
        raise OutputNotUnderstood(
            f"the timeline covers {timed} bytes of stdout, which has {len(stdout)}"
        )
    if not stdout.endswith(TAIL):
        raise OutputNotUnderstood(NO_TAIL, details=stdout[-200:].decode(errors="replace") or None)
    text_end = len(stdout) - len(TAIL)
    ended_text = stdout.endswith(END_OF_TEXT, 0, text_end)
    times = [chunk.mono_ns for chunk in chunks if chunk.offset < text_end]
    joined = False
    if ended_text:
        # The marker is one arrival, even if a reader split it. Joined to the last word, it has no
        # arrival of its own.
        marker = text_end - len(END_OF_TEXT)
        words = [chunk for chunk in chunks if chunk.offset < marker]
        shown = next(chunk for chunk in chunks if chunk.end > marker)
        joined = shown in words
        times = [chunk.mono_ns for chunk in (words if joined else [*words, shown])]
    if not times:
        raise OutputNotUnderstood("stdout holds no generated text")
    end = next(chunk.mono_ns for chunk in chunks if chunk.end > text_end)
    ready = _ready(stderr, timeline)
    return Arrivals(timeline.start_mono_ns, tuple(times), ended_text, joined, ready, end)


def _ready(stderr: bytes, timeline: Timeline) -> int | None:
    at = stderr.rfind(READY.encode())
    return next((c.mono_ns for c in timeline.of(STDERR) if 0 <= at < c.end), None)


#: Maximum difference between the spans of agent and program: the error of a rate.
_SPAN_TOLERANCE = 0.01
#: Maximum lateness of a stamp: 1 % of a typical token, so that no single gap is off by more. For
#: fast tokens 1 ms, since waking the program's printing thread and the agent takes part of it.
_LATE_SHARE, _LATE_NS = 0.01, 1_000_000
_TEXT = "none"
_BEGIN = b'{"type":"log",'


class _Line(FailFastModel):
    model_config = ConfigDict(strict=True, frozen=True, defer_build=True)

    type: str
    time: int = 0
    level: str = ""
    msg: str = ""


@dataclass(frozen=True)
class _Entry:
    """An entry of the log; ``end`` is the offset of the first byte after its line."""

    end: int
    us: int
    level: str
    text: str

    def as_text(self) -> str:
        """Return its text as printed without ``--log-jsonl``."""
        if self.level in (_TEXT, "cont"):
            return self.text
        seconds, us = divmod(self.us, 1_000_000)
        stamp = f"{seconds // 60}.{seconds % 60:02}.{us // 1000:03}.{us % 1000:03}"
        return f"{stamp} {self.level[:1].upper()} {self.text}"


def as_text(raw: RawOutput) -> RawOutput:
    """Return the output in the form without ``--log-jsonl``; it has no timeline.

    Leaves out lines that are not entries. Output of another form is returned unchanged.
    """
    if not raw.stdout.startswith(_BEGIN):
        return raw
    entries, _ = _read(raw.stdout)
    printed = {True: "", False: ""}
    for is_text in printed:
        printed[is_text] = "".join(e.as_text() for e in entries if (e.level == _TEXT) is is_text)
    return RawOutput(printed[True].encode(), raw.stderr + printed[False].encode(), b"")


def find_tokens(stdout: bytes, timeline: Timeline) -> tuple[Arrivals, ClockCheck]:
    """Find the arrival time of each token, and compare it with the program's stamps.

    Raises OutputNotUnderstood for lines that are not entries, if stdout is not from a finished
    completion, or if no token was generated.
    """
    entries, other = _read(stdout)
    chunks = timeline.of(STDOUT)
    if other is not None:
        raise OutputNotUnderstood(
            "a line of stdout is not a log entry as --log-jsonl prints it",
            details=other[:200].decode(errors="replace"),
        )
    if (chunks[-1].end if chunks else 0) != len(stdout):
        raise OutputNotUnderstood("the timeline does not cover stdout")
    ready = max((n for n, e in enumerate(entries) if READY in e.text), default=len(entries))
    tokens = [entry for entry in entries[ready:] if entry.level == _TEXT]
    if not tokens or tokens[-1].text != TAIL.decode():
        raise OutputNotUnderstood(NO_TAIL, details=stdout[-200:].decode(errors="replace") or None)
    *tokens, tail = tokens
    # The sampled end of the text is one entry, its words are another.
    ended_text = bool(tokens) and tokens[-1].text == END_OF_TEXT.decode()
    tokens = tokens[:-1] if ended_text else tokens
    if not tokens:
        raise OutputNotUnderstood("stdout holds no generated token")
    ends = iter(chunks)
    chunk = next(ends)
    seen = {}
    for entry in (entries[ready], *tokens, tail):
        while chunk.end < entry.end:
            chunk = next(ends)
        seen[entry.end] = chunk.mono_ns
    agent = [seen[token.end] for token in tokens]
    times = tuple(sorted(set(agent)))
    arrivals = Arrivals(
        start_ns=timeline.start_mono_ns,
        times_ns=times,
        ended_text=ended_text,
        joined=False,
        ready_ns=seen[entries[ready].end],
        end_ns=seen[tail.end],
        counts=tuple(agent.count(at) for at in times),
    )
    return arrivals, _compared(agent, [token.us * 1000 for token in tokens])


def clocks_check(clocks: ClockCheck) -> Check:
    """Compare both spans, and search for late stamps of the agent."""
    program = sum(clocks.program_ns)
    late = clocks.late_ns
    agent = program + late[-1] - late[0]
    if not clocks.program_ns:
        return Check(name="clocks", ok=None, detail="one token")
    if min(clocks.program_ns) < 0 or program == 0:
        detail = "the program's stamps (wall clock) go back or stand still: the clock was set"
        return Check(name="clocks", ok=False, detail=detail)
    bound = max(_LATE_NS, _LATE_SHARE * median(clocks.program_ns))
    latest = max(range(len(late)), key=lambda n: late[n])
    over = sum(ns > bound for ns in late)
    spans = f"agent {duration(agent)}, program {duration(program)} ({agent / program:.4f})"
    found = [f"first to last token: {spans}"]
    found.append(
        f"latest stamp: token {latest + 1}, by {duration(late[latest])};"
        f" {over} of {len(late)} late by more than {duration(bound)}"
    )
    for end, ns in (("first", late[0]), ("last", late[-1])):
        if ns > bound:
            found.append(f"the {end} token's stamp is {duration(ns)} late")
    if clocks.program_ns[0] + late[1] == late[0]:
        found.append("the first token was read together with the next one")
    if clocks.program_ns[-1] + late[-1] == late[-2]:
        found.append("the last token was read together with the one before")
    ok = abs(agent / program - 1) <= _SPAN_TOLERANCE and late[latest] <= bound
    return Check(name="clocks", ok=ok, detail="; ".join(found))


def _compared(agent_ns: Sequence[int], program_ns: Sequence[int]) -> ClockCheck:
    """Compare clocks without a common zero: lateness counts from the token read earliest."""
    behind = [agent - program for agent, program in zip(agent_ns, program_ns, strict=True)]
    soonest = min(behind)
    return ClockCheck(
        program_ns=tuple(after - before for before, after in pairwise(program_ns)),
        late_ns=tuple(ns - soonest for ns in behind),
    )


def _read(stdout: bytes) -> tuple[list[_Entry], bytes | None]:
    """Return the entries of the log, and the first line that is not an entry."""
    entries = []
    other, end = None, 0
    for line in lines_of(stdout, most=MOST_PIECES):
        end += len(line)
        try:
            read = _Line.of_json(line)
        except ValueError:
            read = None
        if read is None or (read.type == "log" and not {"time", "level"} <= read.model_fields_set):
            other = other or line
        elif read.type == "log":
            entries.append(_Entry(end, read.time, read.level, read.msg))
    return entries, other
