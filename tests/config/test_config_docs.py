"""The references of recipes and devices.yaml say what the models say."""

import re
import runpy
from pathlib import Path

import pytest

from labctl.config.lab import Lab, lab_model
from labctl.config.models import Catalogue
from labctl.config.recipe import Recipe
from labctl.config.schema import Kind
from labctl.config.yaml.document import parse
from labctl.engines.registry import make_engine
from labctl.evaluation.recipe import EvaluationRecipe
from labctl.transport.built_in import TRANSPORTS

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
FILES: dict[Kind, Path] = {
    "recipe": DOCS / "recipes.md",
    "devices": DOCS / "devices.md",
    "models": DOCS / "models.md",
}

SCRIPT = ROOT / "scripts" / "reference"


def test_the_tables_of_the_pages_are_those_of_the_schemas(tmp_path: Path) -> None:
    assert runpy.run_path(str(SCRIPT))["main"](tmp_path) == 0
    for page in sorted(DOCS.glob("*.md")):
        assert page.read_text() == (tmp_path / page.name).read_text(), "run scripts/reference"


def test_a_part_that_no_page_has_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    script = runpy.run_path(str(SCRIPT))
    known = {**dict(script["models"]()), "new": {"properties": {"key": {"description": "New."}}}}
    known.pop("Gate")
    monkeypatch.setitem(script["main"].__globals__, "models", known.items)
    assert script["main"](tmp_path) == 1
    assert capsys.readouterr().err.splitlines() == [
        "new: no page has its keys",
        "Gate: there is no such part",
    ]


@pytest.mark.parametrize(
    ("path", "model"),
    [
        (FILES["recipe"], Recipe),
        (DOCS / "accuracy.md", EvaluationRecipe),
        (DOCS / "first-recipe.md", Recipe),
        (FILES["devices"], lab_model(TRANSPORTS)),
        (FILES["models"], Catalogue),
    ],
)
def test_the_examples_of_the_pages_are_valid(
    path: Path, model: type[Recipe | EvaluationRecipe | Lab | Catalogue]
) -> None:
    examples = re.findall(r"```yaml\n(.*?)```", path.read_text(), re.DOTALL)
    assert examples
    for example in examples:
        document = parse(example, model, path.name)
        if isinstance(document, Recipe):
            make_engine(document.engine)
