"""``labctl runs prune`` and ``runs trash``: nothing goes that anybody needs, and all comes back."""

import json
from pathlib import Path

import pytest
from cli_calls import Labctl
from nightly_runs import Lab
from records_made import BEGAN, plan, planned_run, probe, recorded_run, run, timing, trial

from labctl.board.probe_files import save_probe
from labctl.records.run import Origin, RunEnd
from labctl.records.trial import TrialState
from labctl.runs.record.directory import RunDirectory
from labctl.runs.record.lookup import find_run


def run_id(number: int, recipe: str = "q2") -> str:
    return f"202611{number:02d}T223000Z-{recipe}-0000{number:02d}"


def made(lab: Path, number: int, *, good: bool = True, **changes: object) -> RunDirectory:
    recipe = str(changes.get("recipe", "q2"))
    directory = planned_run(lab / "runs", run(run_id(number, recipe), **changes), plan())
    lost = {} if good else {"state": TrialState.FAILED, "timing": None}
    directory.add(trial(1, **lost))
    directory.finish(RunEnd(state="finished", finished=BEGAN))
    return directory


@pytest.fixture
def lab(empty_lab: Path) -> Path:
    return empty_lab


def pruned(labctl: Labctl, *words: str) -> list[str]:
    found = json.loads(labctl("runs", "prune", "--dry-run", "--json", *words)[0])
    return [one[-2:] for one in found["remove"]]


def test_the_last_good_runs_of_each_recipe_and_board_stay(lab: Path, labctl: Labctl) -> None:
    for number in (1, 2, 3):
        made(lab, number)
    made(lab, 4, recipe="other")
    made(lab, 5, board="rk2")
    for number in (6, 7):
        made(lab, number, good=False)
    assert pruned(labctl, "--keep-last", "2") == ["01"]
    assert pruned(labctl, "--keep-last", "1") == ["02", "01"]
    assert pruned(labctl, "--keep-last", "1", "--until", "2026-11-02T00:00") == []
    assert pruned(labctl, "--keep-last", "1", "--recipe", "other") == []
    assert pruned(labctl) == []
    assert labctl("runs", "--wide")[0].count(" kB\n") == 7
    assert "x>=1" in labctl("runs", "prune", "--keep-last", "0", status=2)[1]
    assert len(list((lab / "runs").glob("2026*"))) == 7


def test_the_last_runs_are_those_recorded_last_whatever_the_clock_said(
    lab: Path, labctl: Labctl
) -> None:
    ahead, *later = ("20461101T000000Z-q2-0000aa", run_id(1), run_id(2), run_id(3))
    for one in (ahead, *later):
        directory = recorded_run(lab / "runs", one)
        directory.add(trial(1))
        directory.finish(RunEnd(state="finished", finished=BEGAN))
    assert pruned(labctl, "--keep-last", "2") == ["01", "aa"]
    listed = labctl("runs")[0].splitlines()
    assert [line[:6] for line in listed[1:]] == ["000003", "000002", "000001", "0000aa"]
    assert "DATE AHEAD OF THE CLOCK" in listed[4]
    assert sum("AHEAD" in line for line in listed) == 1
    assert labctl("report", "latest")[0].startswith(f"run {run_id(3)}")


def test_what_somebody_needs_stays_and_is_counted(lab: Path, labctl: Labctl) -> None:
    for number in range(1, 9):
        made(lab, number)
    labctl("runs", "tag", "000001", "release")
    labctl("runs", "note", "000002", "odd")
    labctl("baseline", "set", "cold", "000003")
    origin = Origin(kind="bundle", file="x.zip", sha256="0" * 64, imported=BEGAN)
    find_run(lab / "runs", "000004").mark_imported(origin)
    (lab / "runs" / run_id(5) / "run.json").write_text("{")
    far = (lab / "runs" / run_id(6)).rename(lab / run_id(6))
    (lab / "runs" / run_id(6)).symlink_to(far)
    out, err = labctl("runs", "prune", "--keep-last", "1", "--dry-run")
    assert [line.split()[0] for line in out.splitlines()] == [run_id(7)]
    assert all(line.split()[2] in ("kB", "B", "MB") for line in out.splitlines())
    for reason in ("1 damaged", "1 imported", "1 recent", "1 tagged", "1 with a note", "1 linked"):
        assert reason in err
    assert "1 that a baseline needs" in err


def test_a_prune_moves_to_the_trash_and_the_trash_gives_back(lab: Path, labctl: Labctl) -> None:
    for number in (1, 2, 3):
        made(lab, number)
    assert "use --yes" in labctl("runs", "prune", "--keep-last", "1", status=2)[1]
    labctl("runs", "prune", "--keep-last", "1", "--yes")
    assert len(json.loads(labctl("runs", "--json")[0])) == 1
    listed = json.loads(labctl("runs", "trash", "--json")[0])
    assert [one["id"] for one in listed] == [run_id(2), run_id(1)]
    assert list(listed[0]) == ["id", "folder", "size_bytes"]
    assert all(one["size_bytes"] > 1000 for one in listed)
    labctl("runs", "trash", "restore", "000002")
    assert [one["id"][-1] for one in json.loads(labctl("runs", "--json")[0])] == ["3", "2"]
    assert "no run '000002'" in labctl("runs", "trash", "restore", "000002", status=2)[1]
    made(lab, 1)
    assert "is there again" in labctl("runs", "trash", "restore", "000001", status=2)[1]
    labctl("runs", "remove", "000001", "--yes")
    assert [line.split()[0] for line in labctl("runs", "trash")[0].splitlines()] == [
        f"{run_id(1)}.2",
        run_id(1),
    ]
    labctl("runs", "trash", "restore", f"{run_id(1)}.2")
    (lab / "runs" / "trash" / "not-a-run").mkdir()
    assert "1 run" in labctl("runs", "trash", "empty", status=2)[1]
    out = labctl("runs", "trash", "empty", "--yes")[0]
    assert out.startswith("1 run removed, ")
    assert [path.name for path in (lab / "runs" / "trash").iterdir()] == ["not-a-run"]


