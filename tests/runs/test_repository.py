"""The repository of runs: what the index says is what the run directories say."""

import math
import multiprocessing
import os
import re
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from postgres_server import rows
from records_made import BEGAN, energy, model, plan, planned_run, probe, run, timing, trial

from labctl.board.probe_files import save_probe
from labctl.config.lab import find_lab
from labctl.database.base import patience
from labctl.database.sqlite import SqliteDatabase
from labctl.errors import Blame, DeviceLost, HostError, ProgramFailed
from labctl.index.filters import Filter
from labctl.index.index import Index
from labctl.records.run import (
    Annotations,
    ArtifactIdentity,
    GateRecord,
    Origin,
    PlannedRecord,
    RunEnd,
)
from labctl.records.trial import ConditionRecord, Failure, TrialState
from labctl.retry import wait_until
from labctl.runs.record.annotations import add_tags, set_note
from labctl.runs.record.directory import RunDirectory
from labctl.runs.record.lookup import find_run
from labctl.runs.record.repository import RunRepository
from labctl.runs.record.trash import move_to_trash
from labctl.state.state import lab_state
from labctl.transport.built_in import TRANSPORTS

FIRST, SECOND = "20261120T223000Z-q2-abcdef", "20261121T223000Z-q2-123456"
BUILD = ArtifactIdentity(
    product="llama.cpp",
    version="new",
    target="rk3568",
    key="d9047176" + "0" * 56,
    commit="0c1e5709" + "0" * 32,
    toolchain="zig 0.17.0",
    tools={},
)


@pytest.fixture
def runs(folder: Path) -> Path:
    devices = folder.parent / "devices.yaml"
    if not devices.exists():
        devices.write_text("boards: {}\n")
    return with_two(folder)


@pytest.fixture
def in_file(tmp_path: Path) -> Path:
    """Two runs, their index in a file."""
    return with_two(tmp_path / "runs")


def with_two(folder: Path) -> Path:
    for run_id in (FIRST, SECOND):
        directory = planned_run(folder, run(run_id), plan())
        directory.add(trial(1))
        directory.add(trial(2))
    return folder


def ids(runs: Path, **wanted: object) -> list[str]:
    return [one.run.id for one in RunRepository(runs).query(Filter(**wanted))]  # type: ignore[arg-type]


def finish(directory: RunDirectory, **changes: object) -> None:
    directory.finish(RunEnd(**{"state": "finished", "finished": BEGAN, **changes}))  # type: ignore[arg-type]


def test_warm_ups_count_as_no_trials(folder: Path) -> None:
    planned = tuple(
        PlannedRecord(
            number=number, variant="q2", model="q2_k", repeat=number - 1, parameters={},
            warm_up_pass=False,
        )
        for number in (1, 2, 3)
    )  # fmt: skip
    directory = planned_run(folder, run(), plan().model_copy(update={"trials": planned}))
    directory.add(trial(1, repeat=0))
    directory.add(trial(2))
    (row,) = RunRepository(folder).query()
    assert (row.run.trials_ok, row.run.trials_planned) == (1, 2)  # of 3, one of them a warm-up


