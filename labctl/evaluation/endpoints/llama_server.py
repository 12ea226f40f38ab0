"""llama-server's own API, which reports every token.

Format: ``tools/server/README.md`` of llama.cpp, and ``process_token`` in its source (the same from
2025-08 to 2026-10). A stream has one event per token, except for a token that ends inside a code
point; ``tokens_predicted`` counts such tokens too. The beginning of a stop word is held back, and
lost if the limit is reached there. So the text received up to a token's event is the text of an
answer with this limit.
"""

from typing import ClassVar

from pydantic import Field, JsonValue

from labctl.config.printed import Milliseconds
from labctl.errors import OutputNotUnderstood
from labctl.evaluation.endpoints.answers import (
    AnswerBuilder,
    LikelyToken,
    ServerMessage,
    documents,
    read,
    tokens_at,
)
from labctl.evaluation.endpoints.base import (
    EndpointClient,
    Generation,
    GenerationRequest,
    Message,
    ServerIdentity,
)
from labctl.evaluation.endpoints.connection import Connection

#: Most consecutive tokens without an event, since a code point has at most four bytes.
_MOST_SILENT = 3


class _Timings(ServerMessage):
    prompt_ms: Milliseconds
    predicted_ms: Milliseconds
    cache_n: int | None = Field(None, ge=0)
    draft_n: int | None = Field(None, ge=0)
    draft_n_accepted: int | None = Field(None, ge=0)


class _Probabilities(ServerMessage):
    top_logprobs: tuple[LikelyToken, ...] = ()


class _Event(ServerMessage):
    """One token, or the end of the answer."""

    content: str = ""
    tokens: tuple[int, ...] = ()
    tokens_predicted: int = Field(0, ge=0)
    tokens_evaluated: int = Field(0, ge=0)
    stop: bool = False
    stop_type: str | None = None
    model: str | None = None
    timings: _Timings | None = None
    completion_probabilities: tuple[_Probabilities, ...] = ()
    error: JsonValue = None


class _Prompt(ServerMessage):
    prompt: str


class _Settings(ServerMessage):
    n_ctx: int | None = None


class _Properties(ServerMessage):
    build_info: str | None = None
    chat_template: str | None = None
    default_generation_settings: _Settings = _Settings()


class _Model(ServerMessage):
    id: str


class _Models(ServerMessage):
    data: list[_Model]


class _Ends:
    """Lengths of the text after each token."""

    def __init__(self) -> None:
        self._ends: list[int] = []
        self._plausible = True

    def count(self, tokens: int, length: int) -> None:
        """Note that the text has this length after this number of tokens."""
        new = tokens - len(self._ends)
        self._plausible = self._plausible and 0 <= new <= _MOST_SILENT
        if self._plausible:
            self._ends += [length] * new

    @property
    def known(self) -> tuple[int, ...] | None:
        """The lengths; None if the server's counts cannot be counts of tokens."""
        return tuple(self._ends) if self._plausible else None


class LlamaServerClient(EndpointClient):
    """``/completion``; messages go through the model's own template (``/apply-template``)."""

    prompt_cache: ClassVar[bool | None] = False

    def __init__(self, connection: Connection, served_name: str | None):
        self._connection = connection
        self._served_name = served_name

    async def generate(self, request: GenerationRequest, *, timeout: float) -> Generation:
        """See :meth:`EndpointClient.generate`."""
        asked = request.prompt
        prompt = asked if isinstance(asked, str) else await self._laid_out(asked)
        document: dict[str, JsonValue] = {
            "prompt": prompt,
            "n_predict": -1 if request.max_tokens is None else request.max_tokens,
            "temperature": request.temperature,
            "stop": list(request.stop),
            "stream": not request.likeliest,
            "return_tokens": True,
            "cache_prompt": False,
        }
        if request.likeliest:
            document["n_probs"] = request.likeliest
        if request.top_p is not None:
            document["top_p"] = request.top_p
        if request.seed is not None:
            document["seed"] = request.seed
        answer, ends = AnswerBuilder(request), _Ends()

        def take(stamp_ns: int, data: bytes) -> None:
            event = read(_Event, data)
            if event.error is not None:
                raise self._connection.error_in_stream(event.error)
            ends.count(event.tokens_predicted - (not event.stop), answer.length)
            if not event.stop:
                answer.counted = event.tokens_predicted
            answer.add(stamp_ns, event.content)
            if not event.stop:
                ends.count(event.tokens_predicted, answer.length)
                answer.ids += event.tokens
                return
            if event.completion_probabilities:
                first = event.completion_probabilities[0].top_logprobs
                answer.likeliest = tuple((one.token, one.logprob) for one in first) or None
            answer.finish = event.stop_type
            answer.completion_tokens = event.tokens_predicted
            answer.prompt_tokens = event.tokens_evaluated
            answer.served_name = event.model
            if event.timings:
                answer.prompt_eval_ns = round(event.timings.prompt_ms * 1e6)
                answer.eval_ns = round(event.timings.predicted_ms * 1e6)
                answer.cached_tokens = event.timings.cache_n
                answer.drafted_tokens = event.timings.draft_n
                answer.accepted_tokens = event.timings.draft_n_accepted

        exchange = await self._connection.exchange(
            "/completion", {**document, **request.extra_body}, take, timeout=timeout
        )
        if answer.served_name and self._served_name not in (None, answer.served_name):
            raise OutputNotUnderstood(
                f"{self._connection.address} serves {answer.served_name}, not {self._served_name}"
            )
        answer.ends = ends.known
        return answer.generation(exchange)

    async def _laid_out(self, messages: tuple[Message, ...]) -> str:
        asked: dict[str, JsonValue] = {"messages": documents(messages)}
        found = await self._connection.fact("POST", "/apply-template", asked)
        if found is None:
            raise OutputNotUnderstood(
                f"{self._connection.address} has no /apply-template",
                hint="use api: openai-chat, or a text prompt (another layout)",
            )
        return read(_Prompt, found[0]).prompt

    async def tokenize(self, text: str) -> tuple[int, ...] | None:
        """See :meth:`EndpointClient.tokenize`; without the token that begins a text."""
        return await tokens_at(self._connection, "/tokenize", {"content": text})

    async def identify(self) -> ServerIdentity:
        """See :meth:`EndpointClient.identify`."""
        properties = await self._connection.fact("GET", "/props")
        models = await self._connection.fact("GET", "/v1/models")
        known = _Properties() if properties is None else read(_Properties, properties[0])
        names = [] if models is None else read(_Models, models[0]).data
        return ServerIdentity(
            server=f"llama-server {known.build_info}" if known.build_info else None,
            served_names=tuple(model.id for model in names),
            template=known.chat_template,
            context=known.default_generation_settings.n_ctx,
        )

    async def aclose(self) -> None:
        """See :meth:`EndpointClient.aclose`."""
        await self._connection.aclose()
