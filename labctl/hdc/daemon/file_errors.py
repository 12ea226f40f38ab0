"""hdcd's messages for errors of files."""

import errno
import os

#: hdcd uses libuv's error texts, which sometimes differ from the C library's.
_REASONS = {
    errno.EISDIR: "illegal operation on a directory",
    errno.ETXTBSY: "text file is busy",
    errno.ENAMETOOLONG: "name too long",
    errno.EMFILE: "too many open files",
    errno.ESPIPE: "invalid seek",
}


def reason(error: OSError | ValueError) -> str:
    """Return hdcd's text for an error. ValueError: a path that no system call accepts."""
    number = (error.errno or 0) if isinstance(error, OSError) else errno.EINVAL
    return _REASONS.get(number) or os.strerror(number).lower()


def cannot_open(error: OSError | ValueError, path: str) -> str:
    """Return hdcd's message for a file that cannot be opened."""
    return f"Error opening file: {reason(error)}, path:{path}"
