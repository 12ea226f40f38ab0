"""Evaluations and load tests whose server is on a board: as jobs, in batches, and by ``run``."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from artifacts_made import make_artifact
from evaluations import boxed, number_of, recipe_text, sums_lab
from scripted_answers import Answer, Asked
from scripted_endpoint import ScriptedEndpoint, scripted_endpoint
from tiny_gguf import write_tiny_gguf

from labctl.cli.root import run_cli
from labctl.config.lab import Board, LabFile, find_lab
from labctl.config.yaml.document import Document, parse
from labctl.errors import BoardError, ConfigError, ExitStatus
from labctl.evaluation import run as evaluation_run
from labctl.evaluation.any_recipe import read_any
from labctl.evaluation.recipe import EvaluationRecipe
from labctl.evaluation.recipe_parts import ServedRecipe
from labctl.evaluation.servers.started import ServerRequest
from labctl.evaluation.serving import run as load_run
from labctl.evaluation.serving.directory import LoadTestDirectory
from labctl.evaluation.serving.run import LoadTestOutcome
from labctl.evaluation.serving.served import Served
from labctl.farm.batch_plan import BatchPlan, plan_batch
from labctl.farm.job import FarmJob
from labctl.farm.nightly.executor import Built
from labctl.farm.nightly.lab_executor import LabExecutor
from labctl.farm.run_content import RunContent
from labctl.farm.run_executor import RunExecutor
from labctl.gguf.inspect import identify_file
from labctl.records.evaluation import EndpointRecord
from labctl.records.night import NightRow
from labctl.runs.board.lab_lease import BoardUse
from labctl.runs.record.directory import RunDirectory
from labctl.state.state import lab_state
from labctl.transport.built_in import TRANSPORTS

DEVICES = """\
boards:
  b-1: {target: rk3568, transport: {kind: hdc, link: tcp, address: "127.0.0.1:1"}}
  b-2: {target: rk3568, transport: {kind: hdc, link: tcp, address: "127.0.0.2:1"}}
