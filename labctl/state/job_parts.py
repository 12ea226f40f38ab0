"""Parts that jobs share: contents, and lists of the boards on which jobs may run.

Each part is stored once, by its SHA-256, for any number of jobs.
"""

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from labctl.state import sql
from labctl.state.tables import read

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from labctl.database.base import Ask, Row


def store_content(connection: "Connection", request: Mapping[str, Any]) -> str:
    """Store the content of a job; return its SHA-256. Raises ConfigError."""
    content = json.dumps(request)
    digest = _digest(content)
    if contents_of(sql.asker(connection), {digest}).get(digest) != content:
        _put(connection, "job_content", [{"sha256": digest, "content": content}])
    return digest


def store_boards(connection: "Connection", boards: Sequence[str]) -> str:
    """Store a list of boards; return its SHA-256. Raises ConfigError."""
    digest = _digest(json.dumps(boards))
    if boards_of(sql.asker(connection), {digest}).get(digest) != tuple(boards):
        values = [
            {"sha256": digest, "place": place, "board": board} for place, board in enumerate(boards)
        ]
        _put(connection, "board_list", values)
    return digest


def contents_of(ask: "Ask", digests: Collection[str]) -> Mapping[str, str]:
    """Return contents (JSON) by their SHA-256, except damaged ones."""
    rows = sql.rows_of(ask, "SELECT sha256, content FROM job_content WHERE sha256 IN", digests)
    found = (read("job_content", ("sha256", "content"), row) for row in rows)
    return {values["sha256"]: values["content"] for values, damaged in found if not damaged}


def boards_of(ask: "Ask", digests: Collection[str]) -> Mapping[str, tuple[str, ...]]:
    """Return lists of boards by their SHA-256, best boards first, without damaged rows."""
    question = "SELECT sha256, place, board FROM board_list WHERE sha256 IN"
    stored: dict[str, list[Row]] = {}
    for row in sql.rows_of(ask, question, digests):
        stored.setdefault(str(row[0]), []).append(row)
    return {digest: _boards(digest, rows) for digest, rows in stored.items()}


def _boards(digest: str, rows: "Sequence[Row]") -> tuple[str, ...]:
    if all(type(place) is int and type(board) is str for _, place, board in rows):
        names = tuple(board for _, _, board in sorted(rows))
        if _digest(json.dumps(names)) == digest:
            return names  # matches its SHA-256
    found = [read("board_list", ("sha256", "place", "board"), row) for row in rows]
    sound = {values["place"]: values["board"] for values, damaged in found if not damaged}
    return tuple(sound[place] for place in sorted(sound))


def drop_unused(
    connection: "Connection", contents: Collection[str], lists: Collection[str]
) -> None:
    """Remove those contents and lists of boards that no job uses any more."""
    from labctl.state.statements import DROP_CONTENT, DROP_LIST

    for drop, digests in ((DROP_CONTENT, contents), (DROP_LIST, lists)):
        if values := [{"digest": digest} for digest in digests]:
            connection.execute(drop, values)


def _put(connection: "Connection", table: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Store the rows of one digest; replace damaged rows."""
    sql.delete(connection, table, {"sha256": rows[0]["sha256"]})
    sql.insert(connection, table, *rows)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
