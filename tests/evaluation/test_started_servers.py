"""Servers of a recipe: what labctl asks of the one that it starts."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from evaluations import sums_lab

from labctl.config.yaml.document import Document
from labctl.evaluation import contact
from labctl.evaluation.recipe import load_evaluation
from labctl.evaluation.servers import ServerRequest
from labctl.runs.observer import Observer

RECIPE = """\
name: sums
dataset: {file: sums.jsonl}
models: {m: {file: m.gguf}}
endpoints:
  few: {start: host, model: m}
  many: {start: host, model: m, concurrency: 8}
  own: {start: host, model: m, parameters: {parallel: 2, context: 512}}
prompts: {plain: {layout: plain}}
concurrency: 3
"""


def test_a_server_has_a_slot_for_each_question_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[ServerRequest] = []

    @contextmanager
    def started(request: ServerRequest, *_: Any, **__: Any) -> Iterator[None]:
        asked.append(request)
        yield

    monkeypatch.setattr(contact, "started_endpoint", started)
    lab = sums_lab(tmp_path, 3)
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    recipe = load_evaluation(Document.read(tmp_path / "recipe.yaml"))
    with ExitStack() as stack:
        contact.start_servers(
            recipe,
            lab,
            tmp_path / "logs",
            observer=Observer(),
            connect=None,
            stack=stack,  # type: ignore[arg-type]
        )
    assert {one.name: one.parameters for one in asked} == {
        "few": {"parallel": 3},
        "many": {"parallel": 8},
        "own": {"parallel": 2, "context": 512},
    }
