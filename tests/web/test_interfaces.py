"""The JSON interface, the metrics, and the commands around them."""

import json
import re
from pathlib import Path

import pytest
from dashboards import Served, made_lab, served
from evaluations_made import made_evaluation, write_evaluation
from prometheus_client.parser import text_string_to_metric_families
from records_made import recorded_run

from labctl.cli.root import run_cli
from labctl.records.evaluation import AccuracyRecord
from labctl.state.events import this_user
from labctl.state.health import Health
from labctl.state.job import NewJob
from labctl.state.state import lab_state

GRAFANA = Path(__file__).parents[2] / "docs" / "grafana" / "labctl.json"
REASON = {"reason": "firmware test"}


def test_a_board_is_held_and_released_over_json(dashboard: Served) -> None:
    with dashboard.client(headers=dashboard.bearer("run")) as client:
        held = client.post("/api/v1/boards/rk1/hold", json={**REASON, "time": "90m"}).json()
        (kept,) = held["kept"]
        assert (kept["kind"], kept["holder"], kept["reason"]) == ("hold", "run", "firmware test")
        assert kept["ends"] - kept["begins"] == pytest.approx(5400)
        other = client.post(
            "/api/v1/boards/rk1/hold", json=REASON, headers=dashboard.bearer("admin")
        )
        assert other.status_code == 409
        assert "run" in other.json()["detail"]
        assert client.post("/api/v1/boards/rk1/release", json={}).json() == {
            "ended": ["the hold of run"]
        }
        (board,) = [one for one in client.get("/api/v1/boards").json() if one["name"] == "rk1"]
        assert (board["state"], board["kept"]) == ("idle", [])
        audit = client.get("/api/v1/audit", params={"subject": "rk1"}).json()
        assert [(one["actor"], one["action"]) for one in audit] == [
            ("run", "hold"),
            ("run", "release"),
        ]


@pytest.mark.parametrize(
    ("wish", "word"),
    [
        ({"reason": ""}, "reason"),
        ({"reason": "  "}, "reason"),
        ({"reason": "x", "time": "8"}, "time"),
        ({"reason": "x", "time": "400d"}, "time"),
        ({"reason": "x" * 501}, "reason"),
        ({"reason": "x", "until": "y"}, "until"),
    ],
)
def test_a_wrong_wish_is_refused_with_its_key(
    dashboard: Served, wish: dict[str, str], word: str
) -> None:
    answer = dashboard.ask(
        "POST", "/api/v1/boards/rk1/hold", json=wish, headers=dashboard.bearer("run")
    )
    assert answer.status_code in (400, 422)
    assert word in answer.text
    assert lab_state(dashboard.lab).reservations.list("rk1") == []


def test_only_own_jobs_are_cancelled_without_the_role_admin(dashboard: Served) -> None:
    jobs = lab_state(dashboard.lab).jobs
    own, other = jobs.submit(
        NewJob("mine", {}, ("rk1",), submitter="run@lab"),
        NewJob("theirs", {}, ("rk1",), submitter="anna@lab"),
    )
    with dashboard.client() as client:
        for role, job, status in (
            ("run", other.id, 403),
            ("run", own.id, 200),
            ("admin", other.id, 200),
            ("run", own.id, 400),
        ):
            path, headers = f"/api/v1/queue/{job}/cancel", dashboard.bearer(role)
            answer = client.post(path, json=REASON, headers=headers)
            assert answer.status_code == status, answer.text
        queue = client.get("/api/v1/queue", params={"ended": 10}).json()
    assert {one["id"]: one["state"] for one in queue} == {
        own.id: "cancelled",
        other.id: "cancelled",
    }


def test_the_interface_describes_itself(dashboard: Served) -> None:
    document = dashboard.ask("GET", "/api/v1/openapi.json").json()
    assert document["openapi"].startswith("3.")
    paths = document["paths"]
    assert {"/api/v1/boards", "/api/v1/queue", "/api/v1/runs", "/api/v1/audit"} <= paths.keys()
    assert all(path.startswith("/api/v1/") for path in paths)


