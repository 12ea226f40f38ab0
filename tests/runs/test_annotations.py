"""Tags, notes and removal of runs: kept in the run directory, whatever becomes of the index."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from records_made import plan, planned_run, run, trial

from labctl.errors import ConfigError
from labctl.index.filters import Filter
from labctl.runs.record.annotations import add_tags, remove_tags, set_note
from labctl.runs.record.directory import RunDirectory
from labctl.runs.record.lookup import find_run
from labctl.runs.record.repository import RunRepository
from labctl.runs.record.trash import empty_trash, move_to_trash, restore, trashed_runs

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
    for again in (lambda: None, (runs / "index.sqlite").unlink):
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


def test_a_run_that_is_gone_leaves_no_ghost(runs: Path) -> None:
    gone = find_run(runs, FIRST)
    place = move_to_trash(gone)
    for use in (move_to_trash, lambda one: add_tags(one, ["a"]), lambda one: set_note(one, "n")):
        with pytest.raises(ConfigError, match=f"{FIRST} is gone"):
            use(gone)
    assert not gone.path.exists()
    with pytest.raises(ConfigError, match="is in the trash already"):
        move_to_trash(RunDirectory(place))
    assert [one.path for one in trashed_runs(runs)] == [place]


def at_once(runs: Path, code: str) -> None:
    """Run a text of Python in three processes that begin together."""
    head = (
        "import sys; from pathlib import Path\n"
        "from labctl.errors import ConfigError\n"
        "from labctl.runs.record.directory import run_directories\n"
        "from labctl.runs.record.trash import empty_trash, move_to_trash\n"
        "runs = Path(sys.argv[1]); known = run_directories(runs); print(flush=True); input()\n"
    )
    pipe = subprocess.PIPE
    words = [sys.executable, "-c", head + code, str(runs)]
    running = [subprocess.Popen(words, stdin=pipe, stdout=pipe) for _ in range(3)]
    for one in running:
        assert one.stdout is not None
        one.stdout.readline()
    for one in running:
        assert one.stdin is not None
        one.stdin.write(b"\n")
        one.stdin.flush()
    assert [(one.communicate(), one.returncode)[1] for one in running] == [0] * 3


def test_several_removals_at_once_move_each_run_once(runs: Path) -> None:
    made = [f"20261123T0000{n:02d}Z-q2-{n:06d}" for n in range(20)]
    for one in made:
        planned_run(runs, run(one), plan()).add(trial(1))
    at_once(runs, "for one in known:\n    try: move_to_trash(one)\n    except ConfigError: pass\n")
    assert sorted(one.path.name for one in trashed_runs(runs)) == [FIRST, SECOND, *made]
    assert not list(runs.glob("2026*"))
    at_once(runs, "empty_trash(runs)")
    assert list((runs / "trash").iterdir()) == []


def test_a_run_that_comes_back_while_the_trash_is_emptied_stays_whole(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another labctl restores one run before its turn, and tries the other in its midst."""
    for one in (FIRST, SECOND):
        move_to_trash(find_run(runs, one))
    unlink, refused = os.unlink, []

    def restoring(*args: object, **keywords: object) -> None:
        if not refused:
            restore(runs, FIRST)
            with pytest.raises(ConfigError, match=f"no run '{SECOND}'") as caught:
                restore(runs, SECOND)
            refused.append(caught)
        unlink(*args, **keywords)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", restoring)
        assert [one.run for one in empty_trash(runs)] == [SECOND]
    assert find_run(runs, FIRST).trials() == [trial(1)]
    assert [one.name for one in runs.glob("2026*")] == [FIRST]
    assert list((runs / "trash").iterdir()) == []


def test_what_a_killed_removal_left_goes_with_the_next(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    move_to_trash(find_run(runs, FIRST))

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            empty_trash(runs)
    assert trashed_runs(runs) == []
    assert empty_trash(runs) == []
    assert list((runs / "trash").iterdir()) == []


def test_a_run_that_is_removed_before_it_is_restored_is_named(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    move_to_trash(find_run(runs, FIRST))
    known = trashed_runs(runs)
    empty_trash(runs)
    monkeypatch.setattr("labctl.runs.record.trash.trashed_runs", lambda _: known)
    with pytest.raises(ConfigError, match=f"{FIRST} was removed from the trash meanwhile"):
        restore(runs, FIRST)


def test_a_link_to_a_run_is_not_moved(runs: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere" / FIRST
    elsewhere.parent.mkdir()
    (runs / FIRST).rename(elsewhere)
    (runs / FIRST).symlink_to(elsewhere)
    with pytest.raises(ConfigError, match=f"{FIRST} is a link"):
        move_to_trash(find_run(runs, FIRST))
    assert RunDirectory(elsewhere).is_planned


def test_an_empty_name_is_no_run(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    move_to_trash(find_run(runs, FIRST))
    monkeypatch.chdir(runs / SECOND)
    with pytest.raises(ConfigError, match="the name of a run is empty"):
        find_run(runs, "")
    with pytest.raises(ConfigError, match="no run ''"):
        restore(runs, "")


def test_the_exact_name_in_the_trash_wins(runs: Path) -> None:
    move_to_trash(find_run(runs, FIRST))
    planned_run(runs, run(FIRST), plan())
    move_to_trash(find_run(runs, FIRST))
    with pytest.raises(ConfigError, match="is the name of 2 runs"):
        restore(runs, "abcdef")
    assert restore(runs, FIRST).trials() == [trial(1)]
    assert [one.path.name for one in trashed_runs(runs)] == [f"{FIRST}.2"]


def test_damaged_annotations_are_named_and_not_overwritten(runs: Path) -> None:
    file = runs / FIRST / "annotations.json"
    file.write_text("{")
    with pytest.raises(ConfigError, match=r"annotations\.json is not a record"):
        add_tags(find_run(runs, FIRST), ["a"])
    assert file.read_text() == "{"
    damaged = [one.run for one in RunRepository(runs).query() if one.run.damage]
    assert [one.id for one in damaged] == [FIRST]
