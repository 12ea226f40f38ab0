"""The ``labctl`` program."""

from labctl.cli.root import main

__all__ = ["main"]
