"""llama-server, built by labctl for this host, as a server engine."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import agent_builds
import pytest
from tiny_gguf import write_tiny_gguf
from tiny_lora import write_tiny_lora

from labctl.build.artifact import Artifact
from labctl.build.builder import build
from labctl.build.plan import BuildRequest
from labctl.config.recipe import EngineChoice
from labctl.engines.base import Inputs
from labctl.engines.registry import make_server
from labctl.engines.server import Endpoint, Question, Reply
from labctl.engines.server_lifecycle import Server, serve
from labctl.engines.this_host import ThisHost
from labctl.errors import OutputNotUnderstood, ProgramFailed, ProgramTimeout

#: It takes many minutes to compile.
pytestmark = [pytest.mark.e2e, pytest.mark.soak]


@pytest.fixture(scope="module")
def artifact() -> Artifact:
    """Minutes the first time, then cached."""
    return build(BuildRequest(target=agent_builds.HOST, version="new", tools=("llama-server",)))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "tiny.gguf"
    write_tiny_gguf(path)
    return path


@contextmanager
def served(
    artifact: Artifact,
    model: Path,
    folder: Path,
    *,
    ready_within: float = 60,
    draft: Path | None = None,
    adapters: tuple[tuple[str, float], ...] = (),
    **parameters: Any,
) -> Iterator[Server]:
    engine = make_server(EngineChoice(name="llama_cpp", task="serve"))
    tool = engine.tool(artifact.manifest.tools, offered=artifact.manifest.tools)
    inputs = Inputs(str(artifact.tool(tool.name)), str(model), adapters=adapters)
    inputs = replace(inputs, draft=str(draft) if draft else None)
    asked = engine.parameters({"threads": 1, "context": 256, **parameters})
    asked = engine.for_version(tool, asked)
    with serve(
        engine, tool, asked, inputs, host=ThisHost(folder), ready_within=ready_within
    ) as server:
        yield server


def test_it_answers_the_same_each_time_and_tells_its_times(
    artifact: Artifact, model: Path, tmp_path: Path
) -> None:
    with served(artifact, model, tmp_path) as server:
        answers = [server.ask(Question("once upon", 6), timeout=60) for _ in range(2)]
        longer = server.ask(Question("once upon", 12), timeout=60)
    assert answers[0].text == answers[1].text
    assert longer.text.startswith(answers[0].text.rstrip("\ufffd"))
    assert [answer.prompt_tokens for answer in (*answers, longer)] == [9, 9, 9]
    for answer, most in ((answers[0], 6), (longer, 12)):
        assert 0 < answer.generated_tokens <= most
        assert (answer.stop_reason == "limit") is (answer.generated_tokens == most)
        assert answer.prompt_eval_ns
        assert answer.eval_ns


def test_a_draft_is_counted_and_does_not_change_the_text(
    artifact: Artifact, model: Path, tmp_path: Path
) -> None:
    other = write_tiny_gguf(tmp_path / "other.gguf", seed=2)
    answers = []
    for number, draft in enumerate((None, model, other)):
        (folder := tmp_path / str(number)).mkdir()
        kind = {"speculation": "draft-simple", "draft_max": 4} if draft else {}
        with served(artifact, model, folder, draft=draft, **kind) as server:
            answers.append(server.ask(Question("once upon", 24), timeout=60))
    plain, same, noise = answers
    assert (plain.drafted_tokens, plain.accepted_tokens) == (None, None)
    assert plain.text == same.text == noise.text
    assert same.drafted_tokens
    assert same.drafted_tokens == same.accepted_tokens
    assert noise.drafted_tokens
    assert (noise.accepted_tokens or 0) < noise.drafted_tokens


def test_an_adapter_changes_the_answers(artifact: Artifact, model: Path, tmp_path: Path) -> None:
    adapter = str(write_tiny_lora(tmp_path / "style.gguf"))
    texts = []
    for number, scale in enumerate((0.0, 1.0)):
        (folder := tmp_path / str(number)).mkdir()
        with served(artifact, model, folder, adapters=((adapter, scale),)) as server:
            texts.append(server.ask(Question("once upon", 12), timeout=60).text)
    assert texts[0] != texts[1]


def test_a_question_that_is_too_long_is_refused_and_the_next_is_answered(
    artifact: Artifact, model: Path, tmp_path: Path
) -> None:
    with served(artifact, model, tmp_path) as server:
        with pytest.raises(ProgramFailed, match=r"refused the question: .*exceeds the available"):
            server.ask(Question("a" * 2000, 4), timeout=60)
        assert server.ask(Question("once", 2), timeout=60).generated_tokens == 2


def test_a_model_that_cannot_be_loaded_is_told_as_for_every_program(
    artifact: Artifact, tmp_path: Path
) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"no model at all")
    with (
        pytest.raises(ProgramFailed, match="the model on the board is not a GGUF file"),
        served(artifact, broken, tmp_path),
    ):
        pass


def test_killed_while_it_answers(artifact: Artifact, model: Path, tmp_path: Path) -> None:
    with served(artifact, model, tmp_path, context=8192) as server:
        server.running.program.kill()  # type: ignore[attr-defined]
        with pytest.raises(ProgramFailed, match="SIGKILL"):
            server.ask(Question("once upon", 4), timeout=30)


def test_no_time_to_load(artifact: Artifact, model: Path, tmp_path: Path) -> None:
    with (
        pytest.raises(ProgramTimeout, match=re.escape("llama-server was not ready within 0.001 s")),
        served(artifact, model, tmp_path, ready_within=0.001),
    ):
        pass


def test_what_another_version_would_say_is_not_guessed_at() -> None:
    class Other(Endpoint):
        def get(self, path: str) -> Reply:
            return Reply(200, b'["ok"]')

        def post(self, path: str, document: object) -> Reply:
            return Reply(200, b'{"content": "text"}')

    engine = make_server(EngineChoice(name="llama_cpp", task="serve"))
    server = Other("http://127.0.0.1:1", "labctl-1", 1.0)
    with pytest.raises(OutputNotUnderstood, match="llama-server's answer: "):
        engine.is_ready(server)
    with pytest.raises(OutputNotUnderstood, match=r"llama-server's answer: model: Field required"):
        engine.ask(server, Question("x", 1))