def test_a_prune_tells_machines_what_it_did(lab: Path, labctl: Labctl) -> None:
    """Another labctl has the second one in hand, as it has while it compresses it."""
    for number in (1, 2, 3):
        made(lab, number)
    prune = ("runs", "prune", "--keep-last", "1", "--json")
    planned = json.loads(labctl(*prune, "--dry-run")[0])
    assert (list(planned), planned["dry_run"]) == (["remove", "kept", "dry_run"], True)
    assert len(planned["remove"]) == 2
    with RunDirectory(lab / "runs" / run_id(2)).held():
        out, err = labctl(*prune, "--yes")
    assert list(json.loads(out)["remove"]) == [run_id(1)]
    assert json.loads(out)["kept"] == {"recent": 1}
    compress = ("runs", "prune", "--compress", "--keep-last", "1", "--dry-run", "--json")
    assert json.loads(labctl(*compress)[0]) == {"compress": {run_id(2): None}, "dry_run": True}
    assert f"not moved: run {run_id(2)} is in progress" in err


def test_the_nights_that_show_a_regression_stay(lab: Path, labctl: Labctl) -> None:
    nights = Lab(lab / "runs")
    nights.nights(range(1, 9), 100)
    nights.nights(range(9, 17), 120)
    left = json.loads(labctl("runs", "prune", "--keep-last", "1", "--dry-run", "--json")[0])
    assert left["kept"] == {"recent": 1, "that show a regression": 2}
    assert not {"000008", "000009"} & {one[-6:] for one in left["remove"]}
    assert len(left["remove"]) == 13


def test_compressed_records_are_read_as_before(lab: Path, labctl: Labctl) -> None:
    for number in (1, 2):
        directory = made(lab, number)
        directory.add(trial(2, timing=timing([100.5 + n for n in range(500)])))
    old = find_run(lab / "runs", "000001")
    before = old.trials()
    size = json.loads(labctl("runs", "--json")[0])[1]["size_bytes"]
    report, shown = labctl("report", "000001", "--json")[0], labctl("show", "000001/2")[0]
    words = ("runs", "prune", "--keep-last", "1", "--compress")
    assert labctl(*words, "--dry-run")[0] == f"{run_id(1)}\n"
    assert old.is_compressible
    with old.held():
        assert "not compressed: another labctl that makes this run (process" in labctl(*words)[1]
    assert " freed" in labctl(*words)[1]
    assert labctl(*words)[0] == ""
    assert sorted(path.name for path in old.path.rglob("record*")) == [
        "record.json.gz",
        "record.json.gz",
        "records.jsonl.gz",
    ]
    assert old.trials() == before
    assert labctl("report", "000001", "--json")[0] == report
    assert labctl("show", "000001/2")[0] == shown
    rows = json.loads(labctl("runs", "--json")[0])
    assert (rows[1]["trials_ok"], rows[1]["verdict"]) == (2, "passed")
    assert rows[1]["size_bytes"] < size
    (lab / "runs" / "index.sqlite").unlink()
    assert json.loads(labctl("runs", "--json")[0]) == rows
    record = next(old.path.rglob("record.json.gz"))
    record.write_bytes(record.read_bytes()[:-20])
    (lab / "runs" / "index.sqlite").unlink()
    assert json.loads(labctl("runs", "--json")[0])[1]["state"] == "damaged"


def test_probes_are_listed_without_a_board(lab: Path, labctl: Labctl) -> None:
    assert "no probes" in labctl("boards", "probes")[1]
    save_probe(lab, probe())
    save_probe(lab, probe(taken=BEGAN.replace(day=21))).write_text("{")
    damaged, good = labctl("boards", "probes", "rk1")[0].splitlines()
    assert damaged.startswith("2026-11-21 22:30  rk1  damaged: ")
    assert good == "2026-11-20 22:30  rk1  memory 3.00 kB/s  SLOWER: memory read, 4 threads"
    found = json.loads(labctl("boards", "probes", "--json")[0])
    assert [one["memory_bytes_per_second"] for one in found] == [None, 3000]
    assert (next(iter(found[0])), list(found[0])[-2:]) == ("file", ["slower", "damage"])
    assert labctl("boards", "probes", "rk2")[0] == ""


def test_a_kill_in_a_compression_loses_nothing(lab: Path) -> None:
    directory = made(lab, 1)
    plain = next(directory.path.rglob("record.json"))
    plain.with_name("record.json.gz").write_bytes(b"half")
    assert len(directory.trials()) == 1
    directory.compress()
    assert len(directory.trials()) == 1
    assert not plain.exists()
