import json
import os
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Literal

import pytest
from records_made import BEGAN, plan, planned_run, recorded_run, run, trial

from labctl.errors import ConfigError, HostTimeout
from labctl.records.run import Origin, RunEnd
from labctl.runs.record.directory import RunDirectory, all_directories, run_directories
from labctl.runs.record.disk import directory_bytes
from labctl.runs.record.lookup import find_directory, find_run, find_unfinished
from labctl.runs.record.repository import RunRepository
from labctl.runs.record.trash import move_to_trash, restore

FIRST, SECOND = "20261120T223000Z-q2-abcdef", "20261121T223000Z-q2-123456"


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    for run_id in (FIRST, SECOND):
        directory = planned_run(tmp_path, run(run_id), plan())
        directory.add(trial(1))
        directory.add(trial(2))
    return tmp_path


def test_a_lab_that_records_cannot_name_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    """A folder that came from a system with another encoding, such as GBK or Latin-1."""
    lab = tmp_path / os.fsdecode(b"caf\xe9")
    with pytest.raises(ConfigError, match=r"path is not: .*/caf\\xe9/runs") as caught:
        RunDirectory(lab / "runs" / FIRST).begin()
    assert "rename" in str(caught.value.hint)
    assert not lab.exists()


def test_the_size_of_what_goes_meanwhile_is_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "run" / "trials").mkdir(parents=True)
    (tmp_path / "run" / "here").write_bytes(bytes(5000))
    (tmp_path / "run" / "gone").write_bytes(bytes(5000))
    scandir = os.scandir

    def all_go(folder: Path) -> object:
        with scandir(folder) as entries:
            seen = list(entries)
        if folder == tmp_path / "run":
            (tmp_path / "run" / "gone").unlink()
            (tmp_path / "run" / "trials").rmdir()
        return nullcontext(seen)

    monkeypatch.setattr("os.scandir", all_go)
    assert directory_bytes(tmp_path / "run") == 8192
    assert directory_bytes(tmp_path / "none") == 0


def test_what_was_added_is_read_back_the_same(runs: Path) -> None:
    directory = find_run(runs, FIRST)
    assert directory.run() == run(FIRST)
    assert directory.trials() == [trial(1), trial(2)]
    assert len((directory.path / "records.jsonl").read_text().splitlines()) == 2


@pytest.mark.parametrize("name", [SECOND, "latest", "20261121", "123456"])
def test_a_run_is_found_by_what_people_type(runs: Path, name: str) -> None:
    assert find_run(runs, name).path.name == SECOND


def test_of_runs_of_one_second_the_last_to_begin_is_the_latest(tmp_path: Path) -> None:
    ids = [f"20261121T223000Z-{end}" for end in ("q8-000001", "q2-ffffff", "q2-aaaaaa")]
    for run_id in ids:
        recorded_run(tmp_path, run_id)
    assert find_run(tmp_path, "latest").path.name == ids[-1]


AHEAD, BEHIND = "20461121T223000Z-q2-aaaaaa", "19700101T000009Z-q2-bbbbbb"


def test_the_latest_run_is_the_last_recorded_whatever_the_clock_said(tmp_path: Path) -> None:
    for run_id in (FIRST, AHEAD, SECOND, BEHIND):
        recorded_run(tmp_path, run_id)
        assert find_run(tmp_path, "latest").path.name == run_id
    numbers = {one.path.name: one.run().recorded for one in run_directories(tmp_path)}
    assert numbers == {FIRST: 1, AHEAD: 2, SECOND: 3, BEHIND: 4}
    found = [one.run.id for one in RunRepository(tmp_path).query()]
    assert found == [BEHIND, SECOND, AHEAD, FIRST]
    assert [one.run.id for one in RunRepository(tmp_path).query(limit=2)] == [BEHIND, SECOND]
    being_prepared = RunDirectory(tmp_path / "20260101T000000Z-q2-cccccc")
    being_prepared.begin()
    assert find_directory(tmp_path, "latest").path == being_prepared.path
    assert find_run(tmp_path, "latest").path.name == BEHIND


