"""Servers of a recipe: what labctl asks of the one that it starts."""

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from evaluations import boxed, evaluate, number_of, recipe_of, recipe_text, sums_lab
from scripted_answers import Asked
from scripted_endpoint import scripted_endpoint
from tiny_gguf import write_tiny_gguf

from labctl.config.yaml.document import Document
from labctl.errors import BoardError, ConfigError, HostError, ProgramFailed
from labctl.evaluation import contact
from labctl.evaluation.endpoints.base import ServerIdentity
from labctl.evaluation.recipe import load_evaluation
from labctl.evaluation.servers.started import ServerRequest
from labctl.gguf.inspect import identify_file
from labctl.records.evaluation import EndpointRecord
from labctl.records.trial import ModelIdentity
from labctl.runs.board.lab_lease import SERVE
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
max_time: 1h
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
            connect=None,  # type: ignore[arg-type]
            use=SERVE,
            stack=stack,
        )
    assert {one.name: one.parameters for one in asked} == {
        "few": {"parallel": 3},
        "many": {"parallel": 8},
        "own": {"parallel": 2, "context": 512},
    }
    # The time of the asking begins once the last of them is ready, which takes minutes.
    assert min(one.max_seconds for one in asked) >= 3600 + 3 * asked[0].ready_within


def test_a_program_of_another_target_is_not_taken(tmp_path: Path) -> None:
    lab = sums_lab(tmp_path, 3)
    write_tiny_gguf(tmp_path / "m.gguf")
    text = RECIPE.replace("start: host, model: m}", "start: host, model: m, target: rk3568}")
    with pytest.raises(ConfigError, match="endpoint few: programs for target rk3568 do not run on"):
        evaluate(lab, load_evaluation(Document.parse(text, "sums.yaml")))


@dataclass
class Mortal:
    """A started server that dies, and is another one when it is started again."""

    address: str
    others: list[str]
    record: EndpointRecord
    model: ModelIdentity
    served_name: str | None = None
    restarts: int = 0
    notes: tuple[str, ...] = ()

    def check(self) -> None:
        raise ProgramFailed("it is dead")

    def restart(self) -> None:
        self.restarts += 1
        if not self.others:
            raise BoardError("there is no board any more")
        self.address = self.others.pop(0)


@pytest.mark.parametrize(("lives", "right"), [(2, True), (9, False)])
def test_a_server_that_is_lost_is_started_again_a_few_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lives: int, right: bool
) -> None:
    def stays(asked: Asked) -> str:
        return boxed(2 * number_of(asked))

    lab = sums_lab(tmp_path, 6)
    write_tiny_gguf(tmp_path / "m.gguf")
    text = json.loads(recipe_text({"m": ["http://127.0.0.1:1"]}, concurrency=2, attempts=1))
    text["models"] = {"m": {"file": "m.gguf"}}
    text["endpoints"] = {"few": {"start": "host", "model": "m"}}
    with socket.socket() as nobody, scripted_endpoint(stays) as last:
        nobody.bind(("127.0.0.1", 0))  # and does not listen
        dead = f"http://127.0.0.1:{nobody.getsockname()[1]}"
        record = EndpointRecord(name="few", api="llama-server", model="m", sha256_proven=True)
        addresses = [*([dead] * lives), last.address]
        identity = identify_file("m", tmp_path / "m.gguf")
        mortal = Mortal(addresses[0], addresses[1:], record, identity)
        # Its first contact is before its death.
        monkeypatch.setattr(contact, "_identity", known)

        @contextmanager
        def started(*_: Any, **__: Any) -> Iterator[Mortal]:
            yield mortal

        monkeypatch.setattr(contact, "started_endpoint", started)
        if right:
            outcome = evaluate(lab, recipe_of(json.dumps(text)))
            assert outcome.end.accuracies[0].correct == 6
        else:
            with pytest.raises(HostError, match="endpoint few"):
                evaluate(lab, recipe_of(json.dumps(text)))
    assert mortal.restarts == 2


async def known(*_: object) -> tuple[ServerIdentity, None]:
    return ServerIdentity("llama-server b1"), None
