"""Sockets at which this very process listens."""

from contextlib import suppress
from pathlib import Path

_LISTENS = "0A"  # TCP_LISTEN in proc(5)'s net/tcp


def listening() -> set[str]:
    """The sockets at which this process listens for TCP, by inode."""
    mine = set()
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            mine.add(str(entry.readlink()).removeprefix("socket:[").removesuffix("]"))
    tables = [Path(f"/proc/net/{name}") for name in ("tcp", "tcp6")]
    lines = [
        line.split()
        for table in tables
        if table.exists()
        for line in table.read_text().splitlines()[1:]
    ]
    return {line[9] for line in lines if line[3] == _LISTENS and line[9] in mine}
