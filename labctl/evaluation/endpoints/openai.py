"""The completion and chat APIs of OpenAI, which many servers offer."""

import re
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar

from pydantic import JsonValue

from labctl.errors import ConfigError
from labctl.evaluation.endpoints.answers import AnswerBuilder, documents, read, tokens_at
from labctl.evaluation.endpoints.base import (
    EndpointClient,
    Generation,
    GenerationRequest,
    ServerIdentity,
)
from labctl.evaluation.endpoints.connection import Connection, Exchange
from labctl.evaluation.endpoints.counting import tokens_of
from labctl.evaluation.endpoints.errors import Refused, TryAgain
from labctl.evaluation.endpoints.openai_format import (
    Choice,
    Event,
    Models,
    Properties,
    Usage,
    Version,
)
from labctl.evaluation.endpoints.room import room_for
from labctl.evaluation.endpoints.tokens import ends_of_pieces, with_end_token

#: OpenAI's newer name of the limit; servers that refuse the older name mention it.
_NEWER_LIMIT = "max_completion_tokens"
#: HTTP status of servers that fail at an unknown key.
_FAILED_INSIDE = 500
#: Servers that report the ids of tokens on request.
_TELL_IDS = ("vllm", "lmdeploy", "sglang")


class _Answer(AnswerBuilder):
    """One of the answers in a stream, with the texts of its tokens."""

    def __init__(self, request: GenerationRequest) -> None:
        super().__init__(request)
        self.tokens: list[bytes | str] = []
        self._is_begun = False

    def take(self, stamp_ns: int, choice: Choice, usage: Usage | None, predicted: int) -> None:
        """Take this answer's part of an event."""
        part = choice.part
        if choice.logprobs:
            self.tokens += choice.logprobs.pieces
            self.likeliest = self.likeliest or choice.logprobs.likeliest
        self.ids += choice.ids
        self.listed = max(len(self.tokens), len(self.ids))
        is_over = choice.finish_reason is not None or self.finish is not None
        # A usage at the end is the total, not the number of tokens of this event, and it may come
        # with an empty text.
        if usage and (self.counted or not is_over):
            self.counted = usage.completion_tokens or 0
        self.counted = predicted or self.counted
        # A chat's first event may contain only the role. A later empty text may mean held-back
        # text.
        is_token = part.content == "" and not is_over and (part.role is None or self._is_begun)
        self.add(stamp_ns, part.text, part.thought, is_token=is_token)
        self._is_begun = True
        self.finish = choice.finish_reason or self.finish


