"""The CPUs of a recipe against those of a board."""

from pathlib import Path

import pytest

from labctl.config.recipe import Recipe, load_recipe
from labctl.errors import ConfigError
from labctl.records.board import BoardFacts, CpuFacts, Execution
from labctl.runs.planning.forecast import as_scheduled

RECIPE = """\
name: few
target: rk3568
engine: {name: llama_cpp}
models: {tiny: {file: tiny.gguf}}
prompt: x
parameters: {tokens: 8}
max_time: 10m
scheduling:
  cpus: 2,4-5
"""


def board(allowed: str | None) -> BoardFacts:
    return BoardFacts(
        execution=Execution.BOARD,
        machine="aarch64",
        kernel="5",
        boot_id="b",
        cpus=(CpuFacts(count=8),),
        cpus_allowed=allowed,
    )


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    (tmp_path / "few.yaml").write_text(RECIPE)
    return load_recipe(tmp_path / "few.yaml")


def test_cpus_that_a_board_does_not_give_are_told_with_their_line(recipe: Recipe) -> None:
    with pytest.raises(
        ConfigError,
        match=r"few\.yaml:9:9: scheduling\.cpus: the board has no CPU 4-5 .* it has 0-3",
    ):
        as_scheduled(recipe, board("0-3"))


def test_without_its_file_the_key_alone_is_told(recipe: Recipe) -> None:
    again = Recipe.model_validate(recipe.resolved())
    assert again == recipe
    with pytest.raises(ConfigError, match=r"^scheduling\.cpus: the board has no CPU 4-5"):
        as_scheduled(again, board("0-3"))


@pytest.mark.parametrize("allowed", ["0-7", None])
def test_threads_are_counted_by_the_cpus_of_the_recipe(recipe: Recipe, allowed: str | None) -> None:
    assert board(allowed).cores == 8
    assert as_scheduled(recipe, board(allowed)).cores == 3


def test_a_cpuset_of_fewer_than_all_counts(recipe: Recipe) -> None:
    free = recipe.model_copy(update={"scheduling": type(recipe.scheduling)()})
    assert as_scheduled(free, board("0-1")).cores == 2


def test_clusters_are_resolved_by_the_highest_frequency(recipe: Recipe) -> None:
    speeds = {str(cpu): 1_800_000 if cpu < 4 else 2_800_000 for cpu in range(8)}
    phone = board("0-7").model_copy(update={"highest_khz": speeds})

    def cpus(name: str, facts: BoardFacts) -> str | None:
        chosen = type(recipe.scheduling).model_validate({"cpus": name})
        return as_scheduled(recipe.model_copy(update={"scheduling": chosen}), facts).cpus_allowed

    assert (cpus("big", phone), cpus("little", phone)) == ("4-7", "0-3")
    alike = board("0-3").model_copy(update={"highest_khz": speeds})
    assert cpus("big", alike) == "0-3"
    for name, facts in (("little", alike), ("big", board("0-7"))):
        with pytest.raises(ConfigError, match=f"scheduling.cpus: {name}: the board has no slower"):
            cpus(name, facts)
