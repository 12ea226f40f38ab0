"""A lab with SQLite and one with PostgreSQL, for the tests of its workers."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from postgres_server import PostgresServer
from workers_made import Started, workers

from labctl.config.lab import Lab, LabFile
from labctl.state.state import LabState, lab_state


@pytest.fixture(params=["sqlite", "postgresql"])
def lab(request: pytest.FixtureRequest, tmp_path: Path) -> LabFile:
    """A lab without boards in its file."""
    if request.param == "sqlite":
        return LabFile(tmp_path, Lab(boards={}))
    postgres: PostgresServer = request.getfixturevalue("postgres")
    return LabFile(tmp_path, Lab(lab=postgres.new_lab(), database=postgres.url, boards={}))


@pytest.fixture
def state(lab: LabFile) -> LabState:
    """Its state."""
    return lab_state(lab)


@pytest.fixture
def started() -> Iterator[Started]:
    """Workers that run in threads of this process; they are stopped at the end."""
    with workers() as found:
        yield found
