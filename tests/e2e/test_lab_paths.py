"""The way to a first number, in a folder with a blank, a quote and an umlaut in its path."""

from pathlib import Path

import pytest
from labs import RECIPE, lab_with_board

pytestmark = pytest.mark.e2e


@pytest.mark.usefixtures("private_state", "rk3568")
def test_a_lab_may_be_called_as_people_call_folders(tmp_path: Path) -> None:
    root = tmp_path / "Jo's erstes Läb (1)"
    root.mkdir()
    with lab_with_board(root, "--target", "rk3568") as lab:
        recipe = lab.recipe(RECIPE)
        for words in (("boards",), ("run", recipe, "--set", "tokens=2"), ("plan", recipe)):
            done = lab.run(*words)
            assert done.exit_status == 0, done.text + done.stderr.decode()
        assert lab.end()["state"] == "finished"
