"""Changes of a lab's devices.yaml by commands; comments and style stay as they are."""

from collections.abc import Callable, Mapping, Sequence

from labctl.checked import LAB_ROOT
from labctl.config.init_files import board_entry
from labctl.config.lab import Board, Lab, LabFile
from labctl.config.names import NAME_RULE, is_name, unknown
from labctl.config.yaml.document import parse, read_text
from labctl.config.yaml.edit import add_entry, remove_entry, remove_key
from labctl.errors import ConfigError
from labctl.files import locked, state_dir, write_named

_LOCK_SECONDS = 60.0
_SECTION = "boards"


def add_board(lab: LabFile, name: str, keys: Mapping[str, str | int], target: str) -> None:
    """Add a board at the end of the boards; ``keys`` as :func:`board_entry` takes them.

    Raises ConfigError (bad name, name or place taken, unknown target), HostError.
    """
    if not is_name(name):
        raise ConfigError(f"not a name for a board: {name!r}", hint=f"a name is {NAME_RULE}")
    if name in lab.lab.boards:
        raise ConfigError(
            f"{lab.path} has a board {name!r} already", hint="choose another name, or edit the file"
        )
    entry = board_entry(name, keys, target)
    _change(lab, lambda text: add_entry(text, _SECTION, entry), {name})


def remove_boards(lab: LabFile, names: Sequence[str]) -> bool:
    """Remove boards; return True if one was the default board, which is none then.

    Raises ConfigError (no such board, a file that cannot be changed so), HostError.
    """
    for name in names:
        if name not in lab.lab.boards:
            raise ConfigError(unknown("board", name, lab.lab.boards, where=f" in {lab.path.name}"))
    is_default = lab.lab.default_board in names

    def without(text: str) -> str:
        for name in names:
            text = remove_entry(text, _SECTION, name)
        return remove_key(text, "default_board") if is_default else text

    _change(lab, without, set(names))
    return is_default


def _change(lab: LabFile, change: Callable[[str], str], names: set[str]) -> None:
    """Write the file anew, unless the change is wrong or concerns boards besides ``names``."""

    def others(boards: Mapping[str, Board]) -> dict[str, Board]:
        return {name: board for name, board in boards.items() if name not in names}

    with locked(state_dir() / "locks" / "devices-file", timeout=_LOCK_SECONDS):
        text = change(read_text(lab.path))
        where = f"{lab.path} (changed)"
        changed: Lab = parse(text, type(lab.lab), where, context={LAB_ROOT: lab.root})
        if others(changed.boards) != others(lab.lab.boards):
            raise ConfigError(
                f"{lab.path} is written in a way that cannot be changed here",
                hint="change it by hand: docs/devices.md",
            )
        write_named(lab.path, text)
