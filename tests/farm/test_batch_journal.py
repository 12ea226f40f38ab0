"""A batch on disk: what goes on after a kill, a power cut, or another labctl."""

from pathlib import Path

import pytest

from labctl.errors import ConfigError
from labctl.farm.batch import Batch
from labctl.farm.batch_plan import PlannedBatch, PlannedJob
from labctl.farm.job import FarmJob, JobResult

BOARDS = ("rk1", "rk2")


def begun(root: Path, *jobs: FarmJob) -> Batch:
    return Batch.begin(root, PlannedBatch("night", tuple(PlannedJob(job, "c") for job in jobs), {}))


def test_the_rest_of_a_group_goes_on_where_its_first_jobs_ran(tmp_path: Path) -> None:
    """What is compared is measured on one board, whatever comes between."""
    jobs = [FarmJob(f"1.{n}", "ab", BOARDS, group="ab") for n in (1, 2, 3)]
    batch = begun(tmp_path, *jobs, FarmJob("2.1", "alone", BOARDS))
    batch.note_run(jobs[0], "rk1", "run-1")
    batch.note_run(jobs[0], "rk2", "run-2")  # rk1 broke
    batch.note_result(jobs[0], "rk2", JobResult(0, "run-2"))
    (again,) = Batch.unfinished(tmp_path, "night")
    assert [(job.id, job.boards) for job in again.remaining] == [
        ("1.2", ("rk2",)),
        ("1.3", ("rk2",)),
        ("2.1", BOARDS),
    ]


def test_jobs_that_another_labctl_ended_before_it_let_go_are_not_run_again(tmp_path: Path) -> None:
    job = FarmJob("1.1", "a", BOARDS)
    first = begun(tmp_path, job)
    second = Batch(first.path)
    with first.held():
        first.note_run(job, "rk1", "run-1")
        first.note_result(job, "rk1", JobResult(0, "run-1"))
    assert second.remaining == [job]
    with second.held():
        assert second.remaining == []
        assert second.run_of(job) == "run-1"


def test_a_line_that_a_power_cut_tore_spoils_none_that_come_after(tmp_path: Path) -> None:
    jobs = [FarmJob(f"1.{n}", "a", BOARDS) for n in (1, 2)]
    batch = begun(tmp_path, *jobs)
    batch.note_run(jobs[0], "rk1", "run-1")
    journal = batch.path / "journal.jsonl"
    journal.write_bytes(journal.read_bytes() + b'{"job": "1.2", "boa')
    again = Batch(batch.path)
    assert again.run_of(jobs[1]) is None
    again.note_result(jobs[0], "rk1", JobResult(0, "run-1"))
    last = Batch(batch.path)
    assert [job.id for job in last.remaining] == ["1.2"]
    journal.write_text("{\n" + journal.read_text())
    with pytest.raises(ConfigError, match=r"journal\.jsonl:1: not a line"):
        Batch(batch.path)


@pytest.mark.parametrize("name", ["batch.json", "journal.jsonl"])
@pytest.mark.parametrize(
    "content", ["", "[1]\n", '{"name": 5}\n', "[" * 100_000 + "\n", "\x1b[2J\n", "\xff\n", "null\n"]
)
def test_a_damaged_batch_hides_no_other_and_is_named(
    tmp_path: Path, name: str, content: str
) -> None:
    job = FarmJob("1.1", "a", BOARDS)
    sound, damaged = begun(tmp_path, job), begun(tmp_path, job)
    (damaged.path / name).write_bytes(content.encode("latin-1"))
    notes: list[str] = []
    found = [one.path for one in Batch.unfinished(tmp_path, "night", notes.append)]
    if content or name == "batch.json":
        assert found == [sound.path]
        assert [damaged.path.name in one for one in notes] == [True]
    else:
        assert len(found) == 2