def test_metrics_can_be_read_and_grafana_asks_for_those_that_there_are(dashboard: Served) -> None:
    answer = dashboard.ask("GET", "/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    families = {one.name: one for one in text_string_to_metric_families(answer.text)}
    samples = {sample.name: sample for one in families.values() for sample in one.samples}
    assert families["labctl_board_state"].type == "gauge"
    states = families["labctl_board_state"].samples
    assert {sample.labels["board"] for sample in states} == {"rk1", "rk2"}
    assert sum(sample.value for sample in states) == 2
    panels = json.loads(GRAFANA.read_text())["panels"]
    asked = {
        name
        for panel in panels
        for target in panel["targets"]
        for name in re.findall(r"labctl_\w+", target["expr"])
    }
    known = samples.keys() | families.keys()
    # Without a board that measures or a run there is no sample of these.
    text = answer.text
    assert all(name in known or f"# TYPE {name} " in text for name in asked)
    assert len(asked) > 6


def test_tokens_are_made_listed_and_revoked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lab = made_lab(tmp_path / "kitchen")
    monkeypatch.chdir(lab.root)
    assert run_cli(["serve", "token", "add", "anna", "--role", "run"]) == 0
    token = capsys.readouterr().out.strip()
    assert token.startswith("labctl_")
    assert run_cli(["serve", "token", "list", "--json"]) == 0
    listed = capsys.readouterr().out
    (one,) = json.loads(listed)
    assert (one["name"], one["role"]) == ("anna", "run")
    assert list(one) == ["name", "role", "made_by", "made_at", "expires", "damaged"]
    assert token not in listed
    assert run_cli(["serve", "token", "add", "anna"]) == 2
    assert "token 'anna' exists already" in capsys.readouterr().err
    with served(lab) as dashboard:
        headers = {"Authorization": f"Bearer {token}"}
        path = "/api/v1/boards/rk1/hold"
        assert dashboard.ask("POST", path, json=REASON, headers=headers).status_code == 200
        assert run_cli(["serve", "token", "revoke", "anna"]) == 0
        assert dashboard.ask("POST", path, json=REASON, headers=headers).status_code == 401
    entries = lab_state(lab).audit.list(subject="anna")
    assert [one.action for one in entries] == ["token add", "token revoke"]
    assert {(one.actor, one.via) for one in entries} == {(this_user(), "cli")}
    assert token not in str(entries)


def test_words_of_records_are_chinese_on_chinese_pages(tmp_path: Path) -> None:
    lab = made_lab(tmp_path / "kitchen")
    state = lab_state(lab)
    state.health.set("rk1", Health.BAD, reason="x", by="y")
    state.audit.record("anna", "cli", "queue cancel", "7")
    state.audit.record("anna", "cli", "{unheard of}", "7")
    with served(lab) as dashboard:
        history = dashboard.ask("GET", "/boards/rk1?lang=zh").text
        audit = dashboard.ask("GET", "/audit?lang=zh").text
        assert "<td>queue cancel</td>" in dashboard.ask("GET", "/audit?lang=en").text
    assert "<td>健康</td><td><bdi>故障</bdi></td>" in history
    assert "<td>命令行</td><td>取消任务</td>" in audit
    assert "<td>{unheard of}</td>" in audit


def test_one_value_is_no_range(tmp_path: Path) -> None:
    lab = made_lab(tmp_path / "kitchen")
    folder = lab.root / "runs" / "20261122T093000Z-arithmetic-aaaaaa"
    share = AccuracyRecord(
        variant="a/p", budget=None, grader="boxed", correct=3, graded=4, low=0.1, high=0.9
    )
    made = made_evaluation(folder, right={"a/p": (1.0,)}, budgets=(None,), questions=4)
    held = [one.model_copy(update={"check": "one"}) for one in made.generations]
    write_evaluation(made, accuracies=(share,), more=held)
    with served(lab) as own, own.client() as client:
        page = client.get("/accuracy").text
        assert "</meter> 75.0%</td>" in page
        assert 'data-name="Answers">4/4</td>' in page


def test_a_run_dated_ahead_of_the_clock_is_marked(tmp_path: Path) -> None:
    lab = made_lab(tmp_path / "lab")
    ahead, later = "20461121T223000Z-q2-aaaaaa", "20261121T223000Z-q2-bbbbbb"
    for run_id in (ahead, later):
        recorded_run(lab.root / "runs", run_id)
    assert run_cli(["--lab", str(lab.root), "runs"]) == 0  # makes the index
    with served(lab) as dashboard:
        with dashboard.client(headers=dashboard.bearer("look")) as client:
            found = client.get("/api/v1/runs").json()["runs"]
        assert [one["id"] for one in found] == [later, ahead]
        assert [one.get("ahead_of_clock") for one in found] == [None, True]
        with dashboard.signed_in("look") as client:
            page = client.get("/runs").text
        assert page.count("DATE AHEAD OF THE CLOCK") == 1
        assert page.index(later) < page.index(ahead)
