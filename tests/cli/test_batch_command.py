"""``labctl batch`` and ``run --detach`` without a board: what jobs need of the lab."""

import json
from functools import partial
from pathlib import Path

import agent_builds
import pytest
from artifacts_made import make_artifact
from farm_lab import write_farm

from labctl.cli.root import run_cli
from labctl.config.lab import find_lab
from labctl.database.base import DatabaseAway, UnwritableDatabase, patiently
from labctl.errors import ConfigError
from labctl.farm import run_executor
from labctl.farm.turn import place_of
from labctl.state.groups import NewGroup
from labctl.state.health import Healths
from labctl.state.job import NewJob
from labctl.state.state import lab_state
from labctl.transport.built_in import TRANSPORTS


def a_night(root: Path, monkeypatch: pytest.MonkeyPatch, more: str) -> None:
    """A lab of one board, and a plan of jobs whose runs are refused with "it ran"."""
    monkeypatch.setenv("LABCTL_CACHE", str(root / "cache"))
    make_artifact(root, "agent", target=agent_builds.HOST, product="agent", version="current")
    write_farm(root, [{"name": "b-1", "address": "127.0.0.1:1", "workdir": "/w"}])
    (root / "night.yaml").write_text(f"name: night\njobs:\n  - {{recipe: sleeping, {more}}}\n")

    def run_recipe(*_: object) -> None:
        raise ConfigError("it ran")

    monkeypatch.setattr(run_executor, "run_recipe", run_recipe)


def results(root: Path) -> list[dict[str, object]]:
    """The jobs of the one batch, as it keeps them."""
    (path,) = root.glob("batches/*/results.json")
    found: list[dict[str, object]] = json.loads(path.read_text())["jobs"]
    return found


