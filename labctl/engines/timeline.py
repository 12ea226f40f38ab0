"""The agent's timeline: times at which pieces of a program's output (tokens) left its pipe.

Format (version 1), written by the on-board agent: a first line ``labctl-timeline 1 <start_ns>``,
then for every read from a pipe ``<ns> <1|2> <offset> <length>``: the board's monotonic clock, the
stream (1 stdout, 2 stderr), and the place of the bytes in that stream's file.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median

from labctl.errors import OutputNotUnderstood
from labctl.records.timing import TimingRecord
from labctl.records.trial import Check
from labctl.stats.describe import percentile

_HEADER = re.compile(rb"labctl-timeline 1 ([0-9]{1,19})")
_ENTRY = re.compile(rb"([0-9]{1,19}) ([12]) ([0-9]{1,19}) ([0-9]{1,19})")

#: Maximum number of reads from a job's pipes; a program that prints each token makes one per token.
MOST_PIECES = 1 << 20

STDOUT = 1
STDERR = 2


@dataclass(frozen=True)
class Chunk:
    """Bytes of one read from a pipe."""

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
        """Return the chunks of one stream; together they are its whole output, without gaps."""
        return tuple(chunk for chunk in self.chunks if chunk.stream == stream)


def parse_timeline(raw: bytes) -> Timeline:
    """Read a timeline.

    Raises OutputNotUnderstood if it has another version, is incomplete, goes backwards or has gaps.
    """
    if raw.count(b"\n") > MOST_PIECES:
        raise OutputNotUnderstood(f"the timeline has more than {MOST_PIECES:,} lines")
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
            raise OutputNotUnderstood(f"timeline line {number} goes back in time")
        if chunk.offset != ends[chunk.stream] or not chunk.length:
            raise OutputNotUnderstood(f"timeline line {number} does not follow the bytes before it")
        clock = chunk.mono_ns
        ends[chunk.stream] = chunk.end
        chunks.append(chunk)
    return Timeline(start, tuple(chunks))


#: With a larger share of unseen tokens, single times mean nothing.
MOST_UNSEEN = 0.25
#: A value is reported only if the unknown part changes it by at most this factor.
_TOLERANCE = 1.01
#: Maximum number of gaps named in a sentence.
_MOST_NAMED = 4
#: A gap of this many typical gaps may contain another token: no token takes half its usual time.
_WIDE = 1.5


@dataclass(frozen=True)
class TokenTimes:
    """Gaps between arrivals in ns, gaps that may contain several tokens, and statistics.

    ``first`` and ``last``: number of tokens before the first arrival and after the last; None if
    unknown. ``span_ns``: time from the first arrival to the last; None for fewer than two arrivals.
    """

    gaps_ns: tuple[int, ...]
    merged: tuple[int, ...]
    first: int | None
    last: int | None
    p50_ns: int | None
    p90_ns: int | None
    p99_ns: int | None
    mean_ns: int | None
    per_second: float | None
    span_ns: int | None

    @classmethod
    def of(
        cls,
        times_ns: Sequence[int],
        generated: int,
        *,
        first: int | None = None,
        last: int | None = None,
        held: Mapping[int, int] | None = None,
        step_ns: float | None = None,
    ) -> "TokenTimes":
        """Count tokens in the gaps between arrivals, and divide only observed gaps.

        Args:
            times_ns: at least one arrival.
            generated: number of tokens, at least the number of arrivals.
            first: tokens before the first arrival, or in it before its last token.
            last: tokens that came after the last arrival.
            held: number of tokens in gaps that are known to contain several, by index.
            step_ns: mean time of all steps by other time stamps. If the ends are unknown, it must
                confirm the rate: an unseen step may be a stall.
        """
        held = held or {}
        gaps = tuple(late - early for early, late in pairwise(times_ns))
        single = {index: gap for index, gap in enumerate(gaps) if index not in held}
        unseen = generated - len(times_ns)
        first, last, inside = _ends(
            first if unseen else 0,
            last if unseen else 0,
            unseen - sum(tokens - 1 for tokens in held.values()),
            _room(single),
        )
        known = first is not None and last is not None
        widest = _holding(single, inside, widest=True)
        narrowest = _holding(single, inside if known else 0, widest=False)
        if unseen > MOST_UNSEEN * generated:
            single = {}
        p50, p90, p99 = (_between(single, widest, narrowest, q) for q in (50, 90, 99))
        span = times_ns[-1] - times_ns[0]
        most = generated - 1 - (first or 0) - (last or 0)
        least = most if known else most - inside
        rates = span > 0 and 0 < most <= least * _TOLERANCE
        found = cls(
            gaps_ns=gaps,
            merged=tuple(sorted({*held, *widest, *narrowest})),
            first=first,
            last=last,
            p50_ns=p50,
            p90_ns=p90,
            p99_ns=p99,
            mean_ns=round(span / most) if rates else None,
            per_second=most / (span / 1e9) if rates else None,
            span_ns=span if gaps else None,
        )
        return found if known else found.confirmed_by(step_ns)

    def confirmed_by(self, step_ns: float | None) -> "TokenTimes":
        """Return the times; with the rate only if it holds for all steps, also at the ends.

        ``step_ns``: mean step time from other time stamps; None if there are none.
        """
        if self.mean_ns is None or (
            step_ns and 1 / _TOLERANCE <= self.mean_ns / step_ns <= _TOLERANCE
        ):
            return self
        return replace(self, mean_ns=None, per_second=None)


def _ends(
    first: int | None, last: int | None, somewhere: int, room: int
) -> tuple[int | None, int | None, int]:
    """Return the number of tokens before the first arrival, after the last, and between them.

    ``somewhere``: number of unseen tokens. ``room``: number that the gaps can contain. If the
    reported ends contradict these numbers, the ends are None, and all unseen tokens may be between.
    """
    inside = somewhere - (first or 0) - (last or 0)
    known = first is not None and last is not None
    if inside < 0 or (known and inside > room):
        return None, None, somewhere
    return first, last, inside


def arrivals_check(timing: TimingRecord) -> Check:
    """Check that each token was seen alone; otherwise name the unseen ones, as far as known."""
    made, seen = timing.generated_tokens or 0, timing.arrivals or 0
    detail = f"{seen} arrivals for {made} tokens"
    lines = timing.token_lines
    if lines is not None and lines != seen:
        detail = f"{lines} lines in {detail}"
    if max(seen, lines or 0) > made:
        detail += ": not all of them are tokens, so no token was timed"
    elif seen < made:
        detail += f"; not seen by themselves: {_unseen(timing, made - seen)}"
        if timing.mean_ns is None:
            detail += "; no rate is given"
    return Check(name="arrivals", ok=seen == made and lines in (None, made), detail=detail)


def _unseen(timing: TimingRecord, unseen: int) -> str:
    first, last = timing.unseen_first, timing.unseen_last
    if first is None or last is None:
        return "which is not known"
    found = [
        where if count == 1 else f"{where} {count}"
        for where, count in (("the first", first), ("the last", last))
        if count
    ]
    inside = unseen - first - last
    if inside > 0:
        gaps = [f"token_ns[{index}]" for index in timing.merged_chunks]
        joiner = " or " if len(gaps) > inside else ", "
        named = joiner.join(gaps[:_MOST_NAMED]) or "no gap that is known"
        more = f" and {len(gaps) - _MOST_NAMED} others" if len(gaps) > _MOST_NAMED else ""
        found.append(f"{inside} in {named}{more}")
    return ", ".join(found)


def _between(
    gaps: Mapping[int, int], widest: Collection[int], narrowest: Collection[int], q: float
) -> int | None:
    """Return the percentile if it does not depend on which gaps contain the unseen tokens."""
    found = []
    for holding in (widest, narrowest):
        single = [gap for index, gap in gaps.items() if index not in holding]
        if not single:
            return None
        found.append(percentile(single, q))
    return round(max(found)) if max(found) <= min(found) * _TOLERANCE else None


def _holding(gaps: Mapping[int, int], unseen: int, *, widest: bool) -> set[int]:
    """Return the gaps that contain ``unseen`` more tokens, if these are the widest gaps.

    With ``widest`` False, if these are the narrowest of the wide gaps. Gaps are added until all
    tokens are found.
    """
    found: set[int] = set()
    more = _more(gaps)
    candidates = gaps if widest else _wide(gaps)
    for index in sorted(candidates, key=lambda i: gaps[i], reverse=widest):
        if unseen <= 0:
            break
        found.add(index)
        unseen -= more[index]
    return found


def _room(gaps: Mapping[int, int]) -> int:
    """Return the number of further tokens that the wide gaps can contain."""
    more = _more(gaps)
    return sum(more[index] for index in _wide(gaps))


def _wide(gaps: Mapping[int, int]) -> list[int]:
    least = _WIDE * median(gaps.values()) if gaps else 0
    return [index for index, gap in gaps.items() if gap >= least]


def _more(gaps: Mapping[int, int]) -> dict[int, int]:
    """Return further tokens for each gap: ``k`` at ``k + 1`` times the median, at least one."""
    typical = median(gaps.values()) if gaps else 0
    return {i: max(1, round(gap / typical) - 1) if typical else 1 for i, gap in gaps.items()}
