"""The ``labctl`` program."""

from labctl import interrupts

__all__ = ["main"]

main = interrupts.program("labctl.cli.root")
