"""Output on streams whose encoding lacks characters: GBK consoles, Latin-1 terminals, ASCII logs.

A measurement must not be lost because `±` or `µ` cannot be printed. Each missing character becomes
text of the same display width, so that tables stay aligned.
"""

import codecs
import unicodedata
from typing import TextIO

_HANDLER = "labctl.replace"
_ASCII = "labctl_ascii"
#: Character -> similar ASCII character. Other characters become "?".
_ALIKE = str.maketrans("µμ×–—−‐·•…≤≥→←“”‘’✕✓°±│─", "uux----.*.<><-\"\"''xvo~|-")


def encoding_for(stream: TextIO) -> str:
    """Return the encoding for text on a stream.

    ASCII gets another name, because click would write UTF-8 to a stream named ASCII.
    """
    return _ASCII if codecs.lookup(stream.encoding).name == "ascii" else stream.encoding


def errors_for(stream: TextIO) -> str:
    """Return the error handler for text on a stream: what the user set, but never ``strict``."""
    return _HANDLER if stream.errors in (None, "strict") else stream.errors


def _replaced(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    missing = error.object[error.start : error.end]
    return "".join(map(_alike, missing)), error.end


def _alike(character: str) -> str:
    found = character.translate(_ALIKE)
    if found.isascii():
        return found
    if unicodedata.combining(character):
        return ""
    return "??" if unicodedata.east_asian_width(character) in "WF" else "?"


def _ascii(name: str) -> codecs.CodecInfo | None:
    found = codecs.lookup("ascii")
    return codecs.CodecInfo(*found, found.incrementalencoder, name=name) if name == _ASCII else None


codecs.register_error(_HANDLER, _replaced)
codecs.register(_ascii)
