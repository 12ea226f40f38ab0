"""The plan of a night: what it refuses, and what it promises before anything is measured."""

import dataclasses
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import agent_builds
import pytest
from labs import write_devices
from night_lab import PLAN, give_ticker

from labctl.config.lab import Board, LabFile, find_lab
from labctl.errors import ConfigError, LabctlError
from labctl.evaluation.serving.recipe import LoadTestRecipe
from labctl.farm.nightly.budget import plan_pairs, smallest_slowdown
from labctl.farm.nightly.executor import Built
from labctl.farm.nightly.nights import begin_night, read_result
from labctl.farm.nightly.plan_file import read_plan
from labctl.farm.nightly.planning import make_plan, recipe_with, waited_nights
from labctl.farm.nightly.results import plan_lines
from labctl.farm.nightly.run import NightRequest, _planned
from labctl.farm.nightly.sources import sources_of
from labctl.records.night import NightRecord, NightVerdict
from labctl.transport.base import Transport
from labctl.transport.built_in import TRANSPORTS


@pytest.fixture
def lab(tmp_path: Path) -> LabFile:
    give_ticker(tmp_path)
    write_devices(tmp_path, "127.0.0.1:1", "/w", target=agent_builds.HOST)
    return find_lab(tmp_path, TRANSPORTS)


def planned(lab: LabFile) -> NightRecord:
    return make_plan(lab, *read_plan(lab.root / "plan.yaml")).record


@pytest.mark.parametrize(
    ("change", "because"),
    [
        (("boards: [vb]", "boards: [vc]"), "plan.yaml:9:14: rows[0].boards[0]: no board 'vc'"),
        (("ticking.yaml", "tickin.yaml"), "plan.yaml:8:15: rows[0].recipes[0]: "),
        (("head: {folder: source/head}", "head: {}"), "a source is exactly one of version"),
        (("{folder: source/head}", "{git: x}"), "git and ref are given together"),
        (("time: 1h", "time: 10"), "plan.yaml:10:7: time:"),
        (("time: 1h", "tim: 1h"), "plan.yaml:10:1: tim: unknown key (did you mean 'time'?)"),
        (("boards: [vb]", "boards: [vb, vb]"), "ticker/ticking@vb is in the plan twice"),
        (("boards: [vb]", "boards: [vb]\n    build: tickr"), "no build 'tickr'"),
        (("boards: [vb]", "boards: tag=fast"), "plan.yaml:9:13: rows[0].boards: no board fits"),
    ],
)
def test_a_wrong_plan_is_refused_with_its_line(
    lab: LabFile, change: tuple[str, str], because: str
) -> None:
    (lab.root / "plan.yaml").write_text(PLAN.replace(*change))
    with pytest.raises(ConfigError) as refused:
        planned(lab)
    assert because in refused.value.message


def test_a_wrong_row_is_the_only_problem_told(lab: LabFile) -> None:
    (lab.root / "plan.yaml").write_text(PLAN.replace("boards: [vb]", "boards: []"))
    with pytest.raises(ConfigError) as refused:
        planned(lab)
    assert len(refused.value.message.splitlines()) == 1
    assert "rows[0].boards" in refused.value.message


def test_boards_are_selected_by_what_they_are(lab: LabFile) -> None:
    plan = PLAN.replace("boards: [vb]", f"boards: target={agent_builds.HOST}")
    (lab.root / "plan.yaml").write_text(plan)
    assert [row.board for row in planned(lab).rows] == ["vb"]


def test_a_row_without_history_says_so(lab: LabFile) -> None:
    (line,) = plan_lines(planned(lab))
    assert "MDE unknown" in line
    assert "time unknown" in line


LOAD = """\
name: load
models: {m: {file: m.gguf}}
endpoint: {model: m, start: board}
concurrency: [1]
gates: [{metric: ttft_p50_ms, max: 500}]
"""