def test_a_trial_has_a_row_with_all_that_its_record_says_but_tokens(folder: Path) -> None:
    record = run(artifacts=(BUILD,), recipe_resolved={"engine": {"name": "llama_cpp", "task": "t"}})
    directory = planned_run(folder, record, plan())
    lost = Failure.of(ProgramFailed("it crashed"))
    directory.add(
        trial(
            1,
            parameters={"threads": 4, "nested": {"ü": [1, None]}},
            comparability={"governor": "performance"},
            conditions=(ConditionRecord(name="governor", wanted="x", had="y", ok=False),),
            energy=energy(),
            timing=timing([100, 110, 120], p90_ns=119, p99_ns=None),
        )
    )
    directory.add(trial(2, state=TrialState.FAILED, failure=lost, timing=None))
    good, bad = RunRepository(folder).trials()
    row = good.trial
    assert row.parameters == {"threads": 4, "nested": {"ü": [1, None]}}
    assert row.comparability == {"governor": "performance"}
    assert row.conditions == {"governor": "y"}
    assert (row.model_sha256, row.quantization) == (model().sha256, "Q2_K")
    names = ("ttft_ns", "p50_ns", "p90_ns", "p99_ns", "joules", "joules_per_token")
    assert [row.figures[name] for name in names] == [
        2_000_000_000,
        110_000_000,
        119,
        None,
        40.0,
        1.25,
    ]
    assert row.figures["prompt_tokens_per_second"] == pytest.approx(14)
    assert (bad.trial.state, bad.trial.blame, bad.trial.failure) == (
        "failed",
        "job",
        "ProgramFailed",
    )
    assert bad.trial.figures["ttft_ns"] is None
    built = good.run
    assert (built.product, built.version, built.build_key) == ("llama.cpp", "new", BUILD.key)
    assert (built.build_commit, built.compiler) == (BUILD.commit, "zig 0.17.0")
    assert (built.engine, built.task, built.execution) == ("llama_cpp", "t", "board")


def test_the_figures_of_a_run_span_the_estimates_of_its_variants(folder: Path) -> None:
    directory = planned_run(folder, run(), plan())
    for number, (variant, repeat, ms) in enumerate(
        [("a", 0, 900), ("a", 1, 10), ("a", 2, 30), ("b", 1, 50), ("b", 2, 70)], 1
    ):
        directory.add(trial(number, variant=variant, repeat=repeat, timing=timing([ms])))
    (found,) = RunRepository(folder).query()
    means = round(math.sqrt(10 * 30) * 1e6), round(math.sqrt(50 * 70) * 1e6)
    assert [found.run.figures[name] for name in ("token_low_ns", "token_high_ns")] == [*means]
    assert (found.run.trials_ok, found.run.trials_recorded) == (4, 5)


@pytest.mark.parametrize(
    ("end", "state", "expected"),
    [
        ({}, TrialState.OK, ("finished", "passed")),
        ({}, TrialState.FAILED, ("finished", "failed")),
        ({"gates": False}, TrialState.OK, ("finished", "failed")),
        ({"gates": None}, TrialState.OK, ("finished", "passed")),
        ({"state": "interrupted"}, TrialState.OK, ("interrupted", None)),
        ({"state": "failed", "failure": DeviceLost("gone")}, TrialState.OK, ("failed", "infra")),
        (None, TrialState.OK, ("interrupted", None)),
    ],
)
def test_a_run_has_the_verdict_of_its_exit_status(
    folder: Path, end: dict[str, object] | None, state: TrialState, expected: tuple[str, str]
) -> None:
    directory = planned_run(folder, run(), plan())
    directory.add(trial(1, state=state))
    if end is not None:
        changes = dict(end)
        if "gates" in changes:
            passed = changes["gates"]
            gate = GateRecord(variant="v", metric="m", limit="l", value=1, passed=passed, detail="")  # type: ignore[arg-type]
            changes["gates"] = (gate,)
        if "failure" in changes:
            changes["failure"] = Failure.of(changes["failure"])  # type: ignore[arg-type]
        finish(directory, **changes)
    (found,) = RunRepository(folder).query()
    assert (found.run.state, found.run.verdict) == expected


def test_runs_are_found_by_each_filter_and_by_all_together(folder: Path) -> None:
    one = planned_run(folder, run(FIRST, recipe="a", artifacts=(BUILD,)), plan())
    one.add(trial(1, board="moved"))
    (one.path / "annotations.json").write_text(Annotations(tags=("x", "y")).model_dump_json())
    finish(one)
    big = model("q8", "Q8_0", file="Big.gguf", name="Big")
    later = BEGAN.replace(day=21)
    planned_run(folder, run(SECOND, board="rk2", models=(big,), started=later), plan())
    for wanted in (
        {"recipe": "a"},
        {"board": "rk1"},
        {"board": "moved"},
        {"model": "q2_k.gguf"},
        {"model": model().sha256[:8]},
        {"quantization": "q2_k"},
        {"build": "new"},
        {"build": "d904"},
        {"build": "0c1e"},
        {"until": later},
        {"states": ("finished", "damaged")},
        {"verdict": "passed"},
        {"tags": ("x", "y")},
        {"recipe": "a", "quantization": "Q2_K", "tags": ("y",), "until": later},
    ):
        assert ids(folder, **wanted) == [FIRST], wanted
    for wanted in (
        {"model": "Big"},
        {"since": later},
        {"board": "rk2"},
        {"states": ("unfinished",)},
    ):
        assert ids(folder, **wanted) == [SECOND], wanted
    for wanted in ({"model": "%"}, {"tags": ("x", "z")}, {"recipe": "' OR 1 = 1 --"}):
        assert ids(folder, **wanted) == [], wanted


