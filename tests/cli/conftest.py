"""A lab without runs, and ``labctl`` typed in the lab of a test."""

from pathlib import Path

import pytest
from cli_calls import Labctl

from labctl.cli.root import run_cli


@pytest.fixture
def empty_lab(tmp_path: Path) -> Path:
    """A lab with one board, ``rk1``, that nothing connects to."""
    board = "{target: rk3568, transport: {kind: local}, workdir: w}"
    (tmp_path / "devices.yaml").write_text(f"boards: {{rk1: {board}}}\n")
    return tmp_path


@pytest.fixture
def labctl(lab: Path, capsys: pytest.CaptureFixture[str]) -> Labctl:
    """Call labctl in ``lab``, and return what it wrote to standard output and error."""

    def call(*words: str, status: int = 0) -> tuple[str, str]:
        assert run_cli(["--lab", str(lab), *words]) == status
        shown = capsys.readouterr()
        return shown.out, shown.err

    return call
