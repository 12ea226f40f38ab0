"""Changes of a lab's devices.yaml by commands; comments and style do not change."""

from collections.abc import Callable, Mapping, Sequence

from labctl.config.init_files import board_entry
from labctl.config.lab import Lab, LabFile
from labctl.config.yaml.document import Document
from labctl.config.yaml.edit import CHANGED_TEXT, add_entry, change_file, remove_entry, remove_key
from labctl.config.yaml.loader import read_yaml
from labctl.errors import ConfigError
from labctl.folders import state_dir
from labctl.locks import locked
from labctl.suggestions import unknown
from labctl.text_types import LAB_ROOT, NAME_RULE, is_name

_LOCK_SECONDS = 60.0
_SECTION = "boards"


def check_new_board(lab: LabFile, now: Lab, name: str) -> None:
    """Raise ConfigError for a bad name of a board, or one that the lab has ``now``."""
    if not is_name(name):
        raise ConfigError(f"not a name for a board: {name!r}", hint=f"a name is {NAME_RULE}")
    if name in now.boards:
        raise ConfigError(
            f"{lab.path} has a board {name!r} already",
            hint="choose another name, or edit the file",
        )


def add_board(
    lab: LabFile, name: str, keys: Mapping[str, str | int], target: str, *, place: str
) -> None:
    """Add a board at the end of the boards; ``keys`` as :func:`board_entry` takes them.

    ``place`` names the keys in error messages. Raises ConfigError (bad name, name or place taken,
    unknown target), HostError.
    """
    entry = board_entry(name, keys, target)

    def with_it(document: Document, now: Lab) -> Callable[[str], str]:
        check_new_board(lab, now, name)
        value = read_yaml(entry).value
        assert isinstance(value, dict)
        document.override((_SECTION, name), value[name], place)
        document.override((_SECTION, name, "target"), target, f"--target {target}")
        return lambda text: add_entry(text, _SECTION, entry)

    _change(lab, with_it)


def remove_boards(lab: LabFile, names: Sequence[str]) -> Lab:
    """Remove boards; return the changed lab. If its default board is removed, it has none.

    Raises ConfigError (no such board, a file whose style does not allow the change), HostError.
    """

    def without_them(document: Document, now: Lab) -> Callable[[str], str]:
        is_default = now.default_board in names
        for name in names:
            if name not in now.boards:
                raise ConfigError(unknown("board", name, now.boards, where=f" in {lab.path.name}"))
            document.remove((_SECTION, name), "")
        if is_default:
            document.remove(("default_board",), "")

        def change(text: str) -> str:
            for name in names:
                text = remove_entry(text, _SECTION, name)
            return remove_key(text, "default_board") if is_default else text

        return change

    return _change(lab, without_them)


def _change(lab: LabFile, override: Callable[[Document, Lab], Callable[[str], str]]) -> Lab:
    """Change the file to match its document after ``override``; return the new document.

    ``override`` gets the document and its lab, and returns the change of the text.
    """

    def read(document: Document) -> Lab:
        return document.validated(type(lab.lab), context={LAB_ROOT: lab.root})

    # Another command may have changed the file since ``lab`` was read.
    with locked(state_dir() / "locks" / "devices-file", timeout=_LOCK_SECONDS):
        document = Document.read(lab.path)
        change = override(document, read(document))
        wanted = read(document)
        change_file(
            lab.path,
            change,
            read=lambda text: read(Document.parse(text, CHANGED_TEXT)),
            wanted=wanted,
        )
    return wanted
