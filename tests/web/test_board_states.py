"""States of boards: pages, JSON and metrics show them, from the lab's state and last contacts."""

import re
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from dashboards import board_names, made_lab, served
from prometheus_client.parser import text_string_to_metric_families

from labctl.board.status import BOARD_USES
from labctl.cli.root import run_cli
from labctl.state.health import Health
from labctl.state.reservations import ReservationKind
from labctl.state.state import LabState, lab_state


def with_health(health: Health) -> Callable[[LabState, str], object]:
    return lambda state, name: state.health.set(name, health, reason="x", by="test")


def offline(state: LabState, name: str) -> None:
    state.health.contacted({name: "offline"}, by="test", reason="no route")


def leased(state: LabState, name: str) -> None:
    state.leases.acquire(name, purpose="run q8", holder="ann@desk")


def held(state: LabState, name: str) -> None:
    state.holds.hold(name, by="ann@desk", reason="mine")


def keep(state: LabState, name: str, kind: ReservationKind) -> None:
    now = time.time()
    state.reservations.add(name, now - 1, now + 3600, holder="ann@desk", by="ann@desk", kind=kind)


def reserved(state: LabState, name: str) -> None:
    keep(state, name, "reservation")


def maintained(state: LabState, name: str) -> None:
    keep(state, name, "maintenance")


def both(*steps: Callable[[LabState, str], object]) -> Callable[[LabState, str], object]:
    return lambda state, name: [step(state, name) for step in steps]


CASES: list[tuple[str, Callable[[LabState, str], object]]] = [
    ("idle", lambda _state, _name: None),
    ("idle", lambda state, name: state.health.contacted({name: "connected"}, by="test")),
    ("running", leased),
    ("running", both(offline, leased)),
    ("held", held),
    ("held", both(offline, held)),
    ("reserved", reserved),
    ("maintenance", maintained),
    ("maintenance", with_health(Health.MAINTENANCE)),
    ("retired", both(offline, with_health(Health.RETIRED))),
    ("offline", offline),
    ("offline", both(offline, with_health(Health.BAD))),
    ("bad", with_health(Health.BAD)),
    ("looping", with_health(Health.LOOPING)),
]


def test_each_state_is_the_same_everywhere(tmp_path: Path) -> None:
    lab = made_lab(tmp_path / "kitchen", boards=len(CASES))
    state, wanted = lab_state(lab), {}
    for name, (expected, act) in zip(board_names(len(CASES)), CASES, strict=True):
        act(state, name)
        wanted[name] = expected
    with served(lab) as dashboard, dashboard.client() as client:
        listed = client.get("/api/v1/boards").json()
        page = client.get("/").text
        families = text_string_to_metric_families(client.get("/metrics").text)
        samples = next(one for one in families if one.name == "labctl_board_state").samples
        pages = {name: client.get(f"/boards/{name}").text for name in wanted}
    assert {one["name"]: one["state"] for one in listed} == wanted
    assert {s.labels["board"]: s.labels["state"] for s in samples if s.value} == wanted
    assert {s.labels["state"] for s in samples} == set(BOARD_USES)
    for name, expected in wanted.items():
        row = page.partition(f'<tr id="board-{name}">')[2].partition("</tr>")[0]
        assert f'<span class="mark {expected}">' in row
        assert f'<span class="mark {expected}">' in pages[name]
    headline = re.sub(r"<[^>]+>", "", page.partition('id="counts"')[2].partition("</p>")[0])
    counts = Counter(wanted.values())
    assert f"{len(CASES)} in all · {counts.pop('idle')} can run a job now" in headline
    for name, count in counts.items():
        assert f"· {count} {name}" in headline


def test_boards_that_do_not_answer_are_offline_with_the_age_of_the_contact(
    tmp_path: Path, private_state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`labctl boards` contacts them; the dashboard contacts no board, and shows the result."""
    assert private_state
    count = 30
    lab = made_lab(tmp_path / "kitchen", boards=count)
    with served(lab) as dashboard, dashboard.client() as client:
        assert f"{count}</strong> can run a job now" in client.get("/").text
        assert client.get("/").text.count("never contacted") == count
        assert run_cli(["--lab", str(lab.root), "boards"]) == 3
        assert capsys.readouterr().out.count("offline") >= count
        page = client.get("/").text
        assert "<strong>0</strong> can run a job now" in page
        assert f"<strong>{count}</strong> offline" in page
        assert len(re.findall(r"no answer [\d.]+ \w+ ago", page)) == count
        (first, *_) = client.get("/api/v1/boards").json()
        assert (first["state"], first["contact"]) == ("offline", "offline")
        assert first["contact_at"] == pytest.approx(
            lab_state(lab).health.get("rk1").contact_at or 0.0
        )
        assert "labctl_board_contact_timestamp_seconds{" in client.get("/metrics").text
    (event,) = [one for one in lab_state(lab).health.history("rk1") if one.kind == "state"]
    assert event.value == "offline"


def test_a_run_tells_whether_its_board_answers(
    tmp_path: Path, private_state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert private_state
    lab = made_lab(tmp_path / "kitchen")
    assert run_cli(["--lab", str(lab.root), "store", "list", "-b", "rk1"]) == 3
    assert "no board answers" in capsys.readouterr().err
    health = lab_state(lab).health.get("rk1")
    assert (health.contact, health.is_offline) == ("offline", True)
    assert lab_state(lab).health.get("rk2").contact is None