def test_a_load_test_is_a_row_of_which_only_the_gates_are_judged(lab: LabFile) -> None:
    (lab.root / "recipes" / "load.yaml").write_text(LOAD)
    (lab.root / "plan.yaml").write_text(PLAN.replace("ticking.yaml]", "load.yaml]"))
    made = make_plan(lab, *read_plan(lab.root / "plan.yaml"))
    (row,) = made.record.rows
    assert (row.name, row.gated, row.variants) == ("ticker/load@vb", True, ("gates",))
    assert list(plan_lines(made.record)) == [
        "ticker/load@vb: only its gates are judged; time unknown"
    ]
    built = Built("k" * 64, "new-0123456789ab", "source", "program")
    with_build = recipe_with(lab, made.record.recipes, row, built)
    assert isinstance(with_build, LoadTestRecipe)
    assert with_build.endpoint.version == "new-0123456789ab"


def test_a_row_without_times_needs_a_gate(lab: LabFile) -> None:
    (lab.root / "recipes" / "load.yaml").write_text(LOAD.rpartition("gates:")[0])
    (lab.root / "plan.yaml").write_text(PLAN.replace("ticking.yaml]", "load.yaml]"))
    with pytest.raises(ConfigError, match="recipe load has no gates") as refused:
        planned(lab)
    assert "rows[0].recipes[0]" in refused.value.message


def test_a_server_that_needs_no_board_is_no_row_of_a_night(lab: LabFile) -> None:
    text = LOAD.replace("start: board", "url: 'http://h:1', api: openai-chat")
    (lab.root / "recipes" / "load.yaml").write_text(text)
    (lab.root / "plan.yaml").write_text(PLAN.replace("ticking.yaml]", "load.yaml]"))
    with pytest.raises(ConfigError, match="it starts 0 servers on boards"):
        planned(lab)


def test_a_row_that_cannot_find_it_is_not_monitored_by_the_plan() -> None:
    assert plan_pairs(0.02, 0.05, 0.02) is not None
    assert plan_pairs(0.2, 0.05, 0.02) is None


@pytest.mark.parametrize("noise", [0.01, 0.02, 0.03])
def test_the_pairs_of_a_row_find_what_it_is_to_find(noise: float) -> None:
    pairs = plan_pairs(noise, 0.05, 0.02)
    assert pairs is not None
    assert smallest_slowdown(noise, 2 * pairs.look, 0.02) <= 0.05


def test_more_noise_takes_more_pairs() -> None:
    found = [plan_pairs(noise, 0.05, 0.02) for noise in (0.01, 0.02, 0.03)]
    counts = [one.screen + 3 * one.look for one in found if one]
    assert counts == sorted(counts)
    assert len(counts) == 3


def test_rows_without_time_are_not_monitored_the_least_valuable_first(lab: LabFile) -> None:
    from labctl.farm.nightly.planning import _in_time

    (row,) = planned(lab).rows
    rows = [
        row.model_copy(update={"name": f"r{n}", "seconds": 10.0, "value": float(n)})
        for n in range(4)
    ]
    one = 20.0 * row.screen
    found = {r.name: r.unmonitored for r in _in_time(rows, 2 * one + 20.0 * 3 * row.look)}
    assert [name for name, why in found.items() if why is None] == ["r2", "r3"]
    assert "no time" in (found["r0"] or "")


def test_a_row_without_time_says_how_much_would_do(lab: LabFile) -> None:
    from labctl.farm.nightly.planning import _in_time

    (row,) = planned(lab).rows
    rows = [
        row.model_copy(update={"name": f"r{n}", "seconds": 10.0, "screen": 4, "look": 6})
        for n in range(2)
    ]
    alone, other = (one.unmonitored or "" for one in _in_time(rows, 20.0))
    assert alone == other
    # 4 pairs of 20 s to screen it, and 18 to confirm it: 440 s
    assert "`time: 8m` would do for it alone, `time: 9m` for all rows of board vb, and" in alone
    assert [one.unmonitored for one in _in_time(rows[:1], 8 * 60.0)] == [None]
    assert [one.unmonitored for one in _in_time(rows, 9 * 60.0)] == [None, None]
    (only,) = _in_time(rows[:1], 20.0)
    assert (only.unmonitored or "").endswith("`time: 8m` would do, and the time of the builds")


