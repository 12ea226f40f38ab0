"""The JSON of each API, as its real servers write it."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from scripted_answers import EOS, Answer, Step, token_id, tokenize

MODEL = "scripted"


@dataclass(frozen=True)
class Done:
    """All of an answer, for its last event and for an answer in one piece."""

    steps: Sequence[Step]
    answer: Answer
    prompt_tokens: int
    first_s: float
    seconds: float

    @property
    def text(self) -> str:
        return "".join(step.text or "" for step in self.steps)

    @property
    def finish(self) -> str:
        return self.answer.finish or self.steps[-1].finish or "stop"

    @property
    def count(self) -> int:
        return len(self.steps) if self.answer.usage is None else self.answer.usage


class Shape:
    """One API: what is asked, the events of a stream, and the answer in one piece."""

    def __init__(self, body: dict[str, Any]):
        self.body = body

    @property
    def stream(self) -> bool:
        return bool(self.body.get("stream"))

    @property
    def prompt(self) -> str:
        return str(self.body["prompt"])

    @property
    def limit(self) -> int | None:
        return self.body.get("max_tokens")

    @property
    def stops(self) -> list[str]:
        stop = self.body.get("stop") or []
        return [stop] if isinstance(stop, str) else stop

    def event(self, step: Step, answer: Answer, count: int, offset: int) -> dict[str, Any] | None:
        """What is sent for one token; None: nothing."""
        raise NotImplementedError

    def last(self, done: Done) -> list[dict[str, Any]]:
        """The events after the last token."""
        raise NotImplementedError

    def whole(self, done: Done) -> Any:
        raise NotImplementedError

    def error(self, status: int, message: str) -> Any:
        return {"error": {"code": status, "message": message, "type": "scripted_error"}}

    @property
    def answers(self) -> int:
        """The number of answers to the request."""
        return 1

    def copies(self, event: dict[str, Any]) -> list[dict[str, Any]]:
        """The event of each answer to the request; all answers are alike."""
        return [event]

    ends_with_done = True


def _usage(done: Done, answers: int = 1) -> dict[str, int]:
    count = done.count * answers
    return {
        "prompt_tokens": done.prompt_tokens,
        "completion_tokens": count,
        "total_tokens": done.prompt_tokens + count,
    }


class Completions(Shape):
    """/v1/completions, as of vLLM: ``logprobs`` with tokens and offsets."""

    kind = "text_completion"

    def choice(self, text: str, finish: str | None) -> dict[str, Any]:
        return {"index": 0, "text": text, "finish_reason": finish}

    def logprobs(self, steps: Sequence[Step], offset: int) -> dict[str, Any]:
        tokens = [step.content.decode(errors="replace") for step in steps]
        return {
            "tokens": tokens,
            "text_offset": [offset + sum(map(len, tokens[:n])) for n in range(len(tokens))],
            "token_logprobs": [-0.5] * len(tokens),
            "top_logprobs": [
                dict(step.likeliest(self.body["logprobs"])) or {token: -0.5}
                for step, token in zip(steps, tokens, strict=True)
            ],
        }

    def chunk(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": "cmpl-1",
            "object": self.kind,
            "created": 1700000000,
            "model": self.body.get("model") or MODEL,
            "choices": choices,
        }

    def wants_logprobs(self) -> bool:
        return self.body.get("logprobs") is not None

    def told(self, choice: dict[str, Any], steps: Sequence[Step], offset: int) -> dict[str, Any]:
        if self.wants_logprobs():
            choice["logprobs"] = self.logprobs(steps, offset)
        if self.body.get("return_token_ids"):
            choice["token_ids"] = [step.id for step in steps]
        return choice

    def event(self, step: Step, answer: Answer, count: int, offset: int) -> dict[str, Any] | None:
        choice = self.choice(step.text or "", None)
        event = self.chunk([choice if answer.no_tokens else self.told(choice, [step], offset)])
        options = self.body.get("stream_options") or {}
        is_told = not answer.no_usage and answer.usage is None  # it would contradict a lie
        if options.get("continuous_usage_stats") and is_told:
            event["usage"] = {"prompt_tokens": 5, "completion_tokens": count}
        return event

    @property
    def answers(self) -> int:
        """The number of answers that a request asks for with ``n``."""
        return int(self.body.get("n") or 1)

    def copies(self, event: dict[str, Any]) -> list[dict[str, Any]]:
        """As vLLM sends them: a chunk of each choice, whose usage so far is that choice's own."""
        return [
            {**event, "choices": [{**choice, "index": index} for choice in event["choices"]]}
            for index in range(self.answers)
        ]

    def last(self, done: Done) -> list[dict[str, Any]]:
        events = self.copies(self.chunk([self.choice("", done.finish)]))
        wanted = (self.body.get("stream_options") or {}).get("include_usage")
        if wanted and not done.answer.no_usage:
            events.append(self.chunk([]) | {"usage": _usage(done, self.answers)})
        return events

    def whole(self, done: Done) -> Any:
        choice = self.choice(done.text, done.finish)
        if not done.answer.no_tokens:
            choice = self.told(choice, done.steps, 0)
        usage = {} if done.answer.no_usage else {"usage": _usage(done, self.answers)}
        choices = [one["choices"][0] for one in self.copies(self.chunk([choice]))]
        return self.chunk(choices) | usage