def test_a_database_that_is_away_for_a_moment_ends_no_batch(
    tmp_path: Path, private_state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_night(tmp_path, monkeypatch, "times: 3")
    job_done, asked = Healths.job_done, list[str]()

    def away(self: Healths, board: str) -> None:
        patiently(partial(at_first, self, board))

    def at_first(self: Healths, board: str) -> None:
        asked.append(board)
        if len(asked) % 2:
            raise DatabaseAway("the database is started again")
        job_done(self, board)

    monkeypatch.setattr(Healths, "job_done", away)
    assert run_cli(["--lab", str(tmp_path), "batch", str(tmp_path / "night.yaml")]) == 2
    assert [job["reason"] for job in results(tmp_path)] == ["it ran"] * 3
    assert len(asked) == 6


def test_a_job_that_cannot_be_counted_keeps_its_result(
    tmp_path: Path,
    private_state: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    a_night(tmp_path, monkeypatch, "times: 1")

    def job_done(_healths: Healths, _board: str) -> None:
        raise UnwritableDatabase("disk full")

    monkeypatch.setattr(Healths, "job_done", job_done)
    assert run_cli(["--lab", str(tmp_path), "batch", str(tmp_path / "night.yaml")]) == 2
    assert [job["reason"] for job in results(tmp_path)] == ["it ran"]
    assert "on b-1 is not counted: disk full" in capsys.readouterr().err


def test_jobs_and_their_results_are_told_as_json(
    tmp_path: Path,
    private_state: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    a_night(tmp_path, monkeypatch, "times: 1, expected: 2s, priority: 3")
    words = ["--lab", str(tmp_path), "batch", str(tmp_path / "night.yaml"), "--json"]
    assert run_cli([*words, "--dry-run"]) == 0
    (planned,) = json.loads(capsys.readouterr().out)
    assert list(planned.items()) == [
        ("id", planned["id"]),
        ("recipe", "sleeping"),
        ("boards", ["b-1"]),
        ("priority", 3),
        ("group", None),
        ("expected_seconds", 2.0),
    ]
    assert run_cli(words) == 2
    document = json.loads(capsys.readouterr().out)
    (path,) = tmp_path.glob("batches/*")
    ended = {"run": None, "exit_status": 2, "blame": "config", "reason": "it ran"}
    assert document == {"batch": path.name, "jobs": [planned | ended]}
    assert list(document["jobs"][0]) == [*planned, *ended]


def test_the_queue_is_told_as_json_without_the_requests(
    tmp_path: Path, private_state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_farm(tmp_path, [{"name": "b-1", "address": "127.0.0.1:1", "workdir": "/w"}])
    state = lab_state(find_lab(tmp_path, TRANSPORTS))
    state.jobs.submit(NewJob("sleeping", {"recipe": "secret"}, ("b-1",), id="one"))
    assert run_cli(["--lab", str(tmp_path), "queue", "--json"]) == 0
    (job,) = json.loads(capsys.readouterr().out)
    assert list(job) == [
        *("id", "kind", "runner", "name", "boards", "tried", "priority", "position", "submitter"),
        *("submitted_at", "expected_seconds", "max_seconds", "state", "board", "worker"),
        *("attempts", "failures", "expires", "stop", "run", "started_at", "ended_at"),
        *("exit_status", "blame", "reason", "broken", "uses", "group_id", "unit", "damaged"),
    ]


def test_a_detached_run_without_an_agent_is_refused_before_it_waits(
    tmp_path: Path,
    private_state: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("LABCTL_CACHE", str(tmp_path / "cache"))
    write_farm(tmp_path, [{"name": "b-1", "address": "127.0.0.1:1", "workdir": "/w"}])
    words = ["--lab", str(tmp_path), "run", "sleeping", "-b", "b-1", "--detach"]
    assert run_cli(words) == 2
    assert f"no agent (current) is built for target {agent_builds.HOST}" in capsys.readouterr().err
    assert not (tmp_path / "worker.log").exists()
    assert lab_state(find_lab(tmp_path, TRANSPORTS)).jobs.list(ended=9) == []


def test_the_queue_asks_for_a_worker_only_where_a_job_needs_one(
    tmp_path: Path, private_state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_farm(tmp_path, [{"name": "b-1", "address": "127.0.0.1:1", "workdir": "/w"}])
    state = lab_state(find_lab(tmp_path, TRANSPORTS))
    night = NewGroup("g", "batch", "night", "ann@pc")
    state.groups.own(night, "me", boards=["b-1"])
    state.jobs.submit(
        NewJob("sleeping", {}, ("b-1",), id="own", runner="process"),
        NewJob("sleeping", {}, ("b-1",), id="g.1", group_id="g"),
    )
    words = ["--lab", str(tmp_path), "queue"]
    assert run_cli(words) == 0
    assert "nobody serves the queue" not in capsys.readouterr().err
    state.groups.leave("g", "me")
    assert run_cli(words) == 0
    told = capsys.readouterr()
    assert "g.1  stopped " in told.out
    assert "batch night is stopped: its command continues it" in told.out
    assert "nobody serves the queue" not in told.err
    state.jobs.submit(NewJob("pull", {}, ("b-1",), "untrusted", id="pull"))
    assert run_cli(words) == 0
    assert "nobody serves the queue" in capsys.readouterr().err


def test_a_place_counts_no_job_of_a_batch_that_is_stopped(
    tmp_path: Path, private_state: Path
) -> None:
    write_farm(tmp_path, [{"name": "b-1", "address": "127.0.0.1:1", "workdir": "/w"}])
    state = lab_state(find_lab(tmp_path, TRANSPORTS))
    state.groups.own(NewGroup("g", "batch", "night", "ann@pc"), "me")
    state.jobs.submit(*(NewJob("q8", {}, ("b-1",), id=f"g.{n}", group_id="g") for n in range(9)))
    (own,) = state.jobs.submit(NewJob("q8", {}, ("b-1",), runner="process"))
    state.groups.leave("g", "me")
    place = place_of(state, tmp_path, own)
    assert (place.number, place.of) == (1, 1)


def test_a_batch_bears_its_hosts_name_in_the_lab(
    tmp_path: Path, private_state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_night(tmp_path, monkeypatch, "times: 1")
    words = ["--lab", str(tmp_path), "batch", str(tmp_path / "night.yaml"), "--host", "lab2"]
    assert run_cli(words) == 2
    (job,) = lab_state(find_lab(tmp_path, TRANSPORTS)).jobs.list(ended=9)
    assert job.host == "lab2"
