"""The agent's timeline: when each piece of a program's output left its pipe.

Format (version 1), written by the on-board agent: a first line ``labctl-timeline 1 <start_ns>``,
then for every read from a pipe ``<ns> <1|2> <offset> <length>``: the board's monotonic clock, the
stream (1 stdout, 2 stderr), and the place of the bytes in that stream's file.
"""

import re
from dataclasses import dataclass

from labctl.errors import OutputNotUnderstood

_HEADER = re.compile(rb"labctl-timeline 1 ([0-9]{1,19})")
_ENTRY = re.compile(rb"([0-9]{1,19}) ([12]) ([0-9]{1,19}) ([0-9]{1,19})")

STDOUT = 1
STDERR = 2


@dataclass(frozen=True)
class Chunk:
    """Bytes that one read from a pipe brought."""

    mono_ns: int
    stream: int
    offset: int
    length: int

    @property
    def end(self) -> int:
        """Offset of the first byte after the chunk."""
        return self.offset + self.length


@dataclass(frozen=True)
class Timeline:
    """All chunks of a job in the order of their arrival."""

    start_mono_ns: int
    chunks: tuple[Chunk, ...]

    def of(self, stream: int) -> tuple[Chunk, ...]:
        """Return the chunks of one stream; together they are its whole output, without holes."""
        return tuple(chunk for chunk in self.chunks if chunk.stream == stream)


def parse_timeline(raw: bytes) -> Timeline:
    """Read a timeline.

    Raises OutputNotUnderstood when it is not of version 1, is torn, runs backwards or has holes.
    """
    lines = raw.split(b"\n")
    header = _HEADER.fullmatch(lines[0])
    if header is None:
        raise OutputNotUnderstood(
            "the timeline does not begin with 'labctl-timeline 1 <start>'",
            details=lines[0][:200].decode(errors="replace") or None,
        )
    if lines[-1]:
        raise OutputNotUnderstood("the timeline ends in the middle of a line")
    start = clock = int(header[1])
    ends = {STDOUT: 0, STDERR: 0}
    chunks = []
    for number, line in enumerate(lines[1:-1], start=2):
        match = _ENTRY.fullmatch(line)
        if match is None:
            raise OutputNotUnderstood(
                f"timeline line {number} is not '<ns> <1|2> <offset> <length>'",
                details=line[:200].decode(errors="replace"),
            )
        chunk = Chunk(*map(int, match.groups()))
        if chunk.mono_ns < clock:
            raise OutputNotUnderstood(f"timeline line {number} runs back in time")
        if chunk.offset != ends[chunk.stream] or not chunk.length:
            raise OutputNotUnderstood(f"timeline line {number} does not follow the bytes before it")
        clock = chunk.mono_ns
        ends[chunk.stream] = chunk.end
        chunks.append(chunk)
    return Timeline(start, tuple(chunks))
