"""Files of ``labctl/runs`` stand in rooms: only the commands, and what they share, are above."""

from pathlib import Path

from labctl import runs


def test_few_files_stand_directly_in_runs() -> None:
    assert 1 < len(list(Path(runs.__file__).parent.glob("*.py"))) <= 14
