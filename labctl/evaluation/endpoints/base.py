"""The contract of an endpoint: one request, one generation, with the client's time stamps."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from pydantic import JsonValue

from labctl.records.evaluation import FinishReason, TokenCounter


@dataclass(frozen=True)
class Message:
    """One message of a chat."""

    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True)
class GenerationRequest:
    """A question as it is sent: messages for a chat API, or a text to continue, byte for byte.

    ``max_tokens`` None: no limit. ``offsets``: ask for the tokens, as far as the API has them.
    ``likeliest``: number of the likeliest first tokens to report with their probabilities; if above
    0, the answer comes in one piece. ``token_times``: ask for the number of tokens in each piece.
    ``extra_body``: further keys of the request in the server's own form, such as ``ignore_eos``.
    """

    prompt: str | tuple[Message, ...]
    max_tokens: int | None
    temperature: float = 0.0
    top_p: float | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    offsets: bool = False
    likeliest: int = 0
    token_times: bool = False
    extra_body: Mapping[str, JsonValue] = field(default_factory=dict)


@dataclass(frozen=True)
class Generation:
    """An answer. Times: ns of the client's monotonic clock; ``arrivals``: of pieces with tokens.

    ``thoughts``: text that the server sent beside the answer. ``hidden_tokens``: tokens of thoughts
    that it counted but did not send. ``tokens_after_first``: tokens after the first piece; None:
    not known. ``answers``: number of answers to the request (``n``); ``completion_tokens`` counts
    all of them, everything else describes the first. ``token_ends``: for each token the length of
    ``text`` after it, in code points. ``likeliest``: the likeliest first tokens and the natural
    logarithms of their probabilities; None: not asked for. ``cached_tokens``: prompt tokens that
    the server reused from an earlier request. ``drafted_tokens``: tokens that speculative decoding
    guessed; ``accepted_tokens``: those of them that were right.
    """

    text: str
    finish: FinishReason
    sent_ns: int
    done_ns: int
    thoughts: str = ""
    arrivals: tuple[int, ...] = ()
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    drafted_tokens: int | None = None
    accepted_tokens: int | None = None
    completion_tokens: int | None = None
    counted_by: TokenCounter | None = None
    hidden_tokens: int = 0
    tokens_after_first: int | None = None
    answers: int = 1
    token_ids: tuple[int, ...] | None = None
    token_ends: tuple[int, ...] | None = None
    likeliest: tuple[tuple[str, float], ...] | None = None
    prompt_eval_ns: int | None = None
    eval_ns: int | None = None
    server: str | None = None
    served_name: str | None = None


@dataclass(frozen=True)
class ServerIdentity:
    """Facts that a server reports about itself; None if its API does not report them."""

    server: str | None = None
    served_names: tuple[str, ...] = ()
    template: str | None = None
    context: int | None = None


class EndpointClient(ABC):
    """A client of one server. Requests may overlap; ``aclose`` ends all connections.

    ``prompt_cache`` False: each request asks the server not to reuse earlier ones; None: the
    server's own setting.
    """

    prompt_cache: ClassVar[bool | None] = None

    @abstractmethod
    async def generate(self, request: GenerationRequest, *, timeout: float) -> Generation:
        """Ask once, without a retry; stream if the API can.

        ``timeout``: seconds for the whole answer. Raises
        :class:`~labctl.evaluation.endpoints.errors.TryAgain` for temporary failures (429, 5xx,
        time-outs, lost connections), Refused (a ProgramFailed) if the server refuses this request,
        OutputNotUnderstood, ConfigError if every request would fail (wrong key or path).
        """

    @abstractmethod
    async def tokenize(self, text: str) -> tuple[int, ...] | None:
        """Return the ids of a text's tokens; None if the API has no tokenizer."""

    @abstractmethod
    async def identify(self) -> ServerIdentity:
        """Return the server's facts about itself."""

    @abstractmethod
    async def aclose(self) -> None:
        """Close all connections."""
