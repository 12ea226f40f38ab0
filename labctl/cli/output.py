"""Bytes of boards on standard output, as they come."""

import sys


def write_output(piece: bytes) -> None:
    """Print bytes at once. Raises BrokenPipeError when nobody reads."""
    sys.stdout.buffer.write(piece)
    sys.stdout.buffer.flush()
