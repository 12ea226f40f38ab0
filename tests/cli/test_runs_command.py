"""``labctl runs``: what a person sees of a lab's runs."""

import json
from contextlib import suppress
from pathlib import Path

import pytest
from cli_calls import Labctl
from records_made import BEGAN, model, plan, planned_run, run, trial

from labctl.errors import DeviceLost
from labctl.records.board import BoardFacts, Execution
from labctl.records.run import RunEnd
from labctl.records.trial import TrialState
from labctl.runs.observer import Observer, RunSession
from labctl.runs.record.directory import RunDirectory

FIRST, SECOND = "20261120T223000Z-q2-abcdef", "20261121T223000Z-a-long-name-of-a-recipe-123456"
EMULATED = BoardFacts(execution=Execution.EMULATED, machine="aarch64", kernel="5.10", boot_id="b1")


@pytest.fixture
def lab(empty_lab: Path) -> Path:
    first = planned_run(empty_lab / "runs", run(FIRST), plan())
    first.add(trial(1))
    first.add(trial(2, state=TrialState.FAILED, timing=None))
    first.finish(RunEnd(state="finished", finished=BEGAN))
    record = run(
        SECOND,
        recipe="a-long-name-of-a-recipe",
        board="a-board-with-a-long-name",
        facts=EMULATED,
        models=(model("q8", "Q8_0"),),
        started=BEGAN.replace(day=21),
    )
    second = planned_run(empty_lab / "runs", record, plan())
    for number, variant in enumerate(("a", "b"), 1):
        second.add(trial(number, variant=variant))
    return empty_lab


