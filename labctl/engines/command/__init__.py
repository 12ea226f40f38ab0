"""Any program: the recipe has its arguments and the rules to read its output."""

from labctl.engines.command.engine import Command, CommandParameters

ENGINES = (Command,)

__all__ = ["ENGINES", "Command", "CommandParameters"]
