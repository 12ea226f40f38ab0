"""News for the lab's webhooks: each is told once, and only what is news."""

import json
from pathlib import Path

import pytest
from dashboards import made_lab, served
from webhook_receiver import receiving

from labctl.farm.news import LabNews
from labctl.retry import wait_until
from labctl.state.health import NOT_LOOKED_THROUGH, UNTRUSTED, Health
from labctl.state.job import NewJob
from labctl.state.state import lab_state


def test_a_board_in_quarantine_is_news_once(tmp_path: Path) -> None:
    state = lab_state(made_lab(tmp_path / "kitchen"))
    state.health.set("rk1", Health.BAD, reason="old", by="x")
    found = LabNews(state)
    assert found.look() == []
    state.health.set("rk2", Health.GOOD, reason="fine", by="x")
    state.health.set("rk2", Health.BAD, reason="memory 18 % slower", by="health check")
    (event,) = found.look()
    assert (event.kind, event.title) == ("board-quarantined", "board rk2 is in quarantine")
    assert (event.text, event.facts) == ("memory 18 % slower", {"by": "health check"})
    assert found.look() == []


@pytest.mark.parametrize(
    "found_out", ["an untrusted recipe changed q4.gguf", f"{NOT_LOOKED_THROUGH}: no answer"]
)
def test_an_untrusted_recipe_is_news_for_what_it_left_alone(tmp_path: Path, found_out: str) -> None:
    state = lab_state(made_lab(tmp_path / "kitchen"))
    news_of_lab = LabNews(state)
    runs = {UNTRUSTED: NOT_LOOKED_THROUGH}
    state.health.set("rk1", Health.BAD, reason=NOT_LOOKED_THROUGH, by="x", evidence=runs)
    assert news_of_lab.look() == []
    state.health.set("rk1", Health.BAD, reason=found_out, by="x", evidence={UNTRUSTED: found_out})
    assert [event.text for event in news_of_lab.look()] == [found_out]
    assert [event.reason for event in state.health.history("rk1")][-1] == found_out


def test_a_queue_that_stands_is_news_until_it_moves(tmp_path: Path) -> None:
    state = lab_state(made_lab(tmp_path / "kitchen"))
    found = LabNews(state, stuck_seconds=0.0)
    (job,) = state.jobs.submit(NewJob("q8", {}, ("rk1",)))
    assert LabNews(state).look() == []
    (event,) = found.look()
    assert (event.kind, event.facts["oldest"]) == ("queue-stuck", f"{job.id} q8")
    assert found.look() == []
    state.jobs.cancel(job.id, "x")
    assert found.look() == []
    state.jobs.submit(NewJob("q4", {}, ("rk1",)))
    assert [one.kind for one in found.look()] == ["queue-stuck"]


HOOK = """\
webhooks:
  chat: {form: slack, host: 127.0.0.1, address: "env:HOOK_ADDRESS", private: true}
"""


def test_the_dashboard_tells_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lab = made_lab(tmp_path / "kitchen", more=HOOK)
    with receiving() as receiver:
        monkeypatch.setenv("HOOK_ADDRESS", f"{receiver.address}/x")
        with served(lab) as dashboard:
            # Its first look has ended once a stream tells of a change after it.
            with dashboard.client() as client, client.stream("GET", "/live") as live:
                texts = live.iter_text()
                lab_state(lab).jobs.submit(NewJob("q8", {}, ("rk1",)))
                assert any("queue" in text for text in texts)
                lab_state(lab).jobs.submit(NewJob("q4", {}, ("rk1",)))
                assert any("queue" in text for text in texts)
            lab_state(lab).health.set("rk1", Health.BAD, reason="hot", by="x")
            assert wait_until(lambda: bool(receiver.came), timeout=60, interval=0.1)
    assert "board rk1 is in quarantine" in json.loads(receiver.came[0][2])["text"]