def test_of_a_run_that_is_found_only_the_trials_looked_for_come(folder: Path) -> None:
    big = model("q8", "Q8_0")
    directory = planned_run(folder, run(models=(model(), big)), plan())
    directory.add(trial(1))
    directory.add(trial(2, model=big, board="moved"))
    repository = RunRepository(folder)
    for wanted in (Filter(quantization="q8_0"), Filter(model="q8"), Filter(board="moved")):
        assert [one.trial.number for one in repository.trials(wanted)] == [2]


@pytest.mark.parametrize(
    ("asked", "numbers"),
    [
        (["threads=4"], [1, 2]),
        (["threads=4.0"], [1, 2]),
        (["threads=04"], [1, 2]),
        (["threads=2", "threads=4"], [1, 2, 3]),
        (["threads=4", "mmap=true"], [1]),
        (["threads=2", "mmap=true"], []),
        (["mmap=False"], [2, 3]),
        (["temperature=0.80"], [1]),
        (["seed=12345678901234567890"], [2]),
        (["seed=12345678901234567891"], []),
        (["cache=q8_0"], [3]),
        (["label=4"], [3]),
        (["label=1e3"], []),
        (["label=%"], []),
        (["Threads=4"], []),
        (["stop=[1, 2]"], [3]),
        (["x' OR '1'='1"], []),
    ],
)
def test_trials_are_found_by_the_values_of_their_parameters(
    folder: Path, asked: list[str], numbers: list[int]
) -> None:
    directory = planned_run(folder, run(FIRST), plan())
    for number, parameters in enumerate(
        (
            {"threads": 4, "mmap": True, "temperature": 0.8},
            {"threads": 4.0, "mmap": False, "seed": 12345678901234567890},
            {"threads": 2, "mmap": False, "cache": "q8_0", "label": "4", "stop": [1, 2]},
        ),
        1,
    ):
        directory.add(trial(number, variant=f"v{number}", parameters=parameters))
    pairs = tuple((name, value) for name, _, value in (word.partition("=") for word in asked))
    repository = RunRepository(folder)
    wanted = Filter(parameters=pairs, board="rk1")
    assert [one.trial.number for one in repository.trials(wanted)] == numbers
    assert [one.run.id for one in repository.query(wanted)] == ([FIRST] if numbers else [])


def test_the_list_comes_back_when_the_index_is_gone_or_behind(runs: Path) -> None:
    assert ids(runs) == [SECOND, FIRST]
    third = planned_run(runs, run("20261122T000000Z-q2-fedcba"), plan())
    lost = Failure.of(DeviceLost("gone"))
    assert lost.blame is Blame.INFRA
    third.add(trial(1, state=TrialState.FAILED, failure=lost, timing=None))
    newest = RunRepository(runs).query()[0].run
    assert (newest.id, newest.trials_ok, newest.trials_failed) == (third.path.name, 0, 1)
    (runs / "index.sqlite").unlink(missing_ok=True)
    assert len(ids(runs)) == 3
    database = RunRepository(runs)._index._database
    with database.writing() as connection:
        connection.exec_driver_sql("DELETE FROM run")
        connection.exec_driver_sql("DELETE FROM index_version")
        connection.exec_driver_sql("INSERT INTO index_version VALUES ('another', '0.1.0')")
    assert len(ids(runs)) == 3


