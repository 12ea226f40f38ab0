"""The database that a lab names, or none: then its files are SQLite's."""

from labctl.config.lab import LabFile
from labctl.database.base import Database


def lab_database(lab: LabFile) -> Database | None:
    """Return the lab's PostgreSQL; None where it has its own files. Raises ConfigError."""
    if (url := lab.database) is None:
        return None
    from labctl.database.postgresql import PostgresDatabase

    return PostgresDatabase(url, lab.name)
