"""What comes with labctl is valid, and means what it is for."""

from pathlib import Path

import pytest

from labctl import package_data
from labctl.config.init_files import devices_yaml, recipe_copy, recipe_yaml
from labctl.config.lab import find_lab
from labctl.config.recipe import Recipe
from labctl.config.recipe_parts import recipe_kind
from labctl.config.target import load_target
from labctl.config.yaml.document import Document, read_text
from labctl.engines.registry import engine_names, engine_tasks
from labctl.engines.server import ServerEngine
from labctl.evaluation.datasets.load import load_dataset
from labctl.evaluation.prompts import PATTERNS
from labctl.evaluation.recipe import load_evaluation
from labctl.evaluation.serving.recipe import LoadTestRecipe
from labctl.runs.inputs.prepare import read_recipe
from labctl.transport.built_in import TRANSPORTS

ROOT = Path(__file__).parents[2]
ALL = sorted(package_data.RECIPES.glob("*.yaml"))
EVALUATIONS = [path for path in ALL if recipe_kind(Document.read(path)) == "evaluation"]
LOAD_TESTS = [path for path in ALL if recipe_kind(Document.read(path)) == "load-test"]
RECIPES = [path for path in ALL if path not in (*EVALUATIONS, *LOAD_TESTS)]


def shipped_recipe(name: str) -> Recipe:
    return read_recipe(package_data.RECIPES / f"{name}.yaml")


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_every_shipped_recipe_is_valid_and_bounded(path: Path) -> None:
    recipe = read_recipe(path)
    assert recipe.name == path.stem.replace("_", "-")
    assert recipe.max_time <= 4 * 3600
    # A completion can be cut to fit; other programs do not generate tokens for their own sake.
    assert recipe.min_tokens is not None or recipe.engine.task != "completion"
    assert load_target(recipe.target).name == recipe.target


def test_every_engine_has_an_example_and_the_reference_names_it() -> None:
    engines = [(recipe.name, recipe.task) for recipe in (read_recipe(p).engine for p in RECIPES)]
    for name in engine_names():
        for task, engine in engine_tasks(name).items():
            if issubclass(engine, ServerEngine):
                continue  # no recipe runs it
            assert (name, task) in engines or (name, None) in engines, f"{name}, {task}"
    text = (ROOT / "docs" / "recipes.md").read_text()
    assert [path.stem for path in ALL if f"`{path.stem}`" not in text] == []


@pytest.mark.parametrize("path", EVALUATIONS, ids=lambda path: path.stem)
def test_every_shipped_evaluation_is_valid(path: Path) -> None:
    assert load_evaluation(path).name == path.stem.replace("_", "-")


@pytest.mark.parametrize("path", LOAD_TESTS, ids=lambda path: path.stem)
def test_every_shipped_load_test_is_valid_and_bounded(path: Path) -> None:
    recipe = LoadTestRecipe.read(path)
    assert recipe.name == path.stem.replace("_", "-")
    assert recipe.max_time is not None


def test_the_experiments_questions_are_put_in_its_four_ways() -> None:
    recipe = load_evaluation(package_data.RECIPES / "gsm8k_budgets.yaml")
    ways = [(one.layout, one.pattern, one.state_budget) for one in recipe.prompts.values()]
    patterns = ("step_by_step", "answer_and_verify")
    assert ways == [("raw-chatml", text, told) for text in patterns for told in (False, True)]
    assert {one.budget_factor for one in recipe.prompts.values()} == {0.5}
    assert set(patterns) <= set(PATTERNS)
    assert recipe.evaluated_models() == ["q2_k", "q8_0"]
    assert (recipe.sampling.temperature, recipe.graders[0]) == (0, "boxed")


def test_the_small_evaluation_needs_no_file_of_the_lab(tmp_path: Path) -> None:
    recipe = load_evaluation(package_data.RECIPES / "arithmetic.yaml")
    dataset = load_dataset(recipe.dataset, tmp_path)
    assert len(dataset.questions) == 20
    assert all(float(one.answer) == int(one.answer) for one in dataset.questions)


def test_the_demo_compares_two_quantizations_of_one_file() -> None:
    recipe = shipped_recipe("q8_q2_latency")
    assert [variant.slug for variant in recipe.variants()] == ["q8_0", "q2_k"]
    assert {recipe.ancestors(model)[-1] for model in recipe.measured_models()} == {"base"}
    assert recipe.parameters["tokens"] == 32


def test_the_latency_recipe_may_shrink_to_few_tokens_within_half_an_hour() -> None:
    recipe = shipped_recipe("q8_latency")
    assert (recipe.min_tokens, recipe.max_time) == (4, 1800)
    assert recipe.measured_models() == ["q8_0"]


def test_the_original_experiment_is_as_it_was() -> None:
    recipe = shipped_recipe("q8_q2_llama31_8b")
    assert recipe.prompt == "I believe the meaning of life is"
    assert (recipe.parameters["tokens"], recipe.parameters["warmup"]) == (128, False)
    # 128 tokens of about 50 s and of about 18 s fit.
    assert recipe.max_time * 0.9 > 128 * (49.73 + 18.18)


def test_the_repositorys_devices_yaml_is_what_init_writes() -> None:
    assert (ROOT / "devices.yaml").read_text() == devices_yaml()
    board = find_lab(ROOT, TRANSPORTS).board()
    assert (board.name, board.workdir.startswith(str(ROOT))) == ("virtual", True)


def test_the_first_recipe_is_the_demos_under_its_own_name() -> None:
    place = Path("recipes/first.yaml")
    demo = read_text(package_data.RECIPES / "q8_q2_latency.yaml")
    own = demo.replace("labctl run recipes/q8_q2_latency.yaml", "labctl run recipes/first.yaml")
    assert recipe_yaml("rk3568", place) == own != demo
    assert "\ntarget: host-x86_64\n" in recipe_yaml("host-x86_64", place)


def test_the_comments_of_a_copy_name_the_copy() -> None:
    recipe = package_data.RECIPES / "q8_latency.yaml"
    text = recipe_copy(recipe, Path("my own.yaml"))
    assert "labctl run 'my own.yaml' --set tokens=64" in text
    assert "recipes/q8_latency" not in text
    assert recipe_copy(recipe, Path("recipes/q8_latency.yaml")) == read_text(recipe)
