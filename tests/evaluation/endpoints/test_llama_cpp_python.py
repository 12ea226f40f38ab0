"""The server of llama-cpp-python 0.3.36, by answers that were recorded from it.

What it does that others do not: no `usage` in a stream, even where it is asked for; the offsets of
tokens count from the beginning of the prompt; a refusal of a streamed question is an empty answer
with status 200.
"""

import asyncio
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from labctl.evaluation.endpoints.base import Generation, GenerationRequest, Message, ServerIdentity
from labctl.evaluation.endpoints.errors import TryAgain
from labctl.evaluation.endpoints.opening import Api, open_client

RECORDED = Path(__file__).parents[2] / "fixtures" / "llama_cpp_python"
MODEL = "/models/SmolLM2-135M-Instruct.Q8_0.gguf"


class Replay(BaseHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass

    def _send(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Server", "uvicorn")
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        if self.path == "/v1/models":
            self._send(200, "application/json", (RECORDED / "models.json").read_bytes())
        else:
            self._send(404, "application/json", b'{"detail":"Not Found"}')

    def do_POST(self) -> None:
        asked = self.rfile.read(int(self.headers["Content-Length"]))
        too_long = b"word word" in asked
        if too_long and b'"stream":true' not in asked.replace(b" ", b""):
            self._send(400, "application/json", (RECORDED / "too_long.json").read_bytes())
            return
        name = {"/v1/chat/completions": "chat", "/v1/completions": "completion"}.get(self.path)
        if name is None:
            self._send(404, "application/json", b'{"detail":"Not Found"}')
            return
        body = b"" if too_long else (RECORDED / f"{name}.stream").read_bytes()
        self._send(200, "text/event-stream; charset=utf-8", body)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Replay) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            serving.join()


def ask(address: str, api: Api, text: str = "Say hi") -> tuple[Generation, ServerIdentity]:
    async def asked() -> tuple[Generation, ServerIdentity]:
        client = open_client(api=api, address=address)
        try:
            prompt = (Message("user", text),) if api == "openai-chat" else text
            request = GenerationRequest(prompt, 3, offsets=True)
            return await client.generate(request, timeout=30), await client.identify()
        finally:
            await client.aclose()

    return asyncio.run(asked())


def test_answers_are_read_and_their_tokens_counted_by_the_stream(address: str) -> None:
    for api, text in (("openai-chat", "I'm glad"), ("openai-completions", ", it's")):
        answer, identity = ask(address, api)  # type: ignore[arg-type]
        assert (answer.text, answer.finish) == (text, "length")
        assert (answer.completion_tokens, answer.counted_by) == (3, "stream")
        assert answer.prompt_tokens is None
        assert len(answer.arrivals) == 3
        assert answer.served_name == MODEL
        assert identity.served_names == (MODEL,)
        assert identity.template is None


def test_offsets_that_count_from_the_prompt_are_not_taken_for_the_answers(address: str) -> None:
    answer, _ = ask(address, "openai-completions")
    assert answer.token_ends == (1, 4, 6)


def test_a_question_that_is_too_long_is_no_answer(address: str) -> None:
    with pytest.raises(TryAgain, match="ended before it was complete"):
        ask(address, "openai-chat", "word " * 600)
