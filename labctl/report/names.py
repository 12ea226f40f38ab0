"""Names of variants in little space: one rule for legends, tables, comparisons and sentences."""

import re
from collections.abc import Iterable, Sequence
from itertools import takewhile

from labctl.units import width

#: Longest name that a page shows whole, in columns of a terminal.
PAGE_WIDTH = 28
#: Shorter names would be meaningless.
_SHORTEST = 12
#: Where a name may begin after its common beginning: model/prompt, model-Q8_0, RUN:VARIANT.
_JOINT = re.compile(r"[-/: ](?=[^-/: ])")


def short_names(names: Iterable[str], room: int = PAGE_WIDTH) -> dict[str, str]:
    """Return names that fit into ``room`` columns of a terminal and stay different.

    Names that are too long lose their common beginning: ``…-Q4_K_M``, ``…-Q8_0``. Names that are
    still too long are cut in the middle; if no such cut keeps them different, they are cut at the
    end and numbered. If all names fit, none is changed.
    """
    room, distinct = max(room, _SHORTEST), list(dict.fromkeys(names))
    if all(width(name) <= room for name in distinct):
        return {name: name for name in distinct}
    first, last = min(distinct), max(distinct)  # what both begin with, all begin with
    same = takewhile(lambda pair: pair[0] == pair[1], zip(first, last, strict=False))
    common = "".join(one for one, _ in same) if first != last else ""
    joints = [found.start() for found in _JOINT.finditer(f"{common}x")]
    begin = joints[-1] if joints else 0
    ends = [f"…{name[begin:]}" if begin > 1 else name for name in distinct]
    return dict(zip(distinct, _cut(ends, room), strict=True))


def _cut(names: Sequence[str], room: int) -> list[str]:
    for head in range(room // 2, -1, -1):
        cut = [_middle(name, head, room) for name in names]
        if len(set(cut)) == len(names):
            return cut
    return [
        name if width(name) <= room else f"{_begin(name, room - len(mark))}{mark}"
        for number, name in enumerate(names, 1)
        for mark in [f"…#{number}"]
    ]


def _middle(name: str, head: int, room: int) -> str:
    """Return a name cut in the middle: its first ``head`` columns, and the end."""
    if width(name) <= room:
        return name
    begin = _begin(name, head)
    end = _begin(name[::-1], room - 1 - width(begin))[::-1]
    return f"{begin}…{end}"


def _begin(name: str, room: int) -> str:
    """Return the longest beginning of a name that fits."""
    while width(name) > room:
        name = name[:-1]
    return name
