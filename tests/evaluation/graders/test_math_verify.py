r"""The grader ``math-verify``: the library reads the last box alone."""

import importlib.metadata
import sys
from pathlib import Path

import pytest
from evaluations import boxed, evaluate, number_of, recipe_of, recipe_text, sums_lab
from scripted_endpoint import scripted_endpoint

from labctl.errors import ConfigError
from labctl.evaluation.graders import Grade, grader_class, make_grader


def judged(text: str, answer: str = "18") -> Grade:
    return make_grader("math-verify").grade(text, answer, complete=True)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"\boxed{18}", "18"),
        (r"\boxed{7} and then \boxed{18}", "18"),  # to the library alone it is the set of both
        (r"\boxed{\frac{36}{2}}", "18"),
        (r"\boxed{x+x}", "2x"),
        (r"\boxed{\{2,1\}}", r"\{1,2\}"),
        (r"\boxed{1,234}", "1234"),
        ("The answer is 18.", "18"),
    ],
)
def test_it_knows_equal_mathematics(text: str, answer: str) -> None:
    assert judged(text, answer).correct


@pytest.mark.parametrize("text", ["", r"\boxed{18} and then \boxed{7}", r"\boxed{18 eggs}"])
def test_the_rest_is_wrong(text: str) -> None:
    assert not judged(text).correct


def test_its_version_names_the_library() -> None:
    assert importlib.metadata.version("math-verify") in grader_class("math-verify").version


def test_without_the_library_nothing_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    lab = sums_lab(tmp_path / "lab", 2)
    module = "labctl.evaluation.graders.math_verify"
    with scripted_endpoint(lambda asked: boxed(number_of(asked))) as server:
        recipe = recipe_of(recipe_text({"m": [server.address]}, graders=["boxed", "math-verify"]))
        monkeypatch.delitem(sys.modules, module, raising=False)
        with monkeypatch.context() as without:
            without.setattr(importlib.metadata, "version", missing)
            with pytest.raises(ConfigError, match="needs a library that is not installed") as told:
                evaluate(lab, recipe)

    assert told.value.hint == "pip install 'labctl-boards[accuracy]'"
    assert server.answered == []
    assert not list((lab.root / "runs").glob("*"))
