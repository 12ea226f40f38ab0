"""What a lab knows of a board that is not there."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from records_made import BEGAN, model, planned_run, recorded_run, run, trial

from labctl.board.probe_files import save_probe
from labctl.records.board import BoardFacts, Execution
from labctl.records.probe import BoardProbe
from labctl.records.run import Origin, PlanRecord
from labctl.records.trial import JobStatus, TrialState
from labctl.runs.record.directory import RunDirectory
from labctl.runs.record.history import Wanted, last_measured, last_seen

MODEL = model()
LIKE = Wanted(MODEL.sha256, {"threads": 4, "tokens": 32}, Execution.BOARD)


def facts(boot_id: str) -> BoardFacts:
    return BoardFacts(execution=Execution.BOARD, machine="aarch64", kernel="5.10", boot_id=boot_id)


def probed(lab: Path, day: int) -> None:
    probe = BoardProbe(
        board="rk1",
        taken=datetime(2026, 11, day, 12, tzinfo=UTC),
        agent_version="1",
        labctl_version="1",
        facts=facts(f"probe {day}"),
    )
    save_probe(lab, probe)


def made(lab: Path, day: int, **changes: object) -> RunDirectory:
    """A run of that day on rk1."""
    record = run(
        f"202611{day}T223000Z-q2-abcdef",
        **{"facts": facts(f"run {day}"), "started": datetime(2026, 11, day, 22, 30, tzinfo=UTC)}
        | changes,
    )
    return planned_run(lab / "runs", record, PlanRecord(trials=(), max_seconds=60))


def test_a_board_is_what_was_seen_of_it_last(tmp_path: Path) -> None:
    assert last_seen(tmp_path, "rk1") is None
    probed(tmp_path, 18)
    known = last_seen(tmp_path, "rk1")
    assert known is not None
    assert (known.facts.boot_id, known.source) == ("probe 18", "its probe of 2026-11-18 12:00")
    made(tmp_path, 19)
    made(tmp_path, 21, board="rk2")
    known = last_seen(tmp_path, "rk1")
    assert known is not None
    assert (known.facts.boot_id, known.source) == ("run 19", "run 20261119T223000Z-q2-abcdef")
    probed(tmp_path, 20)
    known = last_seen(tmp_path, "rk1")
    assert known is not None
    assert known.facts.boot_id == "probe 20"


@pytest.mark.parametrize(
    "changes",
    [
        {"state": TrialState.FAILED},
        {"comparability": {"threads": 1, "tokens": 32}},
        {"comparability": {"threads": 4}},
        {"model": model(sha256="f" * 64)},
        {"board": "rk2"},
        {"execution": Execution.EMULATED},
    ],
)
def test_only_a_good_trial_that_was_alike_says_how_long_one_takes(
    tmp_path: Path, changes: dict[str, object]
) -> None:
    alike: dict[str, object] = {
        "comparability": {"threads": 4, "tokens": 32, "cpus": "0-3"},
        "waited_ns": 10_000_000_000,
    }
    made(tmp_path, 18).add(trial(**alike))
    newer = made(tmp_path, 19)
    newer.add(trial(**alike | changes))
    found = last_measured(tmp_path, "rk1", {"q2": LIKE})
    # 30 s, of which it waited 10.
    assert (found["q2"].seconds, found["q2"].run) == (20, "20261118T223000Z-q2-abcdef")
    newer.add(trial(2, **alike))
    assert last_measured(tmp_path, "rk1", {"q2": LIKE})["q2"].run == newer.path.name
    (newer.path / "trials" / "002-q2_k-r2" / "record.json").write_text("{}")  # damaged
    assert last_measured(tmp_path, "rk1", {"q2": LIKE})["q2"].run != newer.path.name


def test_the_last_trial_is_of_the_run_recorded_last_whatever_the_clock_said(tmp_path: Path) -> None:
    alike = {"comparability": {"threads": 4, "tokens": 32, "cpus": "0-3"}}
    ids = ("20461118T223000Z-q2-aaaaaa", "20261119T223000Z-q2-bbbbbb")
    for run_id in ids:
        recorded_run(tmp_path / "runs", run_id).add(trial(**alike))
        assert last_measured(tmp_path, "rk1", {"q2": LIKE})["q2"].run == run_id


def test_what_was_taken_over_took_as_long_as_its_job(tmp_path: Path) -> None:
    job = JobStatus(
        outcome="exited", start_mono_ns=0, end_mono_ns=90 * 10**9, wall_ns=90 * 10**9,
        stdout_bytes=0, stderr_bytes=0, boot_id="b", epoch=1,
    )  # fmt: skip
    taken_over = trial(
        comparability=dict(LIKE.comparability), job=job, started=BEGAN, finished=BEGAN
    )
    made(tmp_path, 18).add(taken_over)
    assert last_measured(tmp_path, "rk1", {"q2": LIKE})["q2"].seconds == 90


def test_another_labs_board_of_the_same_name_is_another_board(tmp_path: Path) -> None:
    imported = made(tmp_path, 19)
    origin = Origin(kind="bundle", file="x", sha256="0" * 64, imported=BEGAN)
    imported.mark_imported(origin)
    imported.add(trial(1, model=MODEL, comparability=LIKE.comparability))
    assert last_seen(tmp_path, "rk1") is None
    assert last_measured(tmp_path, "rk1", {"q2_k": LIKE}) == {}


def test_other_boards_runs_hide_none_of_a_boards_own(tmp_path: Path) -> None:
    made(tmp_path, 10).add(trial(1, comparability=dict(LIKE.comparability)))
    for number in range(60):
        record = run(f"20261118T2230{number % 60:02d}Z-q2-0000{number:02d}", board="rk2")
        planned_run(tmp_path / "runs", record, PlanRecord(trials=(), max_seconds=60))
    found = last_measured(tmp_path, "rk1", {"q2": LIKE})
    assert found["q2"].run == "20261110T223000Z-q2-abcdef"
    known = last_seen(tmp_path, "rk1")
    assert known is not None
    assert known.facts.boot_id == "run 10"


def test_a_compressed_run_tells_as_much(tmp_path: Path) -> None:
    directory = made(tmp_path, 18)
    directory.add(trial(1, comparability=dict(LIKE.comparability), waited_ns=10_000_000_000))
    before = last_measured(tmp_path, "rk1", {"q2": LIKE})
    assert directory.compress() != 0
    assert last_measured(tmp_path, "rk1", {"q2": LIKE}) == before


def test_only_what_is_needed_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for day in range(10, 20):
        made(tmp_path, day).add(trial(1, comparability=dict(LIKE.comparability)))
    last_measured(tmp_path, "rk1", {"q2": LIKE})
    read: list[Path] = []
    content = Path.read_bytes

    def counted(path: Path) -> bytes:
        read.append(path)
        return content(path)

    monkeypatch.setattr(Path, "read_bytes", counted)
    assert last_measured(tmp_path, "rk1", {"q2": LIKE})["q2"].run.startswith("20261119")
    assert [path.name for path in read if path.suffix == ".json"] == ["record.json"]
