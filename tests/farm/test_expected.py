"""Expected times of runs, by what the same work took before."""

from datetime import timedelta
from pathlib import Path

from records_made import BEGAN, plan, planned_run, run, trial
from tiny_gguf import write_tiny_gguf

from labctl.config.lab import Board, Lab, LabFile
from labctl.config.recipe import Recipe
from labctl.farm.expected import expected_seconds, recorded_seconds
from labctl.records.run import RunEnd
from labctl.runs.inputs.prepare import read_recipe
from labctl.transport.local import LocalConfig

RECIPE = """\
name: q2
target: rk3568
engine:
  name: command
  program: {file: tool}
  arguments: ["{tokens}"]
  tokens: {stream: stdout, each: line, count: tokens}
models: {none: {file: any.bin}}
parameters: {tokens: 1}
max_time: 5m
"""


def made(root: Path, tokens: int) -> Recipe:
    path = root / "recipe.yaml"
    path.write_text(RECIPE)
    return read_recipe(path, (f"tokens={tokens}",), lab_root=root)


def ran(root: Path, number: int, tokens: int, seconds: int) -> None:
    """One run; the greater its number, the later it was."""
    resolved = made(root, tokens).resolved()
    began = BEGAN + timedelta(hours=number)
    record = run(
        f"202611{number:02}T000000Z-q2-{number:06x}", recipe_resolved=resolved, started=began
    )
    directory = planned_run(root / "runs", record, plan())
    directory.add(trial(1, parameters={"tokens": tokens}))
    directory.finish(RunEnd(state="finished", finished=began + timedelta(seconds=seconds)))


def test_many_runs_with_other_parameters_hide_none_of_the_same_work(tmp_path: Path) -> None:
    board = Board(target="rk3568", transport=LocalConfig(), workdir="/tmp/w")
    lab = LabFile(tmp_path, Lab(boards={"rk1": board}))
    ran(tmp_path, 1, tokens=7, seconds=20)
    ran(tmp_path, 2, tokens=7, seconds=40)
    for number in range(3, 15):
        ran(tmp_path, number, tokens=100 + number, seconds=1)
    assert recorded_seconds(lab, made(tmp_path, 114), ("rk1",)) == 1
    assert recorded_seconds(lab, made(tmp_path, 7), ("rk1",)) == 30
    assert recorded_seconds(lab, made(tmp_path, 99), ("rk1",)) is None


def test_a_run_with_other_settings_takes_the_time_of_as_many_trials(tmp_path: Path) -> None:
    lab = LabFile(
        tmp_path,
        Lab(boards={"rk1": Board(target="rk3568", transport=LocalConfig(), workdir="/tmp/w")}),
    )
    (tmp_path / "tool").touch()
    write_tiny_gguf(tmp_path / "any.bin")
    assert expected_seconds(lab, made(tmp_path, 7), ("rk1",)) == 300
    for number, seconds in enumerate((20, 40), 1):
        ran(tmp_path, number, tokens=7, seconds=seconds)
    changed = made(tmp_path, 9).model_copy(update={"repeats": 3})
    assert expected_seconds(lab, changed, ("rk1",)) == 90
    many = changed.model_copy(update={"repeats": 30})
    assert expected_seconds(lab, many, ("rk1",)) == 300


def test_a_run_in_which_the_clock_was_set_back_tells_no_time(tmp_path: Path) -> None:
    lab = LabFile(
        tmp_path,
        Lab(boards={"rk1": Board(target="rk3568", transport=LocalConfig(), workdir="/tmp/w")}),
    )
    ran(tmp_path, 1, tokens=7, seconds=-3600)
    assert recorded_seconds(lab, made(tmp_path, 7), ("rk1",)) is None
    ran(tmp_path, 2, tokens=7, seconds=40)
    assert recorded_seconds(lab, made(tmp_path, 7), ("rk1",)) == 40
