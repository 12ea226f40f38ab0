"""Who may read and change, and for how long."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from dashboards import Served, made_lab, served
from records_made import planned_run, run

from labctl.config.web import Proxy, Web
from labctl.records.run import PlanRecord
from labctl.state.state import lab_state
from labctl.web.authentication import Access
from labctl.web.request_checks import Limits


@pytest.fixture
def closed(tmp_path: Path) -> Iterator[Served]:
    """A dashboard whose readers need a token, with a run that a controller drives."""
    lab = made_lab(tmp_path / "kitchen", more="web: {reading: token}")
    record = run("20261121T213000Z-q2-abcdef")
    directory = planned_run(lab.root / "runs", record, PlanRecord(trials=(), max_seconds=60))
    with directory.held(), served(lab, Limits(alive_seconds=0.1)) as found:
        yield found


@pytest.mark.parametrize("path", ["/live", "/runs/20261121T213000Z-q2-abcdef/log/stream?skip=0"])
@pytest.mark.parametrize("by", ["session", "token"])
def test_a_revoked_token_ends_its_streams(closed: Served, path: str, by: str) -> None:
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
            lab_state(closed.lab).tokens.revoke("look", by="test")
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


def test_wrong_tokens_of_programs_are_slowed_too(tmp_path: Path) -> None:
    with served(made_lab(tmp_path / "kitchen")) as dashboard, dashboard.client() as client:
        path, wrong = "/api/v1/boards/rk1/hold", {"Authorization": "Bearer labctl_x"}
        answers = [client.post(path, json={"reason": "x"}, headers=wrong) for _ in range(12)]
        assert answers[0].status_code == 401
        assert answers[-1].status_code == 429
        assert 0 < int(answers[-1].headers["retry-after"]) <= 60
        right = client.post(path, json={"reason": "x"}, headers=dashboard.bearer("run"))
        assert right.status_code == 200


def test_a_refused_hold_keeps_what_was_typed_and_says_what_to_do(tmp_path: Path) -> None:
    with served(made_lab(tmp_path / "kitchen")) as dashboard:
        lab_state(dashboard.lab).holds.hold("rk1", by="anna", reason="x")
        with dashboard.signed_in("run") as client:
            wish = {"reason": 'new "firmware"', "time": "90m"}
            answer = client.post("/boards/rk1/hold", data=wish)
            assert answer.status_code == 409
            assert 'value="new &#34;firmware&#34;"' in answer.text
            assert 'value="90m"' in answer.text
            assert "`labctl boards` shows who has what" in answer.text


@pytest.mark.parametrize(
    ("sent", "name"), [("张伟".encode(), "张伟"), (b"anna", "anna"), (b"\xff\xfe", None)]
)
def test_the_name_that_a_proxy_sends_is_utf_8(
    tmp_path: Path, sent: bytes, name: str | None
) -> None:
    tokens = lab_state(made_lab(tmp_path / "kitchen")).tokens
    web = Web(proxy=Proxy())
    access = Access(tokens, web, proxy_secret=None, is_socket=True, reading_open=False)
    user = access.user({"x-forwarded-user": sent.decode("latin-1")}, None, None)
    assert (user.name if user else None) == name
