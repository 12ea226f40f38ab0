"""Any program: its arguments and how to read its output are in the recipe."""

from labctl.engines.command.engine import Command, CommandParameters

ENGINES = (Command,)

__all__ = ["ENGINES", "Command", "CommandParameters"]
