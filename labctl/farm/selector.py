"""Selection of boards by their facts: ``target=rk3568,tag=fast,memory>=4GB,health=good``.

Conditions are separated by commas, and a board must meet all of them. ``=`` and ``!=`` compare
names, with the wildcards ``*`` and ``?`` of file names; a key may come twice, such as
``tag=a,tag=b``. Sizes also have ``<``, ``<=``, ``>`` and ``>=``. Only ``untrusted=yes`` selects
boards that take untrusted recipes.
"""

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from labctl.config.lab import Board, LabFile
from labctl.config.types import parse_size
from labctl.errors import ConfigError
from labctl.suggestions import did_you_mean, listed

_CONDITION = re.compile(r"([\w-]+)\s*(!=|>=|<=|=|>|<)\s*([^\s,=<>!]+)")
_COMPARE: Mapping[str, Callable[[int, int], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
#: Nominal sizes of the memory of boards, in GiB. A kernel reports less.
_SOLD = (0.25, 0.5, 1, 1.5, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
#: Health of an unknown board.
UNKNOWN = "unknown"


@dataclass(frozen=True)
class SelectableBoard:
    """Facts of a board for a selector; ``memory`` in bytes, None if it was never seen."""

    name: str
    target: str
    tags: tuple[str, ...] = ()
    transport: str = ""
    memory: int | None = None
    health: str = UNKNOWN
    untrusted: bool = False


_NAMES: Mapping[str, Callable[[SelectableBoard], Sequence[str]]] = {
    "board": lambda board: (board.name,),
    "target": lambda board: (board.target,),
    "tag": lambda board: board.tags,
    "transport": lambda board: (board.transport,),
    "health": lambda board: (board.health,),
    "untrusted": lambda board: ("yes" if board.untrusted else "no",),
}
_SIZES: Mapping[str, Callable[[SelectableBoard], int | None]] = {
    "memory": lambda board: board.memory,
}
_KEYS = [*_NAMES, *_SIZES]


@dataclass(frozen=True)
class _Condition:
    key: str
    compare: str
    value: str

    def holds(self, board: SelectableBoard) -> bool:
        if self.key in _SIZES:
            known = _SIZES[self.key](board)
            return known is not None and _COMPARE[self.compare](known, parse_size(self.value))
        found = any(fnmatchcase(name, self.value) for name in _NAMES[self.key](board))
        return found is (self.compare == "=")


@dataclass(frozen=True)
class BoardSelector:
    """Conditions that a board must all meet; without conditions, every board matches."""

    text: str
    conditions: tuple[_Condition, ...]

    @classmethod
    def parse(cls, text: str) -> "BoardSelector":
        """Read a selector. Raises ConfigError that names the wrong condition."""
        conditions = tuple(_condition(part.strip(), text) for part in text.split(","))
        return cls(text, conditions)

    def holds(self, board: SelectableBoard) -> bool:
        """Return whether a board meets all conditions."""
        if board.untrusted and not any(one.key == "untrusted" for one in self.conditions):
            return False
        return all(condition.holds(board) for condition in self.conditions)

    def select(self, boards: Sequence[SelectableBoard]) -> list[str]:
        """Return the names of the boards that match. Raises ConfigError if no board matches."""
        found = [board.name for board in boards if self.holds(board)]
        if found:
            return found
        alone = [
            f"{one.key}{one.compare}{one.value}"
            for one in self.conditions
            if not any(one.holds(board) for board in boards)
        ]
        why = f"none is {listed(alone)}" if alone else "none meets all of these conditions at once"
        raise ConfigError(f"no board fits {self.text!r}: {why}", hint=_HINT)


_HINT = "`labctl boards` shows the boards; a selector is like 'target=rk3568,tag=fast,memory>=4GB'"


def _condition(part: str, whole: str) -> _Condition:
    match = _CONDITION.fullmatch(part)
    if match is None:
        what = f"{part!r} in {whole!r}" if part else f"an empty condition in {whole!r}"
        raise ConfigError(f"{what} is not a condition such as tag=fast", hint=_HINT)
    key, compare, value = match.groups()
    if key not in _KEYS:
        raise ConfigError(
            f"{key!r} in {whole!r} is unknown{did_you_mean(key, _KEYS)}",
            hint=f"boards are selected by {listed(_KEYS)}",
        )
    if key in _SIZES:
        try:
            parse_size(value)
        except ValueError as error:
            raise ConfigError(f"{part!r} in {whole!r}: {error}") from None
    elif compare not in ("=", "!="):
        raise ConfigError(f"{part!r} in {whole!r}: {key} allows only = and !=")
    return _Condition(key, compare, value)


def selectable(
    board: Board, *, memory: int | None = None, health: str = UNKNOWN
) -> SelectableBoard:
    """Return the facts of a board of devices.yaml for a selector.

    ``memory`` is the amount that its kernel reports, in bytes; it is compared as the nominal size.
    """
    sold = (round(gib * 2**30) for gib in _SOLD)
    nominal = memory and next((one for one in sold if one >= memory), memory)
    kind = board.transport.kind
    return SelectableBoard(
        board.name, board.target, board.tags, kind, nominal, health, board.untrusted
    )


def select_boards(
    lab: LabFile,
    selector: BoardSelector,
    *,
    memory: Callable[[str], int | None],
    health: Callable[[str], str],
) -> list[str]:
    """Return the names of the lab's boards that match a selector. Raises ConfigError."""
    keys = {condition.key for condition in selector.conditions}
    return selector.select(
        [
            selectable(
                board,
                memory=memory(board.name) if "memory" in keys else None,
                health=health(board.name) if "health" in keys else UNKNOWN,
            )
            for board in lab.lab.boards.values()
        ]
    )
