"""OpenVINO GenAI behind OpenAI's two APIs; a program of its own, for its own environment.

Arguments: MODEL.gguf PORT. One answer at a time. ``/metrics`` has GenAI's own figures, summed over
all answers, in the names of vLLM.
"""

import json
import queue
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import openvino_genai

MODEL = "smollm2"


class Engine:
    """The pipeline, its turn and its sums."""

    def __init__(self, path: str):
        self.pipeline = openvino_genai.LLMPipeline(path, "CPU")
        self.turn = threading.Lock()
        self.counted = threading.Lock()
        self.sums = dict.fromkeys(("requests", "ttft_s", "latency_s", "generated", "prompt"), 0.0)

    def answer(self, asked: dict[str, Any], prompt: Any, chat: bool, came: float) -> Any:
        """Yield pieces of text, then the result."""
        config = openvino_genai.GenerationConfig()
        config.max_new_tokens = asked.get("max_tokens") or 256
        config.ignore_eos = bool(asked.get("ignore_eos"))
        config.apply_chat_template = chat
        if temperature := asked.get("temperature"):
            config.do_sample, config.temperature = True, temperature
        stop = asked.get("stop") or ()
        config.stop_strings = {stop} if isinstance(stop, str) else set(stop)
        pieces: queue.Queue[str | None] = queue.Queue()
        ended: list[Any] = []

        def take(piece: str) -> Any:
            pieces.put(piece)
            return openvino_genai.StreamingStatus.RUNNING

        def work() -> None:
            try:
                with self.turn:
                    waited = time.monotonic() - came
                    ended.append(self.pipeline.generate(prompt, config, take))
                self.count(ended[0], waited, time.monotonic() - came)
            finally:
                pieces.put(None)

        threading.Thread(target=work).start()
        while (piece := pieces.get()) is not None:
            yield piece
        yield ended[0]

    def count(self, result: Any, waited: float, latency: float) -> None:
        own = result.perf_metrics
        with self.counted:
            self.sums["requests"] += 1
            self.sums["ttft_s"] += waited + own.get_ttft().mean / 1000
            self.sums["latency_s"] += latency
            self.sums["generated"] += own.get_num_generated_tokens()
            self.sums["prompt"] += own.get_num_input_tokens()

    def metrics(self) -> str:
        with self.counted:
            told = dict(self.sums)
        lines = [
            "# TYPE vllm:time_to_first_token_seconds histogram",
            f'vllm:time_to_first_token_seconds_bucket{{le="+Inf"}} {told["requests"]}',
            f"vllm:time_to_first_token_seconds_sum {told['ttft_s']}",
            f"vllm:time_to_first_token_seconds_count {told['requests']}",
            "# TYPE vllm:e2e_request_latency_seconds histogram",
            f'vllm:e2e_request_latency_seconds_bucket{{le="+Inf"}} {told["requests"]}',
            f"vllm:e2e_request_latency_seconds_sum {told['latency_s']}",
            f"vllm:e2e_request_latency_seconds_count {told['requests']}",
            "# TYPE vllm:generation_tokens_total counter",
            f"vllm:generation_tokens_total {told['generated']}",
            "# TYPE vllm:prompt_tokens_total counter",
            f"vllm:prompt_tokens_total {told['prompt']}",
        ]
        return "\n".join(lines) + "\n"


class Handler(BaseHTTPRequestHandler):
    """OpenAI's APIs, as far as the tests ask."""

    engine: Engine

    def log_message(self, *_: object) -> None:
        pass

    def reply(self, status: int, kind: str, text: str) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        if self.path == "/v1/models":
            models = [{"id": MODEL, "object": "model", "owned_by": "openvino"}]
            self.reply(200, "application/json", json.dumps({"data": models}))
        elif self.path == "/metrics":
            self.reply(200, "text/plain; version=0.0.4", self.engine.metrics())
        else:
            self.reply(200 if self.path == "/health" else 404, "application/json", "{}")

    def do_POST(self) -> None:
        came = time.monotonic()
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        chat = self.path == "/v1/chat/completions"
        if not chat and self.path != "/v1/completions":
            self.reply(404, "application/json", '{"error": {"message": "no such path"}}')
            return
        refused = [key for key in ("logprobs", "n") if asked.get(key) not in (None, False, 1)]
        if refused:
            told = {"error": {"message": f"not supported: {', '.join(refused)}"}}
            self.reply(400, "application/json", json.dumps(told))
            return
        prompt: Any = [] if chat else [asked["prompt"]]  # a list gives the figures too
        if chat:
            prompt = openvino_genai.ChatHistory()
            for message in asked["messages"]:
                prompt.append(message)
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        for piece in self.engine.answer(asked, prompt, chat, came):
            if isinstance(piece, str):
                part = {"delta": {"content": piece}} if chat else {"text": piece}
                self.event({"choices": [{"index": 0, "finish_reason": None, **part}]})
                continue
            own = piece.perf_metrics
            reason = str(piece.finish_reasons[0]).rpartition(".")[2].lower()
            part = {"delta": {}} if chat else {"text": ""}
            usage = {
                "prompt_tokens": own.get_num_input_tokens(),
                "completion_tokens": own.get_num_generated_tokens(),
            }
            self.event({"choices": [{"index": 0, "finish_reason": reason, **part}]})
            self.event({"choices": [], "usage": usage})
        self.wfile.write(b"data: [DONE]\n\n")

    def event(self, document: Any) -> None:
        self.wfile.write(b"data: " + json.dumps({"model": MODEL, **document}).encode() + b"\n\n")
        self.wfile.flush()


if __name__ == "__main__":
    Handler.engine = Engine(sys.argv[1])
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[2])), Handler).serve_forever()
