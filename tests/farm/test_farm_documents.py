"""JSON of the farm's results that only a board gives to a command; its keys and their order."""

from datetime import UTC, datetime

from labctl.errors import ConfigError
from labctl.farm.health.checking import CheckResult
from labctl.farm.health.verdict import Finding, Verdict
from labctl.farm.nightly.hosts import NightHost
from labctl.farm.nightly.results import plan_document
from labctl.farm.recovery.ladder import Climb, Step
from labctl.records.night import NightRecord
from labctl.state.health import BoardHealth

STEPS = [{"rung": "reconnect", "helped": False, "reason": "no contact", "seconds": 1.3}]
CLIMB = Climb((Step("reconnect", False, "no contact", 1.26),))


def test_a_climb_names_what_helped_before_its_steps() -> None:
    assert list(CLIMB.outcome_document().items()) == [("helped", None), ("steps", STEPS)]


def test_a_check_says_what_it_found_and_how_the_board_was_brought_back() -> None:
    verdict = Verdict(Finding.FAILING, "no contact", {"probe": "p"})
    found = CheckResult("rk1", verdict, BoardHealth("rk1"), ("p.json",), CLIMB).document()
    assert list(found) == [
        *("board", "finding", "reason", "evidence", "health", "probes", "recovery"),
    ]
    assert (found["finding"], found["evidence"]) == ("failing", {"probe": "p"})
    assert (found["health"]["board"], found["probes"]) == ("rk1", ("p.json",))
    assert found["recovery"] == STEPS
    assert CheckResult("rk1", verdict, BoardHealth("rk1")).document()["recovery"] is None


def test_a_plan_of_a_night_ends_with_its_sources_and_hosts() -> None:
    began = datetime(2026, 11, 24, tzinfo=UTC)
    record = NightRecord(id="n", plan="p", started=began, deadline=1.0, bisect=True, rows=())
    found = plan_document(
        record,
        [("a/b", "good", "version 1"), ("a/b", "head", ConfigError("no such branch"))],
        {"lab2": NightHost(("b-2",), False, {"b-2": None})},
    )
    assert list(found) == [*record.model_dump(), "sources", "hosts"]
    assert [list(one.items()) for one in found["sources"]] == [
        [("build", "a/b"), ("side", "good"), ("found", "version 1"), ("problem", None)],
        [("build", "a/b"), ("side", "head"), ("found", None), ("problem", "no such branch")],
    ]
    assert found["hosts"] == {
        "lab2": {"boards": ("b-2",), "is_this": False, "unserved": {"b-2": None}}
    }
