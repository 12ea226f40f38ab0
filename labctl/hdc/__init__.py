"""The hdc protocols, a library of its own: the host side of a session and a board's daemon."""

from labctl.hdc.operations import receive_file, send_file, shell
from labctl.hdc.session import Session

__all__ = ["Session", "receive_file", "send_file", "shell"]