class OpenAiClient(EndpointClient):
    """Common part of both APIs. ``version``: begin of their paths, ``/v1``."""

    path: ClassVar[str]
    #: Value that asks for the texts of tokens.
    _logprobs: ClassVar[bool | int]

    def __init__(self, connection: Connection, served_name: str | None, *, version: str = "/v1"):
        self._connection = connection
        self._served_name = served_name
        self._version = version
        self._owner: str | None = None
        self._limit_name = "max_tokens"
        self._most_likeliest: int | None = None
        #: True for each kind of report that the server accepted, False for a refused kind.
        self._reports: dict[str, bool] = {}
        #: Paths that may be the tokenizer; the right path first.
        self._tokenizers = ["/tokenize", f"{version}/encode"]

    async def generate(self, request: GenerationRequest, *, timeout: float) -> Generation:
        """See :meth:`EndpointClient.generate`.

        Parts that a server refuses are left out from then on, or sent as its refusal demands:
        reports of tokens, the name of the limit, the number of the likeliest tokens.
        """
        document = await self._written(request)
        most = document.pop("max_tokens", None)
        kind = _report_kind(request)
        reports = self._reports_asked(kind) if self._reports.get(kind, True) else {}
        name, likeliest = self._limit_name, request.likeliest
        likeliest = min(likeliest, self._most_likeliest or likeliest)
        while True:
            limit = {} if most is None else {name: most}
            choices = self._likeliest_asked(likeliest) if likeliest else {}
            asked = {**document, **reports, **limit, **choices}
            try:
                generation = await self._ask(request, asked, timeout=timeout)
                break
            except (Refused, TryAgain) as error:
                is_new = bool(reports) and not self._reports.get(kind)
                if isinstance(error, TryAgain):
                    # An evaluation retries anyway, and needs its reports more.
                    if not (is_new and request.token_times and error.status == _FAILED_INSIDE):
                        raise
                    reports = {}
                elif most is not None and name != _NEWER_LIMIT and _NEWER_LIMIT in error.said:
                    name = _NEWER_LIMIT
                elif is_new:
                    reports = {}
                elif fewer := _allowed(error.said, likeliest):
                    likeliest = fewer
                else:
                    raise
        self._limit_name = name
        if likeliest < request.likeliest:
            self._most_likeliest = likeliest
        if kind:  # another request may know by now that the server accepts them
            self._reports[kind] = bool(reports) or self._reports.get(kind, False)
        return generation

    async def _written(self, request: GenerationRequest) -> dict[str, JsonValue]:
        """Return the part of the request that every server accepts."""
        document = await self._document(request)
        document["model"] = await self._model()
        document |= {"temperature": request.temperature, "stream": not request.likeliest}
        if not request.likeliest:
            document["stream_options"] = {"include_usage": True}
        if request.top_p is not None:
            document["top_p"] = request.top_p
        if request.seed is not None:
            document["seed"] = request.seed
        if request.stop:
            document["stop"] = list(request.stop)
        return document

    async def _ask(
        self, request: GenerationRequest, document: Mapping[str, JsonValue], *, timeout: float
    ) -> Generation:
        answers: dict[int, _Answer] = {}
        whole = _Answer(request)  # facts that all answers share

        def take(stamp_ns: int, data: bytes) -> None:
            if data == b"[DONE]":
                whole.is_whole = True
                return
            event = read(Event, data)
            if event.error is not None:
                raise self._connection.error_in_stream(event.error)
            timings = event.timings
            for choice in event.choices:
                answer = answers.setdefault(choice.index, _Answer(request))
                answer.take(stamp_ns, choice, event.usage, timings.predicted_n if timings else 0)
            if usage := event.usage:
                whole.prompt_tokens = usage.prompt_tokens or whole.prompt_tokens
                whole.completion_tokens = usage.completion_tokens
                whole.thought_tokens = usage.thought_tokens
                whole.cached_tokens = usage.cached_tokens
            if timings:
                whole.prompt_eval_ns = round(timings.prompt_ms * 1e6)
                whole.eval_ns = round(timings.predicted_ms * 1e6)
                if whole.cached_tokens is None:
                    whole.cached_tokens = timings.cache_n
            whole.server = event.system_fingerprint or whole.server
            whole.served_name = event.model or whole.served_name

        exchange = await self._connection.exchange(
            self._version + self.path, {**document, **request.extra_body}, take, timeout=timeout
        )
        in_order = [answers[index] for index in sorted(answers)] or [whole]
        return await self._generation(in_order, whole, exchange)

    async def _generation(
        self, answers: Sequence[_Answer], whole: _Answer, exchange: Exchange
    ) -> Generation:
        """Return the first answer, with the count of all. Raises TryAgain for an incomplete one."""
        for one in answers:
            one.share(whole, len(answers))
        for one in answers[1:]:
            one.check_end(exchange)
        answer = answers[0]
        if not answer.has_count and answer.is_ended(exchange) and not answer.listed:
            tokens: tuple[int, ...] | None = ()
            for one in answers:
                found = await tokens_of(self, one.text, "".join(one.thoughts))
                tokens = None if found is None or tokens is None else (*tokens, *found)
            return answer.generation(exchange, tokenized=tokens)
        if answer.tokens and not answer.thoughts:
            answer.ends = with_end_token(
                ends_of_pieces(answer.tokens, answer.text),
                count=answer.completion_tokens,
                length=answer.length,
                stopped=answer.finish == "stop",
            )
        return answer.generation(exchange)

    @abstractmethod
    async def _document(self, request: GenerationRequest) -> dict[str, JsonValue]:
        """Return the prompt and the limit. Raises ConfigError for a prompt of the wrong kind."""

    def _reports_asked(self, kind: str) -> dict[str, JsonValue]:
        """Return the request keys that ask for tokens: their texts, or their number."""
        keys: dict[str, JsonValue] = {}
        if kind and self._owner in _TELL_IDS:
            keys["return_token_ids"] = True
        if kind == "offsets":
            keys["logprobs"] = self._logprobs
        elif kind == "token_times":
            keys["stream_options"] = {"include_usage": True, "continuous_usage_stats": True}
            if self._owner == "llamacpp":
                keys["timings_per_token"] = True
        return keys

    @abstractmethod
    def _likeliest_asked(self, most: int) -> dict[str, JsonValue]:
        """Return the request keys that ask for the likeliest tokens."""

    async def _model(self) -> str:
        """Return the model's name: from the recipe, or the only served one."""
        if self._served_name is None:
            names = (await self.identify()).served_names
            if len(names) != 1:
                found = f"serves {', '.join(names)}" if names else "lists no model"
                raise ConfigError(
                    f"{self._connection.address} {found}",
                    hint="set served_name to the one to ask; or check the address",
                )
            self._served_name = names[0]
        return self._served_name

    async def tokenize(self, text: str) -> tuple[int, ...] | None:
        """See :meth:`EndpointClient.tokenize`; of llama-server, vLLM, SGLang and LMDeploy."""
        asked: dict[str, JsonValue] = {"content": text, "add_special": False}
        asked |= {"prompt": text, "add_special_tokens": False}
        asked |= {"input": text, "add_bos": False, "model": await self._model()}
        while self._tokenizers:
            path = self._tokenizers[0]
            if (found := await tokens_at(self._connection, path, asked)) is not None:
                return found
            if path == self._tokenizers[0]:  # otherwise another request has already found the path
                del self._tokenizers[0]
        return None

    async def identify(self) -> ServerIdentity:
        """See :meth:`EndpointClient.identify`; asks vLLM and llama-server for more."""
        found = await self._connection.fact("GET", f"{self._version}/models")
        if found is None:
            return ServerIdentity()
        models, server = read(Models, found[0]).data, found[1]
        owner = next((model.owned_by for model in models if model.owned_by), None)
        self._owner = owner
        context = next((model.max_model_len for model in models if model.max_model_len), None)
        template = None
        if owner == "vllm" and (found := await self._connection.fact("GET", "/version")):
            server = f"vllm {read(Version, found[0]).version}"
        if owner == "llamacpp" and (found := await self._connection.fact("GET", "/props")):
            properties = read(Properties, found[0])
            template, context = (
                properties.chat_template,
                properties.default_generation_settings.n_ctx,
            )
        return ServerIdentity(
            server=server or owner,
            served_names=tuple(model.id for model in models),
            template=template,
            context=context,
        )

    async def aclose(self) -> None:
        """See :meth:`EndpointClient.aclose`."""
        await self._connection.aclose()


