"""Arrival time of each generated token, from stdout and its timeline.

llama.cpp flushes after every token, so a chunk of stdout is a token - nearly: tokens can share a
chunk when the reader was late, a token can print nothing (special tokens) or a part of a UTF-8
character, and two newlines that belong to no token end the output. The end of the text
is itself a sampled token and shows as `` [end of text]``.

Two other stamps tell of tokens at the ends that have no arrival: the line before the prompt is
read, and the two newlines right after the last token (``tools/completion/completion.cpp``).
"""

from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from labctl.engines.llama_cpp.perf import Perf
from labctl.engines.timeline import STDERR, STDOUT, Timeline
from labctl.errors import OutputNotUnderstood

#: Ends the text of a completion.
TAIL = b"\n\n"
END_OF_TEXT = b" [end of text]\n"
NO_TAIL = "stdout does not end with the two newlines that llama.cpp prints after the last token"
#: The last line before the prompt is read, in all versions.
READY = "generate: n_ctx = "
#: Waits, in times of a token, that are none for a token, and those that are for one.
_NONE, _ONE = 0.25, (0.5, 1.5)


@dataclass(frozen=True)
class Arrivals:
    """Board times (monotonic, ns) at which generated text arrived.

    ``ready_ns`` is that of the line before the prompt, None where it was not read by itself;
    ``end_ns`` that of the newlines after the last token. ``joined``: the last arrival is the end of
    the text together with the word before it. ``counts`` are the tokens of each arrival, where the
    output tells them.
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
        """The fewest tokens that they stand for."""
        return sum(self.counts) if self.counts else len(self.times_ns) + self.joined

    @property
    def held(self) -> dict[int, int]:
        """Tokens of the gaps that are known to hold several."""
        if self.counts:
            return {n: held for n, held in enumerate(self.counts[1:]) if held > 1}
        return {len(self.times_ns) - 2: 2} if self.joined and len(self.times_ns) > 1 else {}

    @property
    def after_ns(self) -> int:
        """From the last arrival until the program was done."""
        return self.end_ns - self.times_ns[-1]

    def before_ns(self, prompt_ns: int | None) -> int | None:
        """From the end of the prompt, of which the program knows the time, to the first arrival."""
        if self.ready_ns is None or prompt_ns is None:
            return None
        return self.times_ns[0] - self.ready_ns - prompt_ns

    def unseen_first(self, perf: Perf) -> int | None:
        """Tokens before the first arrival or with it, one aside; None where it is not known."""
        if self.counts:
            return self.counts[0] - 1
        return self._tokens_in(self.before_ns(perf.prompt_eval_ns), perf)

    def unseen_last(self, perf: Perf) -> int | None:
        """Tokens after the last arrival: none or one; None where it is not known."""
        return 0 if self.ended_text or self.counts else self._tokens_in(self.after_ns, perf)

    def _tokens_in(self, wait_ns: int | None, perf: Perf) -> int | None:
        if wait_ns is None or len(self.times_ns) < 2:
            return None
        # Tokens that came together widen the gaps, a stall widens the program's mean.
        gaps = median(late - early for early, late in pairwise(self.times_ns))
        token = min(gaps, perf.decode_ns / perf.decode_steps)
        if abs(wait_ns) < _NONE * token:
            return 0
        return 1 if _ONE[0] * token <= wait_ns < _ONE[1] * token else None


def find_arrivals(stdout: bytes, stderr: bytes, timeline: Timeline) -> Arrivals:
    """Cut stdout into arrivals.

    Raises OutputNotUnderstood when stdout is not that of a finished completion, when the timeline
    is that of other output, or when no token printed anything.
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
        # The marker is one arrival, also where a reader split it; joined to the last word it is
        # none of its own.
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