def test_a_damaged_index_is_made_again_and_says_so(in_file: Path) -> None:
    ids(in_file)
    (in_file / "index.sqlite").write_bytes(b"no database" * 1000)
    said: list[str] = []
    assert len(RunRepository(in_file, said.append).query()) == 2
    assert said == ["the index of runs was damaged: made again from the run directories"]


@pytest.mark.parametrize("damaged_from", [100, 4096, 8192])
def test_an_index_with_damaged_pages_is_made_again(in_file: Path, damaged_from: int) -> None:
    ids(in_file)
    path = in_file / "index.sqlite"
    whole = path.read_bytes()
    path.write_bytes(whole[:damaged_from] + b"\xa5" * (len(whole) - damaged_from))
    assert ids(in_file) == [SECOND, FIRST]


def test_an_index_of_an_older_version_is_made_again_in_one_line(in_file: Path) -> None:
    with sqlite3.connect(in_file / "index.sqlite") as db:
        db.execute("CREATE TABLE run (id TEXT PRIMARY KEY, recipe TEXT)")
        db.execute("CREATE TABLE trial (run TEXT REFERENCES run (id), number INTEGER)")
        db.execute("PRAGMA user_version = 2")
    db.close()
    said: list[str] = []
    assert len(RunRepository(in_file, said.append).query()) == 2
    assert said == ["the index is of another version of labctl: made again from 2 runs"]
    with sqlite3.connect(in_file / "index.sqlite") as db:
        db.execute("UPDATE index_version SET version = 'another'")
        db.execute("DELETE FROM trial")
    db.close()
    assert len(RunRepository(in_file, said.append).trials()) == 4
    assert len(said) == 2


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """Let this process write nothing below a folder, also where it is root's."""
    for path in (folder, *folder.parents[:2]):
        path.chmod(0o555)
    for path in folder.glob("*.sqlite"):
        path.chmod(0o444)
    user = os.geteuid()
    if not user:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(user)
        folder.chmod(0o755)


@pytest.mark.parametrize("index", ["none", "behind", "damaged", "up to date"])
def test_runs_in_a_folder_that_cannot_be_written_are_found(index: str) -> None:
    with tempfile.TemporaryDirectory() as lab:
        runs = with_two(Path(lab) / "lab" / "runs")
        if index != "none":
            RunRepository(runs).query()
        if index == "behind":
            add_tags(find_run(runs, FIRST), ["a"])
        if index == "damaged":
            (runs / "index.sqlite").write_bytes(b"no database" * 1000)
        before = sorted(path.name for path in runs.iterdir())
        said: list[str] = []
        with read_only(runs):
            repository = RunRepository(runs, said.append)
            assert [one.run.id for one in repository.query()] == [SECOND, FIRST]
            assert len(repository.trials()) == 4
            assert repository.tags() == (["a"] if index == "behind" else [])
            with pytest.raises(HostError, match="cannot use the index"):
                RunRepository(runs)._index.make_again()
        assert len(said) == (index != "up to date")
        assert all("all runs are read for this answer" in line for line in said)
        assert sorted(path.name for path in runs.iterdir()) == before


def test_an_index_in_use_is_not_taken_for_damaged(in_file: Path) -> None:
    ids(in_file)
    file = SqliteDatabase(in_file / "index.sqlite", "the index", "", lock_seconds=0.1)
    repository = RunRepository(in_file)
    repository._index = Index(file)
    db = sqlite3.connect(in_file / "index.sqlite", isolation_level=None)
    db.execute("BEGIN EXCLUSIVE")
    with (
        patience(0.0),
        pytest.raises(HostError, match=r"cannot use the index .*: database is locked"),
    ):
        repository.query()
    db.execute("COMMIT")
    db.close()
    assert len(ids(in_file)) == 2