class OpenAiChatClient(OpenAiClient):
    """``/v1/chat/completions``: the server formats the messages with the model's template."""

    path = "/chat/completions"
    _logprobs = True

    async def _document(self, request: GenerationRequest) -> dict[str, JsonValue]:
        if isinstance(request.prompt, str):
            raise ConfigError(
                "api openai-chat takes messages, not a formatted text",
                hint="use layout: chat in the prompt, or api: openai-completions",
            )
        limit: dict[str, JsonValue] = {"max_tokens": request.max_tokens}
        return {"messages": documents(request.prompt), **(limit if request.max_tokens else {})}

    def _likeliest_asked(self, most: int) -> dict[str, JsonValue]:
        return {"logprobs": True, "top_logprobs": most}


class OpenAiCompletionsClient(OpenAiClient):
    """``/v1/completions``: the text goes to the model byte for byte."""

    path = "/completions"
    _logprobs = 1

    async def _document(self, request: GenerationRequest) -> dict[str, JsonValue]:
        if not isinstance(request.prompt, str):
            raise ConfigError(
                "api openai-completions takes a text, not messages",
                hint="use another layout in the prompt, or api: openai-chat",
            )
        limit = request.max_tokens or await room_for(self, request.prompt)
        return {"prompt": request.prompt, "max_tokens": limit}

    def _likeliest_asked(self, most: int) -> dict[str, JsonValue]:
        return {"logprobs": most}


def _report_kind(request: GenerationRequest) -> str:
    """Return the kind of reports on tokens that a request needs; empty: none."""
    return "offsets" if request.offsets else "token_times" if request.token_times else ""


def _allowed(said: str, asked: int) -> int:
    """Return the smaller number of likeliest tokens that a refusal names; 0: it names none."""
    numbers = map(int, re.findall(r"\d+", said)) if "logprobs" in said else ()
    return max((one for one in numbers if one < asked), default=0)