class Chat(Completions):
    """/v1/chat/completions."""

    kind = "chat.completion.chunk"

    @property
    def prompt(self) -> str:
        return str(self.body["messages"][-1]["content"])

    @property
    def limit(self) -> int | None:
        return self.body.get("max_completion_tokens", self.body.get("max_tokens"))

    def choice(self, text: str, finish: str | None) -> dict[str, Any]:
        part = {"role": "assistant", "content": text}
        return {"index": 0, "delta" if self.stream else "message": part, "finish_reason": finish}

    def wants_logprobs(self) -> bool:
        return bool(self.body.get("logprobs"))

    def logprobs(self, steps: Sequence[Step], offset: int) -> dict[str, Any]:
        return {
            "content": [
                {
                    "token": step.content.decode(errors="replace"),
                    "bytes": list(step.content),
                    "logprob": -0.5,
                    "top_logprobs": [
                        {"token": token, "bytes": list(token.encode()), "logprob": logprob}
                        for token, logprob in step.likeliest(self.body.get("top_logprobs", 0))
                    ],
                }
                for step in steps
            ]
        }


class LlamaCompletion(Shape):
    """/completion of llama-server: no event for a token that ends inside a code point."""

    ends_with_done = False

    @property
    def limit(self) -> int | None:
        most = self.body.get("n_predict", -1)
        return None if most < 0 else most

    def event(self, step: Step, answer: Answer, count: int, offset: int) -> dict[str, Any] | None:
        if step.text is None:
            return None
        return {
            "index": 0,
            "content": step.text,
            "tokens": [] if answer.no_tokens else [step.id],
            "stop": False,
            "id_slot": 0,
            "tokens_predicted": count,
            "tokens_evaluated": len(tokenize(self.prompt)),
            **({} if answer.no_tokens else self.probabilities([step])),
        }

    def probabilities(self, made: Sequence[Step]) -> dict[str, Any]:
        most = self.body.get("n_probs", 0)
        probabilities = [
            {
                "id": step.id,
                "token": step.content.decode(errors="replace"),
                "bytes": list(step.content),
                "logprob": -0.5,
                "top_logprobs": [
                    {
                        "id": token_id(token),
                        "token": token,
                        "bytes": list(token.encode()),
                        "logprob": logprob,
                    }
                    for token, logprob in step.likeliest(most)
                ],
            }
            for step in made
        ]
        return {"completion_probabilities": probabilities} if most else {}

    def last(self, done: Done) -> list[dict[str, Any]]:
        return [self.whole(done) | {"content": "", "tokens": []}]

    def whole(self, done: Done) -> Any:
        stopped = done.steps[-1].id != EOS
        stop_type = {"length": "limit", "stop": "word" if stopped else "eos"}
        tokens = [step.id for step in done.steps] if self.body.get("return_tokens") else []
        told = {} if done.answer.no_tokens or self.stream else self.probabilities(done.steps)
        return {
            **told,
            "index": 0,
            "content": done.text,
            "tokens": tokens,
            "id_slot": 0,
            "stop": True,
            "model": MODEL,
            "tokens_predicted": done.count,
            "tokens_evaluated": done.prompt_tokens,
            "truncated": False,
            "stop_type": stop_type.get(done.finish, done.finish),
            "stopping_word": "",
            "timings": {
                "prompt_n": done.prompt_tokens,
                "prompt_ms": done.first_s * 1e3,
                "predicted_n": done.count,
                "predicted_ms": (done.seconds - done.first_s) * 1e3,
            },
        }


def shape(path: str, body: dict[str, Any]) -> Shape | None:
    """The API behind a path."""
    if path == "/v1/completions":
        return Completions(body)
    if path == "/v1/chat/completions":
        return Chat(body)
    if path in ("/completion", "/completions"):
        return LlamaCompletion(body)
    return None


def facts(
    path: str, body: dict[str, Any], template: str, context: int, models: Sequence[str]
) -> Any:
    """What is asked beside answers; None: no such path."""
    if path == "/tokenize":
        text = body.get("content", body.get("prompt", ""))
        ids = [token_id(token) for token in tokenize(text)]
        return {"tokens": ids, "count": len(ids), "max_model_len": context}
    if path == "/apply-template":
        turns = (f"<|{turn['role']}|>{turn['content']}" for turn in body["messages"])
        return {"prompt": "".join(turns) + "<|assistant|>"}
    return {
        "/health": {"status": "ok"},
        "/v1/models": {
            "object": "list",
            "data": [{"id": name, "object": "model", "max_model_len": context} for name in models],
        },
        "/props": {
            "chat_template": template,
            "default_generation_settings": {"n_ctx": context},
            "build_info": "b1-scripted",
            "total_slots": 1,
        },
        "/version": {"version": "0.0.scripted"},
    }.get(path)


def dumped(document: Any) -> bytes:
    return json.dumps(document).encode()
