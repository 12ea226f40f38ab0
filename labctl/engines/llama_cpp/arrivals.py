"""When each generated token arrived, from stdout and its timeline.

llama.cpp flushes after every token, so a chunk of stdout is a token - nearly: tokens can share a
chunk when the reader was late, a token can print nothing (special tokens) or a part of a UTF-8
character, and two newlines that belong to no token end the output. The end of the text
is itself a sampled token and shows as `` [end of text]``.
"""

from dataclasses import dataclass

from labctl.engines.timeline import STDOUT, Timeline
from labctl.errors import OutputNotUnderstood

#: Ends the text of a completion.
TAIL = b"\n\n"
_END_OF_TEXT = b" [end of text]\n"


@dataclass(frozen=True)
class Arrivals:
    """Board times (monotonic, ns) at which generated text arrived."""

    start_ns: int
    times_ns: tuple[int, ...]
    ended_text: bool


def find_arrivals(stdout: bytes, timeline: Timeline) -> Arrivals:
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
        raise OutputNotUnderstood(
            "stdout does not end with the two newlines that llama.cpp prints after the last token",
            details=stdout[-200:].decode(errors="replace") or None,
        )
    text_end = len(stdout) - len(TAIL)
    ended_text = stdout.endswith(_END_OF_TEXT, 0, text_end)
    times = [chunk.mono_ns for chunk in chunks if chunk.offset < text_end]
    if ended_text:
        # The marker is one arrival, also where a reader split it or joined it to the last word.
        marker = text_end - len(_END_OF_TEXT)
        times = [chunk.mono_ns for chunk in chunks if chunk.offset < marker]
        times.append(next(chunk.mono_ns for chunk in chunks if chunk.end > marker))
    if not times:
        raise OutputNotUnderstood("stdout holds no generated text")
    return Arrivals(timeline.start_mono_ns, tuple(times), ended_text)
