"""Folders of runs, with an index in each kind of database."""

from pathlib import Path

import pytest
from postgres_server import lab_in


@pytest.fixture(params=["sqlite", "postgresql"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The runs of a lab whose index is in a file, or in a database that hosts share."""
    if request.param == "postgresql":
        return lab_in(request.getfixturevalue("postgres"), tmp_path)
    return tmp_path / "runs"
