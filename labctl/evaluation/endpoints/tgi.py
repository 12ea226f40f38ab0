"""Text Generation Inference's own API.

Format: its OpenAPI description (``/generate``, ``/generate_stream``, ``/info``, ``/tokenize``).
Untried against a real server. A stream has one event per token; the last one has the whole text and
the ``details``. The text of special tokens is not part of the answer. A stop word stays at the
text's end; it is removed here, as other servers do.
"""

from pydantic import Field, JsonValue

from labctl.errors import ConfigError
from labctl.evaluation.endpoints.answers import AnswerBuilder, ServerMessage, read, tokens_at
from labctl.evaluation.endpoints.base import (
    EndpointClient,
    Generation,
    GenerationRequest,
    ServerIdentity,
)
from labctl.evaluation.endpoints.connection import Connection, refused
from labctl.evaluation.endpoints.errors import TryAgain
from labctl.evaluation.endpoints.room import room_for
from labctl.evaluation.endpoints.tokens import ends_of_pieces, with_end_token

#: Kinds of errors that would repeat.
_LASTING = ("validation", "template_error")


class _Token(ServerMessage):
    id: int
    text: str = ""
    special: bool = False


class _Details(ServerMessage):
    finish_reason: str
    generated_tokens: int = Field(ge=0)
    input_length: int | None = None


class _Event(ServerMessage):
    token: _Token | None = None
    generated_text: str | None = None
    details: _Details | None = None
    error: JsonValue = None
    error_type: str | None = None


class _Info(ServerMessage):
    model_id: str | None = None
    version: str | None = None
    max_total_tokens: int | None = None


class TgiClient(EndpointClient):
    """``/generate_stream``: the text goes to the model byte for byte."""

    def __init__(self, connection: Connection):
        self._connection = connection

    async def generate(self, request: GenerationRequest, *, timeout: float) -> Generation:
        """See :meth:`EndpointClient.generate`."""
        if not isinstance(request.prompt, str):
            raise ConfigError(
                "api tgi takes a text, not messages",
                hint="use another layout in the prompt, or api: openai-chat",
            )
        parameters: dict[str, JsonValue] = {
            "max_new_tokens": request.max_tokens or await room_for(self, request.prompt),
            "stop": list(request.stop),
            "details": True,
        }
        if (
            request.temperature > 0
        ):  # TGI refuses 0; without a temperature it takes the likeliest token
            parameters |= {"do_sample": True, "temperature": request.temperature}
        if request.top_p is not None:
            parameters["top_p"] = request.top_p
        if request.seed is not None:
            parameters["seed"] = request.seed
        answer, pieces = AnswerBuilder(request), list[bytes | str]()
        whole: str | None = None

        def take(stamp_ns: int, data: bytes) -> None:
            nonlocal whole
            event = read(_Event, data)
            if event.error is not None:
                raise self._failure(event)
            if event.token:
                text = "" if event.token.special else event.token.text
                answer.ids.append(event.token.id)
                answer.listed = len(answer.ids)
                answer.add(stamp_ns, text)
                pieces.append(text)
            if event.details:
                whole = event.generated_text
                answer.finish = event.details.finish_reason
                answer.completion_tokens = event.details.generated_tokens
                answer.prompt_tokens = event.details.input_length

        document: dict[str, JsonValue] = {"inputs": request.prompt, "parameters": parameters}
        exchange = await self._connection.exchange(
            "/generate_stream", {**document, **request.extra_body}, take, timeout=timeout
        )
        text = answer.text if whole is None else whole
        if answer.finish == "stop_sequence":
            found = [at for word in request.stop if word and (at := text.find(word)) >= 0]
            text = text[: min(found, default=len(text))]
        answer.pieces, answer.length = [text], len(text)
        answer.ends = with_end_token(
            ends_of_pieces(pieces, text),
            count=answer.completion_tokens,
            length=len(text),
            stopped=True,
        )
        return answer.generation(exchange)

    def _failure(self, event: _Event) -> Exception:
        failure = self._connection.error_in_stream(event.error)
        if isinstance(failure, TryAgain) and event.error_type in _LASTING:
            return refused(failure.message, 422)
        return failure

    async def tokenize(self, text: str) -> tuple[int, ...] | None:
        """See :meth:`EndpointClient.tokenize`."""
        return await tokens_at(self._connection, "/tokenize", {"inputs": text})

    async def identify(self) -> ServerIdentity:
        """See :meth:`EndpointClient.identify`."""
        found = await self._connection.fact("GET", "/info")
        if found is None:
            return ServerIdentity()
        info = read(_Info, found[0])
        return ServerIdentity(
            server=f"text-generation-inference {info.version}" if info.version else found[1],
            served_names=(info.model_id,) if info.model_id else (),
            context=info.max_total_tokens,
        )

    async def aclose(self) -> None:
        """See :meth:`EndpointClient.aclose`."""
        await self._connection.aclose()
