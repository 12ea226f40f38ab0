"""CPUs by number, as kernels write them."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labctl.config.recipe import load_recipe
from labctl.config.recipe_parts import cpu_numbers
from labctl.errors import ConfigError
from labctl.units import ranges

RECIPE = """\
name: few
target: rk3568
engine: {name: llama_cpp}
models: {tiny: {file: tiny.gguf}}
prompt: x
parameters: {tokens: 8}
max_time: 10m
scheduling:
  %s
"""


@given(st.sets(st.integers(min_value=0, max_value=1023), min_size=1))
def test_lists_are_read_as_they_are_written(numbers: set[int]) -> None:
    assert cpu_numbers(ranges(numbers)) == numbers


@pytest.mark.parametrize(
    ("text", "kept"),
    [("0", "0"), ("4-7", "4-7"), ("3,2,1", "1-3"), ("0-3,2-5,7", "0-5,7"), ("1-1", "1")],
)
def test_one_form_is_kept(text: str, kept: str, tmp_path: Path) -> None:
    path = tmp_path / "few.yaml"
    path.write_text(RECIPE % f"cpus: {text}")
    assert load_recipe(path).scheduling.cpus == kept


@pytest.mark.parametrize(
    "text", ['""', "3-1", "0,", '",1"', "0--1", "-1", "all", "1024", "0-99999", "0 1", "²", "true"]
)
def test_anything_else_is_refused_with_its_line(text: str, tmp_path: Path) -> None:
    path = tmp_path / "few.yaml"
    path.write_text(RECIPE % f"cpus: {text}")
    with pytest.raises(ConfigError, match=r"few\.yaml:9:\d+: scheduling\.cpus: "):
        load_recipe(path)


@pytest.mark.parametrize(("nice", "good"), [(-20, True), (19, True), (20, False), (-21, False)])
def test_priorities_have_their_bounds(nice: int, good: bool, tmp_path: Path) -> None:
    path = tmp_path / "few.yaml"
    path.write_text(RECIPE % f"nice: {nice}")
    if good:
        assert load_recipe(path).scheduling.nice == nice
        return
    with pytest.raises(ConfigError, match=r"few\.yaml:9:\d+: scheduling\.nice: "):
        load_recipe(path)
