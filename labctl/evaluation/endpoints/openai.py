"""The completion and chat APIs of OpenAI, which many servers offer.

Formats: OpenAI's API reference (``/v1/completions``, ``/v1/chat/completions``); additions of vLLM,
SGLang, LMDeploy, MLC LLM and llama-server, as far as they help to count tokens.
"""

from abc import abstractmethod
from typing import ClassVar

from pydantic import Field, JsonValue

from labctl.errors import ConfigError
from labctl.evaluation.endpoints.answers import (
    AnswerBuilder,
    LikelyToken,
    ServerMessage,
    documents,
    read,
)
from labctl.evaluation.endpoints.base import (
    EndpointClient,
    Generation,
    GenerationRequest,
    ServerIdentity,
)
from labctl.evaluation.endpoints.connection import Connection
from labctl.evaluation.endpoints.errors import Refused
from labctl.evaluation.endpoints.room import room_for
from labctl.evaluation.endpoints.tokens import ends_of_pieces, with_end_token


class _Piece(ServerMessage):
    content: str | None = None
    # A model's reasoning, separate from its answer: vLLM and SGLang, and newer vLLM.
    reasoning_content: str | None = None
    reasoning: str | None = None
    gen_tokens: list[int] | None = None  # LMDeploy, where asked for


class _Token(ServerMessage):
    token: str
    content: list[int] | None = Field(None, alias="bytes")
    id: int | None = None
    top_logprobs: list[LikelyToken] | None = None


class _Logprobs(ServerMessage):
    """Tokens with their text; a chat has ``content``, and llama-server always has it."""

    content: list[_Token] | None = None
    tokens: list[str] | None = None
    top_logprobs: list[dict[str, float] | None] | None = None

    @property
    def likeliest(self) -> tuple[tuple[str, float], ...] | None:
        """The likeliest first tokens; None: not reported."""
        if self.content:
            first = self.content[0].top_logprobs or []
            return tuple((one.token, one.logprob) for one in first) or None
        logprobs = self.top_logprobs[0] if self.top_logprobs else None
        return tuple(logprobs.items()) if logprobs else None

    @property
    def pieces(self) -> list[bytes | str]:
        if self.content is None:
            return list(self.tokens or ())
        return [
            token.token if token.content is None else bytes(byte & 0xFF for byte in token.content)
            for token in self.content
        ]

    @property
    def ids(self) -> list[int]:
        return [token.id for token in self.content or () if token.id is not None]


class _Choice(ServerMessage):
    text: str | None = None
    delta: _Piece | None = None
    message: _Piece | None = None
    finish_reason: str | None = None
    logprobs: _Logprobs | None = None
    token_ids: list[int] | None = None  # vLLM, where asked for
    gen_tokens: list[int] | None = None  # LMDeploy

    @property
    def part(self) -> _Piece:
        return self.delta or self.message or _Piece(content=self.text, gen_tokens=self.gen_tokens)

    @property
    def ids(self) -> list[int]:
        extra = self.logprobs.ids if self.logprobs else []
        return self.token_ids or self.part.gen_tokens or extra


class _Cached(ServerMessage):
    cached_tokens: int | None = None


class _Usage(ServerMessage):
    prompt_tokens: int = Field(ge=0)
    completion_tokens: int | None = Field(None, ge=0)
    prompt_tokens_details: _Cached | None = None


class _Timings(ServerMessage):
    """Of llama-server."""

    prompt_ms: float = Field(ge=0)
    predicted_ms: float = Field(ge=0)


class _Event(ServerMessage):
    choices: tuple[_Choice, ...] = ()
    usage: _Usage | None = None
    model: str | None = None
    system_fingerprint: str | None = None
    timings: _Timings | None = None
    error: JsonValue = None


class _Model(ServerMessage):
    id: str
    owned_by: str | None = None
    max_model_len: int | None = None  # vLLM, SGLang


class _Models(ServerMessage):
    data: list[_Model]


class _Version(ServerMessage):
    version: str


class _Tokens(ServerMessage):
    tokens: list[int]


class _Settings(ServerMessage):
    n_ctx: int | None = None


class _Properties(ServerMessage):
    """Of llama-server."""

    chat_template: str | None = None
    default_generation_settings: _Settings = _Settings()


