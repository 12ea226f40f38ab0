"""Lists of runs and boards: states, marks and menus."""

import re
from collections.abc import Iterator
from datetime import timedelta

import pytest
from dashboards import Served, made_lab, served
from records_made import BEGAN, plan, planned_run, run

from labctl.records.board import Execution
from labctl.records.run import RunEnd
from labctl.runs.record.annotations import add_tags

LIVE, DEAD, DONE = (f"20261122T20000{n}Z-q2-aaaaa{n}" for n in range(3))


@pytest.fixture(scope="module")
def dashboard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Two runs without an end, of which one has a controller, and an emulated one on rk11."""
    lab = made_lab(tmp_path_factory.mktemp("lab") / "kitchen", boards=11)
    facts = run().facts.model_copy(update={"execution": Execution.EMULATED})
    made = [
        planned_run(lab.root / "runs", run(name, board=board, started=BEGAN, **more), plan())
        for name, board, more in (
            (LIVE, "rk1", {}),
            (DEAD, "rk2", {}),
            (DONE, "rk11", {"facts": facts, "recipe": 'a"><b>{x}'}),
        )
    ]
    made[2].finish(RunEnd(state="finished", finished=BEGAN + timedelta(hours=1)))
    add_tags(made[2], ["week"])
    with made[0].held(), served(lab) as found:
        yield found


def row(text: str, name: str) -> str:
    found = re.search(rf'(?s)<tr id="{name}">.*?</tr>', text)
    assert found is not None
    return found[0]


def test_a_run_with_a_controller_is_running(dashboard: Served) -> None:
    text = dashboard.ask("GET", "/runs").text
    assert "mark running" in row(text, f"run-{LIVE}")
    assert "mark interrupted" in row(text, f"run-{DEAD}")
    states = {
        one["id"]: one["state"] for one in dashboard.ask("GET", "/api/v1/runs").json()["runs"]
    }
    assert states == {LIVE: "running", DEAD: "interrupted", DONE: "finished"}
    assert dashboard.ask("GET", f"/api/v1/runs/{LIVE}").json()["state"] == "running"


def test_what_was_emulated_is_marked_on_every_page(dashboard: Served) -> None:
    assert "EMULATED" in row(dashboard.ask("GET", "/").text, "board-rk11")
    assert "EMULATED" not in row(dashboard.ask("GET", "/").text, "board-rk1")
    assert "EMULATED" in row(dashboard.ask("GET", "/runs").text, f"run-{DONE}")
    for path in ("/boards/rk11", f"/runs/{DONE}"):
        assert "EMULATED" in dashboard.ask("GET", path).text, path


def test_filters_are_menus_of_what_there_is(dashboard: Served) -> None:
    text = dashboard.ask("GET", "/runs?board=rk2&since=2026-01-01&lang=en").text
    menus = dict(re.findall(r'(?s)<select name="(\w+)">(.*?)</select>', text))
    assert list(menus) == ["recipe", "board", "model", "tag", "since", "state", "verdict", "kind"]
    assert re.findall(r'value="(rk\w+)"', menus["board"]) == ["rk1", "rk2", "rk11"]
    assert '<option value="rk2" selected>' in menus["board"]
    assert "<option selected>2026-01-01</option>" in menus["since"]
    assert '<option value="week">' in menus["tag"]
    assert "a&#34;&gt;&lt;b&gt;{x}" in menus["recipe"]
    assert "<input" not in text