def test_a_night_can_be_read_again(lab: LabFile) -> None:
    from labctl.farm.nightly.nights import nights_of, read_night, unfinished_night

    record = planned(lab)
    folder = begin_night(lab.root, record)
    assert nights_of(lab.root, "ticks") == [folder]
    assert read_night(folder) == record
    assert unfinished_night(lab.root, "ticks") == (folder, record)
    (folder / "result.json").write_text("{}")
    assert unfinished_night(lab.root, "ticks") is None


def request(lab: LabFile, said: list[str]) -> NightRequest:
    plan, document = read_plan(lab.root / "plan.yaml")

    def connect(_: Board) -> Transport:
        raise AssertionError("nothing is measured")

    return NightRequest(lab, plan, document, connect, said.append)


def test_a_night_that_goes_on_has_the_rows_and_recipes_that_it_began_with(lab: LabFile) -> None:
    record = planned(lab)
    folder = begin_night(lab.root, record)
    recipe = lab.root / "recipes" / "ticking.yaml"
    recipe.write_text(recipe.read_text().replace("tokens: 9", "tokens: 900"))
    without = dataclasses.replace(lab, lab=lab.lab.model_copy(update={"boards": {}}))
    known, place = _planned(request(without, []))
    assert (known.record, place) == (record, folder)
    assert known.recipes[record.rows[0].name].parameters == {"tokens": 9}


def test_a_night_that_was_cut_off_and_has_no_time_left_gets_its_result(lab: LabFile) -> None:
    record = planned(lab)
    cut_off = begin_night(lab.root, record.model_copy(update={"deadline": 1.0}))
    said: list[str] = []
    _, folder = _planned(request(lab, said))
    assert folder != cut_off
    (found,) = read_result(cut_off).findings
    assert found.verdict == "not monitored"
    assert f"night {cut_off.name} was interrupted" in said[0]
    assert (cut_off / "report.html").exists()


def test_a_night_that_a_wrong_clock_began_gets_its_result_and_another_begins(lab: LabFile) -> None:
    """Its deadline is years ahead: it would never end."""
    record, ahead = planned(lab), datetime(2099, 1, 1, tzinfo=UTC)
    dates = {"started": ahead, "deadline": ahead.timestamp() + 3600}
    name = {"id": "20990101T000000Z-ticks-abcdef"}
    wrong = begin_night(lab.root, record.model_copy(update={**dates, **name}))
    said: list[str] = []
    _, folder = _planned(request(lab, said))
    assert folder != wrong
    assert said[0] == f"night {wrong.name} was begun with a wrong clock: it does not continue"
    assert read_result(wrong).findings
    _, again = _planned(request(lab, said))
    assert again == folder


def test_a_damaged_night_keeps_no_new_one_from_its_begin(lab: LabFile) -> None:
    damaged = begin_night(lab.root, planned(lab))
    for name in ("night.json", "night.jsonl"):
        (damaged / name).write_text("")
    said: list[str] = []
    with pytest.raises(ConfigError, match="is not a file of a night") as refused:
        _planned(request(lab, said))
    assert "--new" in (refused.value.hint or "")
    _, folder = _planned(dataclasses.replace(request(lab, said), new=True))
    assert folder != damaged
    assert "the last night gets no result" in said[0]
    (folder / "result.json").write_text("cut o")
    assert planned(lab).rows


def test_a_board_of_another_host_is_refused_with_what_to_do(lab: LabFile) -> None:
    lab = dataclasses.replace(
        lab,
        lab=lab.lab.model_copy(
            update={"boards": {"vb": lab.board("vb").model_copy(update={"host": "lab2"})}}
        ),
    )
    with pytest.raises(ConfigError) as refused:
        planned(lab)
    assert "board vb is attached to host lab2" in refused.value.message
    assert "labctl nightly --host lab2" in (refused.value.hint or "")
    there = make_plan(lab, *read_plan(lab.root / "plan.yaml"), host="lab2")
    assert [row.board for row in there.record.rows] == ["vb"]