def test_the_list_fits_in_80_columns_and_names_what_a_command_takes(
    labctl: Labctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    piped = labctl("runs")[0]
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    heading, second, first = labctl("runs")[0].splitlines()
    names = ["run", "date", "recipe", "board", "state", "ok", "time", "per", "token"]
    assert heading.split() == names
    assert first.split() == ["abcdef", "2026-11-20", "q2", "rk1", "failed", "1/3", "110", "ms"]
    assert second.startswith("123456  2026-11-21  a-long-")
    assert "EMULATED" in second
    assert max(map(len, (heading, second, first))) <= 80
    assert "a-board-with-a-long-name" in piped  # a program gets whole values
    assert "…" not in piped
    wide = labctl("runs", "--wide")[0]
    for whole in (SECOND, "a-board-with-a-long-name", "2026-11-21 22:30", "Q8_0"):
        assert whole in wide


def came_to_nothing(lab: Path, name: str) -> Path:
    """A run whose board was lost before its first trial."""
    directory = RunDirectory(lab / "runs" / name)
    directory.begin(is_own=False)  # by its date
    with suppress(DeviceLost), RunSession(Observer()) as session:
        session.begin(directory)
        raise DeviceLost("lost")
    return directory.path


def test_a_run_that_came_to_nothing_is_named_until_another_begins(
    lab: Path, labctl: Labctl
) -> None:
    listed = labctl("runs")
    assert "not listed" not in listed[1]
    first = came_to_nothing(lab, "20261122T010000Z-q2-aaaaaa").name
    out, err = labctl("runs")
    assert out == listed[0]
    assert f"not listed: {first} ended before its first trial; `labctl watch {first}`" in err
    assert "infra" in labctl("watch", first, status=3)[1]
    last = came_to_nothing(lab, "20261122T020000Z-q2-bbbbbb")
    (last / "events.jsonl").unlink()
    assert (
        f"not listed: {last.name} ended before its first trial (as 1 before it); see {last}\n"
        in labctl("runs", "--json")[1]
    )
    assert "not listed" not in labctl("runs", "--recipe", "q2")[1]
    with RunDirectory(last).held():
        assert f"not listed: {first} ended" in labctl("runs")[1]
    planned_run(lab / "runs", run("20261122T030000Z-q2-cccccc"), plan())
    assert "not listed" not in labctl("runs")[1]


def test_filters_join_and_json_has_the_plain_values(labctl: Labctl) -> None:
    words = ("--quantization", "q8_0", "--since", "2026-11-21", "--state", "interrupted")
    (found,) = json.loads(labctl("runs", *words, "--json")[0])
    assert (found["id"], found["token_low_ns"], found["tags"]) == (SECOND, 110_000_000, [])
    assert found["models"][0]["sha256"] == model("q8").sha256
    assert [*list(found)[:2], *list(found)[-2:]] == ["id", "state", "models", "tags"]
    assert labctl("runs", *words, "--recipe", "q2") == ("", labctl("runs", "--tag", "no")[1])
    assert "no such runs" in labctl("runs", "--verdict", "infra")[1]
    assert [one["id"] for one in json.loads(labctl("runs", "-n", "1", "--json")[0])] == [SECOND]


def test_a_name_that_no_run_has_is_told_with_the_nearest(labctl: Labctl) -> None:
    words = ("--param", "token=4", "--board", "rk11", "--recipe", "q2")
    out, err = labctl("runs", *words)
    assert out == ""
    assert "no parameter 'token' in any run (did you mean 'tokens'" in err
    assert "no board 'rk11' in any run (did you mean 'rk1'" in err
    assert "no recipe" not in err
    assert "in any run" not in labctl("runs", "--param", "tokens=5", "--board", "rk1")[1]


def test_runs_are_found_by_a_parameter(labctl: Labctl) -> None:
    words = ("--param", "tokens=4", "--recipe", "q2")
    assert len(labctl("runs", *words)[0].splitlines()) == 2
    assert labctl("runs", "--param", "tokens=5")[0] == ""
    assert len(labctl("export", "--param", "tokens=4")[0].splitlines()) == 5
    for wrong in ("tokens", "=4", " = 4"):
        assert "must be NAME=VALUE" in labctl("runs", "--param", wrong, status=2)[1]


@pytest.mark.parametrize("given", [("--board", "rk1"), ("-n", "3"), ("--wide",), ("--json",)])
def test_options_of_the_list_before_a_command_are_refused(
    lab: Path,
    labctl: Labctl,
    given: tuple[str, ...],
) -> None:
    err = labctl("runs", *given, "tag", "abcdef", "x", status=2)[1]
    assert given[0] in err
    assert "runs tag" in err
    assert not (lab / "runs" / FIRST / "annotations.json").exists()


@pytest.mark.parametrize("when", ["yesterday", "2026-13-01", "3x"])
def test_a_moment_that_is_none_is_wrong_use(labctl: Labctl, when: str) -> None:
    assert "must be a date such as" in labctl("runs", "--since", when, status=2)[1]


def test_an_age_and_an_offset_are_moments(labctl: Labctl) -> None:
    assert len(labctl("runs", "--until", "2026-11-20T23:31+01:00")[0].splitlines()) == 2
    assert labctl("runs", "--until", "2026-11-20T23:29+01:00")[0] == ""
    assert len(labctl("runs", "--until", "1h")[0].splitlines()) == 3
    assert len(labctl("runs", "--since", "36500d")[0].splitlines()) == 3


def test_a_run_with_a_controller_is_running(lab: Path, labctl: Labctl) -> None:
    assert "interrupted" in labctl("runs")[0]
    with RunDirectory(lab / "runs" / SECOND).held():
        assert "running" in labctl("runs")[0]


def test_a_damaged_run_is_named_also_where_no_filter_can_look_into_it(
    lab: Path,
    labctl: Labctl,
) -> None:
    (lab / "runs" / FIRST / "run.json").write_text("\x1b[31m")
    out, err = labctl("runs")
    assert out.splitlines()[2].split() == ["abcdef", "2026-11-20", "q2", "-", "damaged", "0/0"]
    assert f"damaged: {FIRST}: " in err
    err = labctl("runs", "--board", "rk1")[1]
    assert f"not searched, damaged: {FIRST}" in err
    (lab / "runs" / "index.sqlite").unlink()
    assert f"damaged: {FIRST}: " in labctl("runs")[1]


def test_text_of_others_reaches_no_terminal_as_control_sequences(lab: Path, labctl: Labctl) -> None:
    hostile = "20261122T000000Z-x-000001"
    planned_run(lab / "runs", run(hostile, recipe="\x1b[2J\nx"), plan())
    out = labctl("runs")[0]
    assert "\x1b" not in out
    assert len(out.splitlines()) == 4


def test_tags_notes_and_the_trash(lab: Path, labctl: Labctl) -> None:
    assert labctl("runs", "tag", "abcdef", "nightly", "ok")[0] == f"{FIRST}: nightly ok\n"
    assert labctl("runs", "tag", "abcdef", "ok", "--remove")[0] == f"{FIRST}: nightly\n"
    labctl("runs", "note", "abcdef", "the fan was off")
    heading, line = labctl("runs", "--tag", "nightly")[0].splitlines()
    assert heading.split()[-1] == "tags"
    assert line.split()[-1] == "nightly"
    assert labctl("runs", "--wide")[0].splitlines()[2].endswith("nightly  the fan was off")
    assert labctl("runs", "note", "abcdef")[0] == "the fan was off\n"
    assert labctl("runs", "note", "123456")[0] == "no note\n"
    labctl("runs", "note", "abcdef", "x", "--remove", status=2)
    assert "not a tag" in labctl("runs", "tag", "abcdef", "a b", status=2)[1]
    labctl("runs", "remove", "abcdef", status=2)  # nobody to ask
    out = labctl("runs", "remove", "abcdef", "--yes")[0]
    assert out == f"moved to {lab / 'runs' / 'trash' / FIRST}\n"
    assert FIRST[-6:] not in labctl("runs")[0]


def test_facts_of_a_run_and_of_a_trial_are_shown(lab: Path, labctl: Labctl) -> None:
    out = labctl("show", "abcdef")[0]
    assert out.splitlines()[0] == str(lab / "runs" / FIRST)
    assert "\nend.json\n  state: finished\n" in out
    trial_out = labctl("show", "abcdef/1")[0]
    assert "\n  timing.ttft_ns: 2.00 s\n" in trial_out
    folder = RunDirectory(lab / "runs" / FIRST).trial_path(1, "q2_k-r1")
    assert labctl("show", str(folder))[0] == trial_out
    document = json.loads(labctl("show", "abcdef/1", "--json")[0])
    assert list(document) == ["directory", "facts"]
    (ttft,) = [fact for fact in document["facts"] if fact["name"] == "timing.ttft_ns"]
    assert list(ttft) == ["name", "value", "origin"]
    assert ttft["value"] == 2_000_000_000
    assert "no finished trial 7" in labctl("show", "abcdef/7", status=2)[1]
    assert "no run 'nothing'" in labctl("show", "nothing/1", status=2)[1]


def test_trials_are_exported_by_name_and_by_filter(lab: Path, labctl: Labctl) -> None:
    def exported(*words: str) -> list[tuple[str, int]]:
        lines = labctl("export", *words, "--format", "jsonl")[0].splitlines()
        return [(one["run"][-6:], one["number"]) for one in map(json.loads, lines)]

    assert exported() == [("abcdef", 1), ("abcdef", 2), ("123456", 1), ("123456", 2)]
    assert exported("abcdef", "latest", "--recipe", "q2") == exported("abcdef")
    assert exported("--board", "nobody") == []
    file = lab / "trials.csv"
    out, err = labctl("export", "abcdef", "-o", str(file))
    assert (out, err) == ("", f"wrote 2 trials to {file}\n")
    assert len(file.read_text().splitlines()) == 3
    (lab / "runs" / SECOND / "run.json").write_text("{")
    assert f"left out, damaged: {SECOND}" in labctl("export")[1]


def test_parquet_goes_to_a_file_and_to_no_terminal(
    lab: Path,
    labctl: Labctl,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = lab / "trials.parquet"
    err = labctl("export", "abcdef", "-o", str(file))[1]
    assert err == f"wrote 2 trials to {file}\n"
    assert file.read_bytes()[:4] == b"PAR1"
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert "-o rows.parquet" in labctl("export", "--format", "parquet", status=2)[1]


def test_an_export_tells_a_name_that_no_run_has(lab: Path, labctl: Labctl) -> None:
    for words in (("--recipe", "q2x"), ("--board", "rk7"), ("--param", "tokenz=4")):
        assert f"no {words[0][2:]}".replace("param", "parameter") in labctl("export", *words)[1]


def test_an_export_steers_no_terminal(
    lab: Path, labctl: Labctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = model("q8").model_copy(update={"file": "\x1b]0;owned\x07\u202e.gguf"})
    planned = planned_run(lab / "runs", run("20261122T223000Z-q2-00000a", models=(odd,)), plan())
    planned.add(trial(1, model=odd))
    assert "\x1b]0;owned" in labctl("export", "00000a")[0]
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    shown = labctl("export", "00000a")[0]
    assert "\\x1b]0;owned\\x07\\x202e.gguf" in shown
    assert "\\x0d" not in shown
