"""All queries and transactions of labctl wait for a database that is away: there is one way."""

import re
from pathlib import Path

import labctl

#: What opens a connection or a transaction without waiting.
_BY_HAND = re.compile(r"\.(changing|writing|questions)\(|\bpsycopg(\(\))?\.connect\(")
#: Opens them for all others.
_GATEWAY = ("database/", "state/state.py")


def test_nothing_reaches_a_database_past_the_gateway() -> None:
    root = Path(labctl.__file__).parent
    found = [
        f"{path.relative_to(root)}: {line.strip()}"
        for path in root.rglob("*.py")
        if not str(path.relative_to(root)).startswith(_GATEWAY)
        for line in path.read_text().splitlines()
        if _BY_HAND.search(line)
    ]
    assert found == []