class OpenAiClient(EndpointClient):
    """The part that both APIs share. ``version`` begins their paths: ``/v1``."""

    path: ClassVar[str]

    def __init__(self, connection: Connection, served_name: str | None, *, version: str = "/v1"):
        self._connection = connection
        self._served_name = served_name
        self._version = version
        self._tells_ids = False
        self._tells_tokens = True
        self._has_tokenizer = True

    async def generate(self, request: GenerationRequest, *, timeout: float) -> Generation:
        """See :meth:`EndpointClient.generate`.

        If a server refuses to report tokens, it is asked without them from then on.
        """
        document = await self._document(request)
        document["model"] = await self._model()
        document |= {"temperature": request.temperature, "stream": not request.likeliest}
        if request.likeliest:
            document |= self._likeliest_asked(request.likeliest)
        else:
            document["stream_options"] = {"include_usage": True}
        if request.top_p is not None:
            document["top_p"] = request.top_p
        if request.seed is not None:
            document["seed"] = request.seed
        if request.stop:
            document["stop"] = list(request.stop)
        tokens = self._tokens_asked() if request.offsets and self._tells_tokens else {}
        try:
            return await self._ask(request, {**document, **tokens}, timeout=timeout)
        except Refused:
            if not tokens:
                raise
        generation = await self._ask(request, document, timeout=timeout)
        self._tells_tokens = False
        return generation

    async def _ask(
        self, request: GenerationRequest, document: dict[str, JsonValue], *, timeout: float
    ) -> Generation:
        answer, pieces = AnswerBuilder(request), list[bytes | str]()
        thinks = False

        def take(stamp_ns: int, data: bytes) -> None:
            nonlocal thinks
            if data == b"[DONE]":
                return
            event = read(_Event, data)
            if event.error is not None:
                raise self._connection.error_in_stream(event.error)
            for choice in event.choices[:1]:
                part = choice.part
                if part.reasoning_content or part.reasoning:
                    thinks = True
                    if not part.content:  # otherwise it is one piece with the text
                        answer.arrivals.append(stamp_ns)
                answer.add(stamp_ns, part.content)
                answer.finish = choice.finish_reason or answer.finish
                if choice.logprobs:
                    pieces.extend(choice.logprobs.pieces)
                    answer.likeliest = answer.likeliest or choice.logprobs.likeliest
                answer.ids += choice.ids
            if event.usage:
                answer.prompt_tokens = event.usage.prompt_tokens
                answer.completion_tokens = event.usage.completion_tokens
                details = event.usage.prompt_tokens_details
                answer.cached_tokens = details.cached_tokens if details else None
            if event.timings:
                answer.prompt_eval_ns = round(event.timings.prompt_ms * 1e6)
                answer.eval_ns = round(event.timings.predicted_ms * 1e6)
            answer.server = event.system_fingerprint or answer.server
            answer.served_name = event.model or answer.served_name

        exchange = await self._connection.exchange(
            self._version + self.path, {**document, **request.extra_body}, take, timeout=timeout
        )
        if answer.completion_tokens is None and answer.finish is not None and not pieces:
            tokens = await self.tokenize(answer.text)
            return answer.generation(exchange, tokenized=tokens)
        answer.reported_tokens = len(pieces)
        if pieces and not thinks:
            answer.ends = with_end_token(
                ends_of_pieces(pieces, answer.text),
                count=answer.completion_tokens,
                length=answer.length,
                stopped=answer.finish == "stop",
            )
        return answer.generation(exchange)

    @abstractmethod
    async def _document(self, request: GenerationRequest) -> dict[str, JsonValue]:
        """Return the prompt and the limit. Raises ConfigError for a prompt of the wrong kind."""

    @abstractmethod
    def _tokens_asked(self) -> dict[str, JsonValue]:
        """Return the request keys that ask for tokens."""

    @abstractmethod
    def _likeliest_asked(self, most: int) -> dict[str, JsonValue]:
        """Return the request keys that ask for the likeliest tokens."""

    async def _model(self) -> str:
        """Return the name to ask for: the recipe's, or the only one that is served."""
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
        """See :meth:`EndpointClient.tokenize`; of llama-server, vLLM and SGLang."""
        if not self._has_tokenizer:
            return None
        asked: dict[str, JsonValue] = {"content": text, "add_special": False}
        asked |= {"prompt": text, "add_special_tokens": False, "model": await self._model()}
        found = await self._connection.fact("POST", "/tokenize", asked)
        self._has_tokenizer = found is not None
        return None if found is None else tuple(read(_Tokens, found[0]).tokens)

    async def identify(self) -> ServerIdentity:
        """See :meth:`EndpointClient.identify`; asks vLLM and llama-server for more."""
        found = await self._connection.fact("GET", f"{self._version}/models")
        if found is None:
            return ServerIdentity()
        models, server = read(_Models, found[0]).data, found[1]
        owner = next((model.owned_by for model in models if model.owned_by), None)
        self._tells_ids = owner in ("vllm", "lmdeploy")
        context = next((model.max_model_len for model in models if model.max_model_len), None)
        template = None
        if owner == "vllm" and (found := await self._connection.fact("GET", "/version")):
            server = f"vllm {read(_Version, found[0]).version}"
        if owner == "llamacpp" and (found := await self._connection.fact("GET", "/props")):
            properties = read(_Properties, found[0])
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

    async def _document(self, request: GenerationRequest) -> dict[str, JsonValue]:
        if isinstance(request.prompt, str):
            raise ConfigError(
                "api openai-chat takes messages, not a formatted text",
                hint="use layout: chat in the prompt, or api: openai-completions",
            )
        limit: dict[str, JsonValue] = {"max_tokens": request.max_tokens}
        return {"messages": documents(request.prompt), **(limit if request.max_tokens else {})}

    def _tokens_asked(self) -> dict[str, JsonValue]:
        more: dict[str, JsonValue] = {"return_token_ids": True} if self._tells_ids else {}
        return {"logprobs": True, **more}

    def _likeliest_asked(self, most: int) -> dict[str, JsonValue]:
        return {"logprobs": True, "top_logprobs": most}


class OpenAiCompletionsClient(OpenAiClient):
    """``/v1/completions``: the text goes to the model byte for byte."""

    path = "/completions"

    async def _document(self, request: GenerationRequest) -> dict[str, JsonValue]:
        if not isinstance(request.prompt, str):
            raise ConfigError(
                "api openai-completions takes a text, not messages",
                hint="use another layout in the prompt, or api: openai-chat",
            )
        limit = request.max_tokens or await room_for(self, request.prompt)
        return {"prompt": request.prompt, "max_tokens": limit}

    def _tokens_asked(self) -> dict[str, JsonValue]:
        more: dict[str, JsonValue] = {"return_token_ids": True} if self._tells_ids else {}
        return {"logprobs": 1, **more}

    def _likeliest_asked(self, most: int) -> dict[str, JsonValue]:
        return {"logprobs": most}
