"""The system parameters of a board: one file each, shared with its ``param`` program."""

from contextlib import suppress
from pathlib import Path

from labctl.errors import HostError
from labctl.files import write_atomic
from labctl.hdc.wire import Command

#: Folder below a board's directory.
PARAMETERS = Path(".labctl-parameters")

#: Parameter that controls each group of commands, as in ``CheckControl`` (``daemon.cpp``).
_CONTROLS = (
    ("persist.hdc.control.shell", range(Command.UNITY_EXECUTE, Command.SHELL_DATA + 1)),
    ("persist.hdc.control.fport", range(Command.FORWARD_INIT, Command.FORWARD_FREE_CONTEXT + 1)),
    ("persist.hdc.control.file", range(Command.FILE_INIT, Command.APP_UNINSTALL + 1)),
)


class Parameters:
    """The parameters of the board in ``directory``."""

    def __init__(self, directory: Path):
        self._folder = directory / PARAMETERS

    def get(self, name: str) -> str:
        """Return a value; empty if it was never set."""
        try:
            return (self._folder / name).read_text(errors="replace", encoding="utf-8").strip()
        except FileNotFoundError:
            return ""

    def set(self, name: str, value: str) -> None:
        """Set a value; hdcd ignores a failure."""
        with suppress(HostError):
            write_atomic(self._folder / name, f"{value}\n")

    def allow(self, command: int) -> bool:
        """Return True if a command is permitted: its parameter is "true" or not set."""
        names = [name for name, commands in _CONTROLS if command in commands]
        return all(self.get(name) in ("", "true") for name in names)
