"""Tokens that servers report: their ends in a text, and the stream's pieces with tokens."""

import codecs
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

#: A first piece longer than both limits holds several tokens: characters, and multiple of the mean
#: length of the other pieces.
_LONG_PIECE, _LONGER = 24, 4
#: Lower and upper bound of a number of tokens may replace it if they differ by at most this factor.
_NEAR = 1.02
#: Least time of an end token, as a share of the usual time between two pieces.
_SHARE_OF_GAP = 0.25


@dataclass(frozen=True)
class Event:
    """An event of a stream that holds tokens, or may hold a token without text.

    ``size``: characters of its text. ``listed``, ``counted``: tokens since the beginning of the
    answer, listed one by one or as a sum; 0: not reported.
    """

    stamp_ns: int
    size: int
    listed: int = 0
    counted: int = 0


def pieces_with_tokens(
    events: Sequence[Event], *, count: int | None, hidden: int, stopped: bool, done_ns: int
) -> tuple[tuple[int, ...], int | None]:
    """Return the stamps of the events with tokens, and the number of tokens after the first event.

    ``count``: tokens of the answer; ``hidden``: tokens before the text that were not sent.
    ``stopped``: no limit ended the answer, so the last token may be an end token without text. The
    number is None unless

    - the server reports the tokens with each event, or
    - there are as many events as tokens (then each event is one token), or
    - the number of events leaves hardly a choice (then the smallest possible number is returned).
    """
    sure = [
        after
        for before, after in pairwise((Event(0, 0), *events))
        if after.size or after.listed > before.listed or after.counted > before.counted
    ]
    if count is None or not events:
        return _stamps(sure), None
    if sure and (with_first := _reported_first(events, sure[0].stamp_ns, count)):
        return _stamps(sure), max(0, count - with_first)
    sent = count - hidden
    for pieces in (sure, events):
        missing = sent - len(pieces)
        if missing == 1 and stopped and _ends_late(pieces, done_ns):
            missing = 0
        if missing == 0 and not _begins_long(pieces):
            return _stamps(pieces), sent - 1
    least = len(sure) - 1 + (stopped and _ends_late(sure, done_ns))
    is_near = len(sure) <= sent and sent - 1 <= _NEAR * least
    return _stamps(sure), least if is_near and not _begins_long(sure) else None


def _reported_first(events: Sequence[Event], stamp_ns: int, count: int) -> int:
    """Return the number of tokens that the server reports until the first ones; 0: it does not."""
    first = [event for event in events if event.stamp_ns == stamp_ns][-1]
    is_list_whole = count - events[-1].listed in (0, 1)
    return min(filter(None, (first.counted, first.listed if is_list_whole else 0)), default=0)


def _stamps(events: Sequence[Event]) -> tuple[int, ...]:
    return tuple(event.stamp_ns for event in events)


def _begins_long(pieces: Sequence[Event]) -> bool:
    """Return True if the first piece is too long for one token, compared with the others."""
    if len(pieces) < 2:
        return False
    usual = statistics.fmean(piece.size for piece in pieces[1:])
    return pieces[0].size > max(_LONG_PIECE, _LONGER * usual)


def _ends_late(pieces: Sequence[Event], done_ns: int) -> bool:
    """Return True if the time after the last piece suffices for an end token."""
    gaps = [after.stamp_ns - before.stamp_ns for before, after in pairwise(pieces)]
    return bool(gaps) and done_ns - pieces[-1].stamp_ns > _SHARE_OF_GAP * statistics.median(gaps)


def ends_of_pieces(pieces: Sequence[bytes | str], text: str) -> tuple[int, ...] | None:
    """Return for each token the length of ``text`` after it, in code points.

    For a token that ends inside a code point, the length before this code point, as in a stream
    that ends there. For tokens after the text (a stop word, an end token), the whole length. None
    if the tokens do not add up to the text: a tokenizer changed their text, or a server left some
    out.
    """
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    made, ends = [], []
    length = 0
    for piece in pieces:
        made.append(decoder.decode(piece if isinstance(piece, bytes) else piece.encode()))
        length += len(made[-1])
        ends.append(min(length, len(text)))
    return tuple(ends) if "".join(made).startswith(text) else None


def with_end_token(
    ends: tuple[int, ...] | None, *, count: int | None, length: int, stopped: bool
) -> tuple[int, ...] | None:
    """Add the end token, which counts but has no text; some servers do not report it.

    None if the ends do not belong to ``count`` tokens.
    """
    if ends is None or count is None or len(ends) == count:
        return ends
    return (*ends, length) if stopped and len(ends) + 1 == count else None
