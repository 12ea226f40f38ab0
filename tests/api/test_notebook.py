"""The notebook of the documentation: it runs, and shows what it shows in the repository."""

import json
import re
from pathlib import Path

import nbformat
import pytest
from measured_lab import measured_lab
from nbclient import NotebookClient

import labctl

NOTEBOOK = Path(__file__).parents[2] / "docs" / "notebook.ipynb"


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> nbformat.NotebookNode:
    root = measured_lab(tmp_path_factory.mktemp("lab"))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    client = NotebookClient(
        notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(root)}}
    )
    return client.execute()


def outputs(notebook: nbformat.NotebookNode) -> list[str]:
    """What each cell shows, as text; the address of an object in memory is none."""
    shown = []
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            text = output.get("text") or output["data"]["text/plain"]
            shown.append(re.sub(r"\s+", " ", text))
    return shown


def test_the_notebook_shows_what_is_stored_in_it(executed: nbformat.NotebookNode) -> None:
    stored = nbformat.read(NOTEBOOK, as_version=4)
    assert outputs(executed) == outputs(stored)
    assert len(outputs(stored)) == 6


def test_it_has_the_results_of_the_lab(executed: nbformat.NotebookNode) -> None:
    runs, listed, means, _, tokens, telemetry = outputs(executed)
    assert runs == "<2 runs>"
    assert "20261121T223000Z-q8-q2-123456 rk1 failed 5" in listed
    assert "q8_0 3.0 52.0 0.03" in means
    assert "p50, p90, p99 in ms: 52.0 54.0 54.0" in tokens
    assert "9 s 44.5 °C" in telemetry


def test_a_board_without_sensors_shows_no_temperatures(tmp_path: Path) -> None:
    root = measured_lab(tmp_path)
    trial = labctl.open_lab(root).run().trials[0]
    for file in root.glob("runs/*/trials/*/telemetry"):
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        file.write_text("".join(f"{json.dumps({**line, 'temps_mc': {}})}\n" for line in lines))
    (cell,) = (
        c for c in nbformat.read(NOTEBOOK, as_version=4).cells if "trial.telemetry" in c.source
    )
    shown: list[str] = []
    exec(cell.source, {"trial": trial, "print": shown.append})
    assert len(trial.telemetry.seconds) == 10
    assert shown == []
