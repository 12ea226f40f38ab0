"""Who may read and change, and for how long."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from dashboards import Served, made_lab, served
from records_made import planned_run, run

from labctl.records import PlanRecord
from labctl.state import lab_state
from labctl.web import watcher


@pytest.fixture
def closed(tmp_path: Path) -> Iterator[Served]:
    """A dashboard whose readers need a token, with a run that a controller drives."""
    lab = made_lab(tmp_path / "kitchen", more="web: {reading: token}")
    record = run("20261121T213000Z-q2-abcdef")
    directory = planned_run(lab.root / "runs", record, PlanRecord(trials=(), max_seconds=60))
    with directory.held(), served(lab) as found:
        yield found


@pytest.mark.parametrize("path", ["/live", "/runs/20261121T213000Z-q2-abcdef/log/stream?skip=0"])
@pytest.mark.parametrize("by", ["session", "token"])
def test_a_revoked_token_ends_its_streams(
    closed: Served, monkeypatch: pytest.MonkeyPatch, path: str, by: str
) -> None:
    monkeypatch.setattr(watcher, "ALIVE_SECONDS", 0.1)
    with closed.signed_in("look") as client:
        headers = {}
        if by == "token":
            client.cookies.clear()
            headers = closed.bearer("look")
        with client.stream("GET", path, headers=headers) as stream:
            assert stream.headers["content-type"].startswith("text/event-stream")
            texts = stream.iter_text()
            while "still here" not in next(texts):
                pass
            lab_state(closed.lab).tokens.revoke("look")
            for _ in texts:  # it ends
                pass


@pytest.mark.parametrize(
    ("web", "status"),
    [
        ("{}", 200),
        ("{names: [lab.example]}", 401),
        ("{proxy: {roles: {anna: run}}}", 401),
        ("{names: [lab.example], reading: open}", 200),
    ],
)
def test_what_a_proxy_serves_needs_a_token_by_default(
    tmp_path: Path, web: str, status: int
) -> None:
    with served(made_lab(tmp_path / "kitchen", more=f"web: {web}")) as dashboard:
        assert dashboard.ask("GET", "/api/v1/boards").status_code == status


@pytest.mark.parametrize(
    "body",
    [b'{"reason": "\\ud800"}', b'{"reason": "x", "\\ud800": 1}', b'{"reason": 5}', b"[]", b"{"],
)
def test_a_body_that_is_no_wish_is_refused(dashboard: Served, body: bytes) -> None:
    headers = dashboard.bearer("run") | {"Content-Type": "application/json"}
    answer = dashboard.ask("POST", "/api/v1/boards/rk1/hold", content=body, headers=headers)
    assert answer.status_code == 422
    assert answer.json()["detail"][0]["loc"][0] == "body"
    assert "input" not in answer.json()["detail"][0]


@pytest.mark.parametrize("path", ["/api/v1/audit?subject=%00", "/runs?board=a%00b"])
def test_a_nul_in_a_query_is_refused(dashboard: Served, path: str) -> None:
    answer = dashboard.ask("GET", path)
    assert (answer.status_code, answer.text) == (400, "the query has a NUL in it\n")