"""
LOAD = {
    "name": "load",
    "models": {"m": {"file": "m.gguf"}},
    "endpoint": {"model": "m", "start": "board"},
    "concurrency": [1],
    "requests": 3,
    "warm_up": 0,
    "max_time": "5m",
    "gates": [{"metric": "failed_share", "max": 0}],
}


def right(asked: Asked) -> str:
    return boxed(2 * number_of(asked))


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LabFile:
    """A lab with two boards that nothing contacts, and a recipe of each kind for a board."""
    monkeypatch.setenv("LABCTL_CACHE", str(tmp_path / "cache"))
    sums_lab(tmp_path, 4)
    (tmp_path / "devices.yaml").write_text(DEVICES)
    write_tiny_gguf(tmp_path / "m.gguf")
    asking = json.loads(recipe_text({"m": ["http://127.0.0.1:1"]}, attempts=1))
    asking["models"] = {"m": {"file": "m.gguf"}}
    asking["endpoints"] = {"there": {"start": "board", "model": "m", "board": "b-1"}}
    (tmp_path / "sums.yaml").write_text(json.dumps(asking))
    (tmp_path / "load.yaml").write_text(json.dumps(LOAD))
    make_artifact(tmp_path, "llama-server")
    return find_lab(tmp_path, TRANSPORTS)


class Servers:
    """In place of servers on boards: one scripted server; it keeps what each was started for."""

    def __init__(self, lab: LabFile, server: ScriptedEndpoint, patch: pytest.MonkeyPatch):
        self.uses: list[tuple[str | None, BoardUse]] = []
        #: What the start of the next server raises.
        self.broken: Exception | None = None
        #: Called when a server starts.
        self.on_start: Callable[[], None] = lambda: None
        identity = identify_file("m", lab.root / "m.gguf")
        record = EndpointRecord(name="there", api="llama-server", model="m", sha256_proven=True)

        def start(recipe: Any, _lab: LabFile, *_: Any, use: BoardUse, **__: Any) -> dict[str, Any]:
            self._started(recipe.endpoints["there"].board, use)
            where = record.model_copy(update={"board": recipe.endpoints["there"].board})
            return {
                "there": SimpleNamespace(
                    address=server.address,
                    served_name=None,
                    record=where,
                    model=identity,
                    notes=(),
                    check=lambda: None,
                )
            }

        @contextmanager
        def serving(
            recipe: Any, _lab: LabFile, _folder: Path, *_: Any, use: BoardUse
        ) -> Iterator[Served]:
            self._started(recipe.endpoint.board, use)
            where = record.model_copy(update={"board": recipe.endpoint.board})
            yield Served("openai-chat", server.address, None, None, where, identity)

        patch.setattr(evaluation_run, "start_servers", start)
        patch.setattr(load_run, "serving", serving)

    def _started(self, board: str | None, use: BoardUse) -> None:
        self.uses.append((board, use))
        self.on_start()
        if self.broken is not None:
            error, self.broken = self.broken, None
            raise error


@pytest.fixture
def servers(lab: LabFile, monkeypatch: pytest.MonkeyPatch) -> Iterator[Servers]:
    def script(asked: Asked) -> Answer | str:
        return right(asked) if "What is" in asked else Answer([" word"] * 3)

    with scripted_endpoint(script) as server:
        yield Servers(lab, server, monkeypatch)


class Ledger:
    """Knows what one job runs, and its run."""

    def __init__(self, content: RunContent):
        self.kept = content
        self.run: str | None = None

    def run_of(self, job: FarmJob) -> str | None:
        return self.run

    def content(self, job: FarmJob) -> RunContent:
        return RunContent.read(json.loads(json.dumps(self.kept.document())))

    def note_run(self, job: FarmJob, board: str, run: str) -> None:
        self.run = run


def ledger_of(lab: LabFile, name: str) -> Ledger:
    recipe = read_any(lab.root / f"{name}.yaml", lab_root=lab.root)
    return Ledger(RunContent.of(recipe, lab.root, target="rk3568"))


def executor(lab: LabFile, ledger: Ledger) -> RunExecutor:
    return RunExecutor(lab, ledger, lambda board: pytest.fail(f"contacts {board}"))


@pytest.mark.parametrize("name", ["sums", "load"])
def test_the_content_of_a_job_has_its_files_and_its_build(lab: LabFile, name: str) -> None:
    kept = ledger_of(lab, name).kept
    assert {*kept.files} == {"m.gguf"} | ({"sums.jsonl"} if name == "sums" else set())
    assert kept.build is not None
    read = RunContent.read(json.loads(json.dumps(kept.document())))
    assert (read.recipe, read.files, read.build) == (kept.recipe, kept.files, kept.build)
    assert not isinstance(read.recipe, type(None))
    (server,) = read.recipe.board_servers()  # type: ignore[union-attr]
    assert server.version == f"{kept.build.version}-{kept.build.key[:12]}"
    (lab.root / "m.gguf").write_bytes(b"another")
    with pytest.raises(ConfigError, match=r"m\.gguf changed since the job was submitted"):
        read.check(lab.root)


@pytest.mark.parametrize("name", ["sums", "load"])
def test_a_job_runs_its_recipe_once_on_the_board_that_it_got(
    lab: LabFile, servers: Servers, name: str
) -> None:
    ledger = ledger_of(lab, name)
    job = FarmJob("j1", name, ("b-1", "b-2"), submitter="ann@desk", attempt=1)
    result = executor(lab, ledger).run(job, "b-2")
    assert (result.exit_status, result.blame, result.reason) == (ExitStatus.OK, None, None)
    ((board, use),) = servers.uses
    assert (board, use.job, use.attempt, use.holder) == ("b-2", "j1", 1, "ann@desk")
    kind = "evaluation" if name == "sums" else "serving"
    record = json.loads((lab.root / "runs" / str(result.run) / f"{kind}.json").read_text())
    assert record["job"] == "j1"
    assert ledger.run == result.run
    assert executor(lab, ledger).run(job, "b-2").run == result.run
    assert len(servers.uses) == 1


def test_a_missed_gate_is_the_failure_of_the_job(lab: LabFile, servers: Servers) -> None:
    missed = LOAD | {"gates": [{"metric": "requests_per_second", "min": 10**9}]}
    (lab.root / "load.yaml").write_text(json.dumps(missed))
    ledger = ledger_of(lab, "load")
    result = executor(lab, ledger).run(FarmJob("j1", "load", ("b-1",)), "b-1")
    assert (result.exit_status, result.blame) == (ExitStatus.JOB, "job")
    assert result.reason == "1 gate missed"


def test_a_board_that_broke_under_an_evaluation_is_no_end_of_its_job(
    lab: LabFile, servers: Servers
) -> None:
    ledger = ledger_of(lab, "sums")
    servers.broken = BoardError("the board is gone")
    job = FarmJob("j1", "sums", ("b-1", "b-2"))
    first = executor(lab, ledger).run(job, "b-1")
    assert (first.is_final, first.is_board_broken) == (False, True)
    assert executor(lab, ledger).run(job, "b-2").exit_status == ExitStatus.OK


PLAN = "name: night\njobs: [{recipe: sums.yaml, expected: 1m}, {recipe: load.yaml, on: tag=fast}]\n"


def test_a_batch_has_jobs_of_every_kind(lab: LabFile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(lab.root)
    planned = plan_batch(
        parse(PLAN, BatchPlan, "plan.yaml"),
        lab,
        lambda _selector: ["b-1", "b-2"],
        lambda recipe, _boards: recipe.max_time,
    )
    found = [(one.job.name, one.job.boards, one.job.expected_seconds) for one in planned.jobs]
    assert found == [("sums", ("b-1",), 60.0), ("load", ("b-1", "b-2"), 300.0)]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (
            {"endpoints": {"far": {"url": "http://h:1", "api": "llama-server", "model": "m"}}},
            "it starts 0 servers on boards",
        ),
        ({}, "nobody knows how long a run takes"),
    ],
)
def test_what_needs_no_queue_or_has_no_time_is_refused(
    lab: LabFile, monkeypatch: pytest.MonkeyPatch, change: dict[str, object], told: str
) -> None:
    monkeypatch.chdir(lab.root)
    text = json.loads((lab.root / "sums.yaml").read_text()) | change
    (lab.root / "sums.yaml").write_text(json.dumps(text))
    plan = parse("name: n\njobs: [{recipe: sums.yaml}]\n", BatchPlan, "plan.yaml")
    with pytest.raises(ConfigError, match=told):
        plan_batch(plan, lab, lambda _selector: ["b-1"], lambda recipe, _boards: recipe.max_time)


@pytest.mark.parametrize("name", ["sums", "load"])
def test_run_waits_its_turn_and_has_the_board_while_the_server_is_there(
    lab: LabFile, servers: Servers, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(lab.root)
    seen: list[tuple[str, str | None, str]] = []
    servers.on_start = lambda: seen.extend(
        (job.kind, job.board, job.state) for job in lab_state(lab).jobs.list()
    )
    assert run_cli(["run", f"{name}.yaml", "--board", "b-2"]) == ExitStatus.OK
    assert seen == [("run", "b-2", "running")]
    (job,) = lab_state(lab).jobs.list(ended=1)
    ((board, use),) = servers.uses
    assert (board, use.job, job.state, job.exit_status) == ("b-2", job.id, "done", 0)


def test_a_board_that_another_holds_is_not_taken(
    lab: LabFile,
    servers: Servers,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(lab.root)
    lab_state(lab).holds.hold("b-1", by="ann@desk")
    assert run_cli(["run", "sums.yaml", "--no-wait"]) == ExitStatus.INFRA
    assert "ann@desk" in capsys.readouterr().err
    assert servers.uses == []


def test_a_detached_evaluation_is_a_job_of_the_queue(
    lab: LabFile, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(lab.root)
    make_artifact(lab.root, "agent", product="agent", version="current")
    monkeypatch.setattr("labctl.cli.run_detached.serve_if_nobody_does", lambda *_: None)
    assert run_cli(["run", "sums.yaml", "--detach", "--limit", "2"]) == ExitStatus.OK
    job = lab_state(lab).jobs.find(capsys.readouterr().out.strip())
    recipe = RunContent.read(job.content).recipe
    assert isinstance(recipe, EvaluationRecipe)
    assert (job.kind, job.boards, recipe.dataset.limit) == ("run", ("b-1",), 2)
    assert recipe.settings == ("--set dataset.limit=2",)
    assert Document.parse(str(recipe.as_written), "sums.yaml").value


@pytest.mark.parametrize("name", ["sums", "load"])
def test_the_server_is_of_the_version_and_the_target_that_the_recipe_names(
    lab: LabFile, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    asked: list[ServerRequest] = []

    def start(request: ServerRequest, *_: object, **__: object) -> None:
        asked.append(request)
        raise BoardError("enough is known")

    monkeypatch.setattr("labctl.evaluation.contact.started_endpoint", start)
    monkeypatch.setattr("labctl.evaluation.servers.started.started_endpoint", start)
    recipe = read_any(lab.root / f"{name}.yaml", lab_root=lab.root)
    assert isinstance(recipe, ServedRecipe)
    ledger = Ledger(
        RunContent(recipe.changed_on_board(version="new-0123456789ab", target="rk3568"), {})
    )
    executor(lab, ledger).run(FarmJob("j1", name, ("b-1",)), "b-1")
    (request,) = asked
    assert (request.engine.version, request.target) == ("new-0123456789ab", "rk3568")


def test_a_load_test_that_lost_its_server_is_the_run_of_its_job(
    lab: LabFile, servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = LoadTestOutcome(
        LoadTestDirectory(lab.root / "runs" / "20261129T000000Z-load-0123ab"),
        None,  # type: ignore[arg-type]
        "failed",
        error=BoardError("the server is gone"),
    )
    monkeypatch.setattr("labctl.farm.served_job.run_load_test", lambda *_, **__: ended)
    result = executor(lab, ledger_of(lab, "load")).run(FarmJob("j1", "load", ("b-1",)), "b-1")
    assert (result.run, result.reason) == ("20261129T000000Z-load-0123ab", "the server is gone")
    assert result.is_board_broken


MORE = '  c-1: {target: rk3588, transport: {kind: hdc, link: tcp, address: "127.0.0.3:1"}}\n'


@pytest.mark.parametrize("target", [None, "rk3568"])
@pytest.mark.parametrize("name", ["sums", "load"])
def test_boards_of_another_target_take_no_job_of_a_recipe(
    lab: LabFile, monkeypatch: pytest.MonkeyPatch, name: str, target: str | None
) -> None:
    monkeypatch.chdir(lab.root)
    (lab.root / "devices.yaml").write_text(DEVICES + MORE)
    text = json.loads((lab.root / f"{name}.yaml").read_text())
    server = text["endpoints"]["there"] if name == "sums" else text["endpoint"]
    server["target"] = target
    (lab.root / f"{name}.yaml").write_text(json.dumps(text))
    pools: list[list[str]] = []

    def submit(_lab: LabFile, _recipe: object, pool: list[Board], *_: object) -> int:
        pools.append([board.name for board in pool])
        return 0

    monkeypatch.setattr("labctl.cli.run_detached.submit", submit)
    run_cli(["run", f"{name}.yaml", "--detach", "--on", "health!=bad"])
    assert pools == [["b-1", "b-2"]]


def test_a_board_of_another_target_is_refused_before_the_queue(
    lab: LabFile, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(lab.root)
    (lab.root / "devices.yaml").write_text(DEVICES + MORE)
    make_artifact(lab.root, "agent", product="agent", version="current")
    (lab.root / "load.yaml").write_text(
        json.dumps(LOAD | {"endpoint": {"model": "m", "start": "board", "target": "rk3568"}})
    )
    assert run_cli(["run", "load.yaml", "--detach", "--board", "c-1"]) == ExitStatus.CONFIG
    assert "recipe load is for target rk3568, board c-1 is a rk3588" in capsys.readouterr().err
    assert lab_state(lab).jobs.list() == []


def test_a_gate_that_was_not_judged_is_no_good_row_of_a_night(
    lab: LabFile, servers: Servers
) -> None:
    text = json.loads((lab.root / "sums.yaml").read_text())
    text["budgets"] = {"seconds": [60], "time_per_token": {"m": "1s"}}
    text["gates"] = [{"metric": "accuracy", "min": 0.5, "where": {"budget": 7}}]
    (lab.root / "sums.yaml").write_text(json.dumps(text))
    result = executor(lab, ledger_of(lab, "sums")).run(FarmJob("j1", "sums", ("b-1",)), "b-1")
    assert (result.exit_status, result.reason) == (ExitStatus.OK, None)
    done = RunDirectory(lab.root / "runs" / str(result.run))
    jobs = SimpleNamespace(run=lambda *_: (done, 1.0), stop=lambda: None)
    night = LabExecutor(lab, None, jobs, print)  # type: ignore[arg-type]
    row = NightRow(
        name="n/sums@b-1",
        build="n/rk3568",
        recipe="sums",
        board="b-1",
        variants=("gates",),
        gated=True,
        seconds=0.0,
        find=0.05,
        screen=1,
        look=0,
    )
    with pytest.raises(ConfigError, match="not judged: nothing of this run has budget=7"):
        night.measure(row, "b-1", Built("k", "v", "s", "p"), began=lambda _: None, queued={})
