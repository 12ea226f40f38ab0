"""The JSON of recorded runs, byte for byte: programs of others read its keys and numbers."""

from pathlib import Path

import pytest

from labctl.cli.root import run_cli

FIXTURES = Path(__file__).parents[1] / "fixtures"
LAB = FIXTURES / "records_v1"


@pytest.mark.parametrize(
    "expected", sorted((FIXTURES / "report_json").iterdir()), ids=lambda path: path.stem
)
def test_the_json_of_a_recorded_run_stays(
    expected: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_cli(["--lab", str(LAB), "report", str(LAB / "runs" / expected.stem), "--json"]) == 0
    assert capsys.readouterr().out.replace(f"{LAB}/", "LAB/") == expected.read_text()