def test_a_date_beyond_the_clock_is_marked_in_lists(tmp_path: Path) -> None:
    for run_id in (AHEAD, SECOND):
        recorded_run(tmp_path, run_id)
    marked = {one.run.id: one.is_ahead for one in RunRepository(tmp_path).query()}
    assert marked == {AHEAD: True, SECOND: False}


@pytest.mark.parametrize("mark", ["origin.json", "fetched"])
def test_a_run_of_elsewhere_is_not_the_latest_and_counts_for_no_number(
    tmp_path: Path, mark: str
) -> None:
    theirs = RunDirectory(tmp_path / AHEAD)
    theirs.begin(is_own=False)
    (theirs.path / "run.json").write_text(run(AHEAD, recorded=70).model_dump_json(indent=2))
    (theirs.path / "plan.json").write_text(plan().model_dump_json())
    (theirs.path / mark).write_text("x")
    assert find_run(tmp_path, "latest").path.name == AHEAD  # nothing was recorded here
    assert recorded_run(tmp_path, FIRST).run().recorded == 1
    assert find_run(tmp_path, "latest").path.name == FIRST


def test_a_number_is_not_given_again_after_a_run_went_to_the_trash(tmp_path: Path) -> None:
    move_to_trash(recorded_run(tmp_path, FIRST))
    assert recorded_run(tmp_path, SECOND).run().recorded == 2
    restore(tmp_path, FIRST)
    assert find_run(tmp_path, "latest").path.name == SECOND


def test_processes_that_begin_at_once_get_different_numbers(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path;"
        "from labctl.runs.record.directory import RunDirectory;"
        "[RunDirectory(Path(sys.argv[1]) / f'20261121T223000Z-q-{sys.argv[2]}0000{n}').begin()"
        " for n in range(8)]"
    )
    words = [sys.executable, "-c", code, str(tmp_path)]
    started = [subprocess.Popen([*words, str(n)]) for n in range(3)]
    assert [one.wait(60) for one in started] == [0, 0, 0]
    numbers = [int((one.path / "recording").read_text()) for one in all_directories(tmp_path)]
    assert numbers == list(range(1, 25))  # in the order of the directories, each once


def test_a_number_in_a_file_that_another_program_wrote_is_found(tmp_path: Path) -> None:
    path = recorded_run(tmp_path, AHEAD).path / "run.json"
    path.write_text(json.dumps(json.loads(path.read_text()), sort_keys=True))
    assert recorded_run(tmp_path, FIRST).run().recorded == 2
    path.write_text("[torn")
    assert recorded_run(tmp_path, SECOND).run().recorded == 3


@pytest.mark.parametrize("number", ["-5", "1" * 60, str((1 << 53) + 1), "1e3", "true"])
def test_a_number_that_nobody_gave_is_none(tmp_path: Path, number: str) -> None:
    for name in ("run.json", "recording"):
        other = RunDirectory(tmp_path / f"{AHEAD[:-6]}{len(name):06}")
        other.begin()
        (other.path / name).write_text(
            f'{{"schema_version": 1, "recorded": {number}}}' if name == "run.json" else number
        )
    assert recorded_run(tmp_path, FIRST).run().recorded == 1
    assert find_run(tmp_path, "latest").path.name == FIRST


def test_a_run_is_found_by_its_path(runs: Path) -> None:
    assert find_run(runs / "elsewhere", str(runs / FIRST)).path == runs / FIRST


def test_an_ambiguous_or_unknown_name_says_what_there_is(runs: Path) -> None:
    with pytest.raises(ConfigError, match=f"name of 2 runs: {FIRST}, {SECOND}"):
        find_run(runs, "2026112")
    with pytest.raises(ConfigError, match="no run 'nope'") as caught:
        find_run(runs, "nope")
    assert SECOND in str(caught.value.hint)
    with pytest.raises(ConfigError, match="no runs"):
        find_run(runs / "elsewhere", "latest")


def test_a_damaged_record_is_named(runs: Path) -> None:
    path = runs / FIRST / "run.json"
    path.write_text('{"id": 3}')
    with pytest.raises(ConfigError, match=r"run\.json is not a record"):
        find_run(runs, FIRST).run()


