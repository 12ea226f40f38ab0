"""How commands and bytes reach a board."""

from labctl.transport.base import CommandResult, Progress, Transport, remote_words

__all__ = ["CommandResult", "Progress", "Transport", "remote_words"]
