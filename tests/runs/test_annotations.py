"""Tags, notes and removal of runs: kept in the run directory, whatever becomes of the index."""

import subprocess
import sys
from pathlib import Path

import pytest
from records_made import plan, planned_run, run, trial

from labctl.errors import ConfigError
from labctl.index import Filter
from labctl.runs.record.annotations import add_tags, remove_tags, set_note
from labctl.runs.record.directory import RunDirectory, find_run
from labctl.runs.record.repository import RunRepository
from labctl.runs.record.trash import move_to_trash

FIRST, SECOND = "20261120T223000Z-q2-abcdef", "20261121T223000Z-q2-123456"


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    for run_id in (FIRST, SECOND):
        planned_run(tmp_path, run(run_id), plan()).add(trial(1))
    return tmp_path


def test_what_people_wrote_survives_the_loss_of_the_index(runs: Path) -> None:
    repository = RunRepository(runs)
    repository.query()
    add_tags(find_run(runs, FIRST), ["b", "a"])
    add_tags(find_run(runs, FIRST), ["a", "größe=3"])
    remove_tags(find_run(runs, FIRST), ["b"])
    set_note(find_run(runs, FIRST), "the fan was off\nsecond line")
    move_to_trash(find_run(runs, SECOND))
    for again in (lambda: None, repository.rebuild, (runs / "index.sqlite").unlink):
        again()
        (only,) = repository.query()
        assert (only.run.id, only.tags) == (FIRST, ("a", "größe=3"))
        assert only.run.note == "the fan was off\nsecond line"
        assert repository.tags() == ["a", "größe=3"]
        assert repository.query(Filter(tags=("größe=3",)))
    set_note(find_run(runs, FIRST), None)
    assert repository.query()[0].run.note is None


@pytest.mark.parametrize("tag", ["", "-x", "a b", "a,b", "\x1b", "x" * 65, "=cmd", "_x"])
def test_a_tag_that_no_list_shows_well_is_refused(runs: Path, tag: str) -> None:
    with pytest.raises(ConfigError, match="not a tag"):
        add_tags(find_run(runs, FIRST), ["good", tag])
    assert find_run(runs, FIRST).annotations().tags == ()


def test_a_tag_that_a_run_does_not_have_cannot_be_removed(runs: Path) -> None:
    add_tags(find_run(runs, FIRST), ["a"])
    with pytest.raises(ConfigError, match="has no tag 'b'") as caught:
        remove_tags(find_run(runs, FIRST), ["a", "b"])
    assert caught.value.hint == "it has: a"
    assert find_run(runs, FIRST).annotations().tags == ("a",)


def test_tags_of_several_people_at_once_are_all_kept(runs: Path) -> None:
    code = (
        "import sys; from pathlib import Path\n"
        "from labctl.runs.record.annotations import add_tags\n"
        "from labctl.runs.record.directory import RunDirectory\n"
        "for n in range(10): add_tags(RunDirectory(Path(sys.argv[1])), [f'{sys.argv[2]}{n}'])"
    )
    running = [
        subprocess.Popen([sys.executable, "-c", code, str(runs / FIRST), name]) for name in "abc"
    ]
    assert [one.wait() for one in running] == [0] * 3
    assert len(find_run(runs, FIRST).annotations().tags) == 30


def test_a_run_in_progress_is_not_moved(runs: Path) -> None:
    with (
        RunDirectory(runs / FIRST).held(),
        pytest.raises(ConfigError, match=f"run {FIRST} is in progress"),
    ):
        move_to_trash(find_run(runs, FIRST))
    assert find_run(runs, FIRST).trials() == [trial(1)]


def test_the_trash_keeps_runs_whole_and_each_apart(runs: Path) -> None:
    place = move_to_trash(find_run(runs, FIRST))
    assert RunDirectory(place).trials() == [trial(1)]
    assert place == runs / "trash" / FIRST
    planned_run(runs, run(FIRST), plan())
    again = move_to_trash(find_run(runs, FIRST))
    assert RunDirectory(again).trials() == []
    assert RunDirectory(place).trials() == [trial(1)]
    place.rename(runs / FIRST)
    assert [one.run.id for one in RunRepository(runs).query()] == [SECOND, FIRST]


def test_damaged_annotations_are_named_and_not_overwritten(runs: Path) -> None:
    file = runs / FIRST / "annotations.json"
    file.write_text("{")
    with pytest.raises(ConfigError, match=r"annotations\.json is not a record"):
        add_tags(find_run(runs, FIRST), ["a"])
    assert file.read_text() == "{"
    damaged = [one.run for one in RunRepository(runs).query() if one.run.damage]
    assert [one.id for one in damaged] == [FIRST]
