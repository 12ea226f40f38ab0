"""Labs with questions of their own, whose servers are scripted."""

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from labctl.config.lab import LabFile, find_lab
from labctl.config.yaml.document import Document
from labctl.evaluation.recipe import EvaluationRecipe, load_evaluation
from labctl.evaluation.run import EvaluationOutcome, EvaluationRequest, run_evaluation
from labctl.records.events import AnyEvent
from labctl.runs.observer import Observer
from labctl.transport.built_in import TRANSPORTS


def sums_lab(root: Path, count: int) -> LabFile:
    """A lab with ``count`` questions: ``What is N plus N?``"""
    root.mkdir(exist_ok=True)
    (root / "devices.yaml").write_text("boards: {}\n")
    lines = [
        json.dumps({"question": f"What is {n} plus {n}?", "answer": str(2 * n)})
        for n in range(1, count + 1)
    ]
    (root / "sums.jsonl").write_text("\n".join(lines) + "\n")
    return find_lab(root, TRANSPORTS)


def number_of(asked: str) -> int:
    """The N of a question."""
    found = re.search(r"What is (\d+) plus", asked)
    assert found is not None
    return int(found[1])


def boxed(value: object, words: int = 0) -> str:
    """An answer of ``words`` words, and then the box."""
    return " ".join(["so"] * words + [f"\\boxed{{{value}}}"])


def recipe_text(
    servers: Mapping[str, Iterable[str]], *, api: str = "llama-server", **more: Any
) -> str:
    """A recipe with the addresses of each model's servers; ``more`` are its other keys."""
    endpoints = {
        f"{model}-{number}": {"url": address, "api": api, "model": model}
        for model, addresses in servers.items()
        for number, address in enumerate(addresses)
    }
    document = {
        "name": "sums",
        "dataset": {"file": "sums.jsonl"},
        "models": {model: {"declared": {"name": model}} for model in servers},
        "endpoints": endpoints,
        "prompts": {"plain": {"layout": "plain"}},
        **more,
    }
    return json.dumps(document)


def recipe_of(text: str) -> EvaluationRecipe:
    """Read a recipe."""
    return load_evaluation(Document.parse(text, "sums.yaml"))


def evaluate(
    lab: LabFile, recipe: EvaluationRecipe, events: list[AnyEvent] | None = None
) -> EvaluationOutcome:
    """Run a recipe that needs no board."""
    observer = Observer() if events is None else Observer(events.append)
    return run_evaluation(EvaluationRequest(recipe, lab, no_board), observer)


def no_board(board: object) -> Any:
    """Fail: nothing here runs on a board."""
    raise AssertionError(board)