def test_the_list_knows_what_a_killed_run_finished_since_it_was_listed(runs: Path) -> None:
    def good() -> list[int]:
        return [one.run.trials_ok for one in RunRepository(runs).query()]

    assert good() == [2, 2]
    find_run(runs, SECOND).add(trial(3))
    assert good() == [3, 2]
    lines = runs / SECOND / "records.jsonl"  # the kill came before the line was written
    before = lines.stat()
    text = lines.read_text()
    find_run(runs, SECOND).add(trial(4))
    lines.write_text(text)
    os.utime(lines, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert good() == [4, 2]


def test_a_run_that_was_moved_away_is_no_longer_listed(runs: Path) -> None:
    ids(runs)
    (runs / FIRST).rename(runs / "kept-elsewhere")
    assert ids(runs) == [SECOND]
    (runs / SECOND).rename(runs / "kept-too")
    assert ids(runs) == []


def test_nobody_sees_half_a_list_while_runs_are_read_again(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids(runs)
    for run_id in (FIRST, SECOND):
        find_run(runs, run_id).add(trial(3))
    seen: list[list[int]] = []
    trials = RunDirectory.trials

    def looked_at(directory: RunDirectory) -> object:
        counts = rows(runs, "SELECT count(*) FROM trial GROUP BY run")
        seen.append([count for (count,) in counts])  # type: ignore[misc]
        return trials(directory)

    monkeypatch.setattr(RunDirectory, "trials", looked_at)
    ids(runs)
    assert seen == [[2, 2], [2, 2]]


def test_a_damaged_run_is_listed_as_damaged_and_stops_nothing(runs: Path) -> None:
    path = runs / FIRST / "run.json"
    path.write_text(path.read_text().replace('"schema_version": 1', '"schema_version": 3'))
    third = planned_run(runs, run("20261122T000000Z-q2-fedcba"), plan())
    third.add(trial(1))
    (third.trial_path(1, "q2_k-r1") / "record.json").write_text("{")
    newest, whole, oldest = (one.run for one in RunRepository(runs).query())
    assert [one.state for one in (newest, whole, oldest)] == ["damaged", "interrupted", "damaged"]
    newer = r"run\.json was written by a newer labctl, schema_version 3; this one reads 1"
    assert re.search(newer, oldest.damage or "")
    assert (oldest.recipe, oldest.started[:19]) == ("q2", "2026-11-20T22:30:00")
    assert "record.json is not a record" in (newest.damage or "")
    path.write_text(path.read_text().replace('"schema_version": 3', '"schema_version": 1'))
    assert [one.run.state for one in RunRepository(runs).query()][2] == "interrupted"


@pytest.mark.parametrize("moment", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"])
def test_a_time_that_no_time_zone_has_is_damage(folder: Path, moment: str) -> None:
    path = planned_run(folder, run(FIRST), plan()).path / "run.json"
    path.write_text(path.read_text().replace("2026-11-20T22:30:00Z", moment))
    (damaged,) = (one.run for one in RunRepository(folder).query())
    assert "run.json is not a record" in (damaged.damage or "")


def test_a_number_that_no_database_holds_is_damage(folder: Path) -> None:
    made = planned_run(folder, run(FIRST), plan())
    made.add(trial(1))
    path = made.trial_path(1, "q2_k-r1") / "record.json"
    path.write_text(path.read_text().replace("88000000", "9" * 30))
    planned_run(folder, run(SECOND), plan())
    whole, damaged = (one.run for one in RunRepository(folder).query())
    assert (whole.state, damaged.state) == ("interrupted", "damaged")
    assert "a number of more than 64 bits" in (damaged.damage or "")


def test_probes_are_found_like_runs(folder: Path) -> None:
    def found(board: str | None = None) -> list[tuple[str, str, int | None]]:
        probes = RunRepository(folder).probes(board)
        return [(p.board, p.taken[:10], p.memory_bytes_per_second) for p in probes]

    folder.mkdir(parents=True, exist_ok=True)
    assert found() == []
    first = save_probe(folder.parent, probe())
    save_probe(folder.parent, probe(board="rk2", taken=BEGAN.replace(day=21), memory=()))
    assert found() == [("rk2", "2026-11-21", None), ("rk1", "2026-11-20", 3_000)]
    assert found("rk1") == [("rk1", "2026-11-20", 3_000)]
    assert RunRepository(folder).probes("rk1")[0].slower == "memory read, 4 threads"
    save_probe(folder.parent, probe(taken=BEGAN.replace(day=22))).write_text("{")
    (damaged, *_) = RunRepository(folder).probes("rk1")
    assert damaged.taken.startswith("2026-11-22")
    assert damaged.damage
    first.unlink()
    assert found("rk1") == [("rk1", "2026-11-22", None)]
    (folder / "index.sqlite").unlink(missing_ok=True)
    assert found() == [("rk1", "2026-11-22", None), ("rk2", "2026-11-21", None)]


def test_a_rebuild_keeps_all_that_people_and_other_labs_gave(runs: Path) -> None:
    add_tags(find_run(runs, FIRST), ["release"])
    set_note(find_run(runs, SECOND), "the fan was off")
    removed = planned_run(runs, run("20261122T000000Z-q2-fedcba"), plan())
    removed.add(trial(1))
    move_to_trash(removed)
    origin = Origin(kind="bundle", file="x.zip", sha256="5" * 64, imported=BEGAN)
    theirs = planned_run(runs, run("20261119T000000Z-q2-aaaaaa", board="theirs"), plan())
    theirs.mark_imported(origin)
    theirs.add(trial(1))
    finish(theirs)
    theirs.compress()
    save_probe(runs.parent, probe())
    lab = find_lab(runs.parent, TRANSPORTS)
    kept = lab_state(lab).baselines.set("cold", [FIRST])
    before, probes = RunRepository(runs).query(), RunRepository(runs).probes()
    assert [one.tags for one in before] == [(), ("release",), ()]
    assert [one.run.note for one in before] == ["the fan was off", None, None]
    assert before[2].run.imported_from == "x.zip"
    RunRepository(runs)._index.make_again()
    assert rows(runs, "SELECT id FROM run") == []
    assert RunRepository(runs).query() == before
    assert RunRepository(runs).probes() == probes
    assert lab_state(lab).baselines.list() == [kept]


def _measure(runs: Path, first: int) -> None:
    for number in range(first, first + 5):
        directory = planned_run(runs, run(f"20261123T0000{number:02d}Z-q2-{number:06d}"), plan())
        directory.add(trial(1))
        RunRepository(runs).add(directory)


def test_several_controllers_write_and_a_reader_sees_whole_runs(folder: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    writers = [spawn.Process(target=_measure, args=(folder, 10 * i)) for i in range(2)]
    for writer in writers:
        writer.start()
    assert wait_until(lambda: RunRepository(folder).query() != [], timeout=120, interval=0.2)
    while any(writer.is_alive() for writer in writers):
        assert {one.run.trials_recorded for one in RunRepository(folder).query()} <= {0, 1}
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0] * 2
    assert len(RunRepository(folder).trials()) == 10


WRITES_FOR_EVER = """
import sys
from pathlib import Path
from labctl.runs.record.directory import RunDirectory
from labctl.runs.record.repository import RunRepository
runs = Path(sys.argv[1])
while True:
    for path in sorted(runs.glob("*-q2-*")):
        RunRepository(runs).add(RunDirectory(path))
        print("written", flush=True)
"""


def test_an_index_whose_writer_was_killed_is_whole(runs: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", WRITES_FOR_EVER, str(runs)], stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout
        assert writer.stdout.readline() == "written\n"
        if (runs / "index.sqlite").exists():
            wait_until((runs / "index.sqlite-journal").exists, timeout=30, interval=0)
        else:
            in_transaction = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND granted"
            wait_until(lambda: rows(runs, in_transaction) != [], timeout=30, interval=0)
        writer.send_signal(signal.SIGKILL)
    assert ids(runs) == [SECOND, FIRST]
    assert len(RunRepository(runs).trials()) == 4
    if (runs / "index.sqlite").exists():
        assert rows(runs, "PRAGMA integrity_check") == [("ok",)]