def looked_at(lab: LabFile, plan: str = PLAN) -> dict[str, str | LabctlError]:
    (lab.root / "plan.yaml").write_text(plan)
    asked, document = read_plan(lab.root / "plan.yaml")
    sources = sources_of(lab, asked, make_plan(lab, asked, document))
    return {side: what for _, side, what in sources.look()}


def test_a_dry_run_says_what_it_would_build_from(lab: LabFile) -> None:
    (lab.root / "source" / "head" / "new.h").write_text(f"/* {uuid4()} */")
    found = looked_at(lab)
    assert "version v1, " in str(found["good"])
    assert str(lab.root / "source" / "head") in str(found["head"])
    assert str(found["head"]).endswith(", not built yet")


@pytest.mark.parametrize(
    ("head", "because"),
    [
        ("{folder: source/hed}", "source/hed"),
        ("{version: v9}", "no version 'v9'"),
        ("{baseline: nightly-gone}", "no baseline 'nightly-gone'"),
        ("{git: REPOSITORY, ref: nothing}", "no tag or branch 'nothing'"),
        (f"{{git: REPOSITORY, ref: {'a' * 40}}}", f"has no commit {'a' * 40}"),
        ("{git: REPOSITORY/not, ref: main}", "cannot fetch 'main'"),
    ],
)
def test_a_dry_run_finds_a_source_that_is_not_there(lab: LabFile, head: str, because: str) -> None:
    repository = lab.root / "upstream"
    subprocess.run(["git", "init", "--quiet", str(repository)], check=True)
    plan = PLAN.replace("{folder: source/head}", head.replace("REPOSITORY", str(repository)))
    found = looked_at(lab, plan)
    assert isinstance(found["head"], ConfigError)
    assert because in found["head"].message
    assert isinstance(found["good"], str)


def test_a_shallow_clone_is_named_and_how_to_get_the_rest(lab: LabFile) -> None:
    def git(*words: str) -> str:
        identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
        done = subprocess.run(["git", *identity, *words], check=True, capture_output=True)
        return done.stdout.decode().strip()

    upstream, clone = lab.root / "upstream", lab.root / "clone"
    git("init", "--quiet", "--initial-branch", "main", str(upstream))
    for number in range(4):
        git("-C", str(upstream), "commit", "--quiet", "--allow-empty", "-m", f"{number}")
    commits = git("-C", str(upstream), "rev-list", "--reverse", "main").split()
    git("clone", "--quiet", "--depth", "2", f"file://{upstream}", str(clone))
    plan = PLAN.replace("{folder: source/head}", f"{{git: {clone}, ref: {commits[0]}}}")
    found = looked_at(lab, plan)["head"]
    assert isinstance(found, ConfigError)
    assert "is shallow" in found.message
    assert f"git -C {clone} fetch --unshallow" in (found.hint or "")

    asked, document = read_plan(lab.root / "plan.yaml")
    sources = sources_of(lab, asked, make_plan(lab, asked, document))
    (name,) = sources.recipes
    for good, expected in ((commits[0], None), (commits[2], [])):
        sides = {"good": Built("g", "g", good), "head": Built("h", "h", commits[3])}
        if expected is not None:
            assert sources.commits(name, sides) == expected
            continue
        with pytest.raises(ConfigError, match="is shallow") as refused:
            sources.commits(name, sides)
        assert "fetch --unshallow" in (refused.value.hint or "")


def test_a_dry_run_finds_a_folder_of_the_history_that_is_not_there(lab: LabFile) -> None:
    plan = PLAN.replace("product: ticker", "product: ticker\n    history: [source/good, source/c1]")
    assert "source/c1: no folder" in str(looked_at(lab, plan)["head"])


def test_a_row_waits_as_long_as_one_of_its_variants_has_no_verdict() -> None:
    good, open_one = NightVerdict.GOOD, NightVerdict.NOT_MEASURED
    assert waited_nights([[good, good]]) == 0
    assert waited_nights([[open_one, good], [], [good, open_one], [good, good]]) == 3
    assert waited_nights([[open_one]] * 20) == 7