def test_a_run_that_goes_on_has_all_its_lines_and_no_end(runs: Path) -> None:
    directory = find_run(runs, FIRST)
    lines = (directory.path / "records.jsonl").read_text()
    (directory.path / "records.jsonl").write_text(lines[: len(lines) // 2 + 10])  # killed
    directory.finish(RunEnd(state="interrupted", finished=BEGAN))
    directory.reopen()
    assert (directory.path / "records.jsonl").read_text() == lines
    assert directory.end() is None


def test_what_a_cut_attempt_left_is_kept_apart(runs: Path) -> None:
    directory = find_run(runs, FIRST)
    folder = directory.trial_path(2, "q2_k-r2")
    (folder / "stdout").write_bytes(b"half a word")
    directory.set_aside(2, "q2_k-r2", 1)
    assert [record.number for record in directory.trials()] == [1]
    assert (folder / "attempt-1" / "stdout").read_bytes() == b"half a word"


def test_a_run_has_one_controller_whatever_board_it_is_on(tmp_path: Path) -> None:
    directory = planned_run(tmp_path, run(), plan())
    with (
        directory.held(),
        pytest.raises(HostTimeout, match="another labctl that makes this run"),
        RunDirectory(directory.path).held(),
    ):
        pass
    with directory.held():
        pass


def ended(runs: Path, run_id: str, state: Literal["finished", "interrupted"]) -> None:
    RunDirectory(runs / run_id).finish(RunEnd(state=state, finished=BEGAN))


def test_without_a_name_the_only_unfinished_run_is_resumed(runs: Path) -> None:
    ended(runs, SECOND, "finished")
    assert find_unfinished(runs).path.name == FIRST


def test_several_unfinished_runs_are_listed_newest_first(runs: Path) -> None:
    ended(runs, FIRST, "interrupted")
    with pytest.raises(ConfigError, match="2 runs are unfinished; name the one") as caught:
        find_unfinished(runs)
    assert (caught.value.details or "").splitlines() == [
        f"{SECOND}  q2 on rk1, 2 of 3 trials, killed",
        f"{FIRST}  q2 on rk1, 2 of 3 trials, interrupted",
    ]
    assert f"labctl resume {SECOND}" in str(caught.value.hint)


def test_what_is_finished_or_in_progress_is_not_resumed(runs: Path) -> None:
    ended(runs, FIRST, "finished")
    with RunDirectory(runs / SECOND).held(), pytest.raises(ConfigError) as caught:
        find_unfinished(runs)
    assert "no unfinished run" in str(caught.value)
    assert f"{SECOND} is in progress" in str(caught.value.hint)
    with pytest.raises(ConfigError) as caught:
        find_unfinished(runs / "none")
    assert caught.value.hint == "`labctl runs` lists all runs"


def test_a_damaged_unfinished_run_is_listed_too(runs: Path) -> None:
    (runs / FIRST / "run.json").write_text("{")
    with pytest.raises(ConfigError) as caught:
        find_unfinished(runs)
    assert f"{FIRST}  " in str(caught.value.details)


def test_who_resumes_a_finished_run_is_told_of_the_unfinished_ones(runs: Path) -> None:
    ended(runs, SECOND, "finished")
    with pytest.raises(ConfigError, match="is finished; nothing to resume") as caught:
        find_run(runs, "latest").refuse_if_finished()
    assert f"unfinished: {FIRST}; finish it: `labctl resume {FIRST}`" in str(caught.value.hint)


def test_an_imported_run_is_listed_and_read_but_never_resumed(runs: Path) -> None:
    directory = find_run(runs, FIRST)
    origin = Origin(kind="bundle", file="x.labctl.zip", sha256="0" * 64, run="r", imported=BEGAN)
    directory.mark_imported(origin)
    assert find_run(runs, FIRST).origin() == origin
    assert find_run(runs, SECOND).origin() is None
    assert find_unfinished(runs).path.name == SECOND
    with pytest.raises(ConfigError, match="was imported; it cannot be resumed here"):
        directory.refuse_if_finished()
