"""Ends of tokens in a text, from the tokens that servers report."""

import codecs
from collections.abc import Sequence


def ends_of_pieces(pieces: Sequence[bytes | str], text: str) -> tuple[int, ...] | None:
    """Return for each token the length of ``text`` after it, in code points.

    A token that ends inside a code point has the length before it, as in a stream that is cut
    there. Tokens after the end of the text (a stop word, an end token) have the whole length. None
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
    """Add the end token: it counts but has no text, and some servers do not report it.

    None if the ends are not those of ``count`` tokens.
    """
    if ends is None or count is None or len(ends) == count:
        return ends
    return (*ends, length) if stopped and len(ends) + 1 == count else None
