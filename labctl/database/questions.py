"""Questions: SELECT statements as text, which SQLite and PostgreSQL both know.

Drivers run them directly: a list must not wait for SQLAlchemy, whose import takes several times as
long as click's. What changes a database is SQLAlchemy's.
"""

from collections.abc import Iterable


def select(
    columns: str | Iterable[str],
    source: str,
    *conditions: str,
    order: str = "",
    group: str = "",
    limit: int | None = None,
    skip: int = 0,
) -> str:
    """Return a question for the rows of a table, or of joined ones, that meet all ``conditions``.

    All of it is labctl's own text, and is never made of what somebody wrote: a value is named in it
    as ``:name``, and is given beside it.
    """
    names = columns if isinstance(columns, str) else ", ".join(columns)
    words = ["SELECT", names, "FROM", source]
    for word, given in (
        ("WHERE", " AND ".join(conditions)),
        ("GROUP BY", group),
        ("ORDER BY", order),
        ("LIMIT", "" if limit is None else f"{int(limit)} OFFSET {int(skip)}"),
    ):
        words += [word, given] if given else []
    return " ".join(words)
