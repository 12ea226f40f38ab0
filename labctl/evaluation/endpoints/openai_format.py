"""The JSON of OpenAI's completion and chat APIs, with what other servers add to it.

Formats: OpenAI's API reference; additions of vLLM, SGLang, LMDeploy, MLC LLM and llama-server, as
far as they help to count tokens.
"""

import re
from collections.abc import Iterator, Mapping

from pydantic import ConfigDict, Field, JsonValue

from labctl.config.printed import Milliseconds
from labctl.evaluation.endpoints.answers import LikelyToken, ServerMessage

#: Keys whose texts the model did not generate, or that cannot be read.
_LABELS = {"id", "type", "object", "index", "format", "signature", "data", "tool_call_id", "url"}
_LABELS |= {"channel", "recipient", "author", "status", "provider"}
_LABELS |= {"annotations", "citations", "images", "matched_stop", "stop_reason", "hidden_states"}
#: In a message also these: within a call of a tool, the model generates the name.
_OF_MESSAGE = {"role", "name", "content"}
#: Names of thoughts in a choice, and of their tokens in a usage.
_THOUGHTS = re.compile("reasoning|think|thought")


def _texts(found: object, labels: set[str]) -> Iterator[str]:
    """Yield all texts in a value, except those of labels."""
    if isinstance(found, str):
        yield found
    elif isinstance(found, list):
        for one in found:
            yield from _texts(one, labels)
    elif isinstance(found, dict):
        for key, value in found.items():
            if key not in labels:
                yield from _texts(value, _LABELS)


class Part(ServerMessage):
    """A message, or its part in a stream.

    Servers name thoughts in many ways: ``reasoning_content``, ``reasoning``, ``reasoning_details``,
    ``thinking``. So each other text in it counts as one, and calls of tools with them.
    """

    model_config = ConfigDict(extra="allow")

    role: JsonValue = None
    content: str | list[dict[str, JsonValue]] | None = None
    gen_tokens: list[int] | None = None  # older LMDeploy, where asked for

    @property
    def text(self) -> str:
        """The answer's text."""
        if not isinstance(self.content, list):
            return self.content or ""
        parts = (part.get("text") for part in self.content if not _is_thought(part))
        return "".join(part for part in parts if isinstance(part, str))

    @property
    def thought(self) -> str:
        """The text beside the answer; servers may send the same text under two names."""
        content = self.content if isinstance(self.content, list) else []
        thoughts = [part for part in content if _is_thought(part)]
        found = [*_texts(thoughts, _LABELS), *_texts(self.model_extra, _LABELS | _OF_MESSAGE)]
        return "".join(one for one in dict.fromkeys(found) if one != self.text)


def _is_thought(part: Mapping[str, JsonValue]) -> bool:
    return _THOUGHTS.search(str(part.get("type"))) is not None


class _Token(ServerMessage):
    token: str
    content: list[int] | None = Field(None, alias="bytes")
    id: int | None = None
    top_logprobs: list[LikelyToken] | None = None


class Logprobs(ServerMessage):
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
        """The text of each token."""
        if self.content is None:
            return list(self.tokens or ())
        return [
            token.token if token.content is None else bytes(byte & 0xFF for byte in token.content)
            for token in self.content
        ]

    @property
    def ids(self) -> list[int]:
        """The ids of the tokens, where reported."""
        return [token.id for token in self.content or () if token.id is not None]


class Choice(ServerMessage):
    """One of the answers to a request; ``index`` says which."""

    model_config = ConfigDict(extra="allow")

    index: int = 0
    text: str | None = None
    delta: Part | None = None
    message: Part | None = None
    finish_reason: str | None = None
    logprobs: Logprobs | None = None
    token_ids: list[int] | None = None  # vLLM, SGLang, where asked for
    output_ids: list[int] | None = None  # LMDeploy
    gen_tokens: list[int] | None = None  # older LMDeploy

    @property
    def part(self) -> Part:
        """The text, in the form of a chat."""
        if part := self.delta or self.message:
            return part
        extra = {key: one for key, one in (self.model_extra or {}).items() if _THOUGHTS.search(key)}
        return Part(content=self.text, **extra)

    @property
    def ids(self) -> list[int]:
        """Ids of the tokens in this event, as far as the server reports them."""
        extra = self.logprobs.ids if self.logprobs else []
        part = self.delta or self.message
        older = part.gen_tokens if part else self.gen_tokens
        return self.token_ids or self.output_ids or older or extra


class _Details(ServerMessage):
    cached_tokens: int | None = None


class Usage(ServerMessage):
    """Numbers of tokens; in the last event, or in each one, so far."""

    model_config = ConfigDict(extra="allow")

    prompt_tokens: int | None = Field(None, ge=0)
    completion_tokens: int | None = Field(None, ge=0)
    prompt_tokens_details: _Details | None = None

    @property
    def cached_tokens(self) -> int | None:
        """Prompt tokens from a cache; None: not reported."""
        details = self.prompt_tokens_details
        return details.cached_tokens if details else None

    @property
    def thought_tokens(self) -> int | None:
        """Tokens of thoughts, which are part of the whole number; None: not reported."""
        extra = dict(self.model_extra or {})
        for name in ("completion_tokens_details", "output_tokens_details"):
            if isinstance(more := extra.get(name), dict):
                extra |= more
        found = [
            one for key, one in extra.items() if _THOUGHTS.search(key) and isinstance(one, int)
        ]
        return max(found, default=None)


class Timings(ServerMessage):
    """Of llama-server."""

    prompt_ms: Milliseconds
    predicted_ms: Milliseconds
    predicted_n: int = Field(0, ge=0)
    cache_n: int | None = Field(None, ge=0)


class Event(ServerMessage):
    """An event of a stream, or an answer in one piece."""

    choices: tuple[Choice, ...] = ()
    usage: Usage | None = None
    model: str | None = None
    system_fingerprint: str | None = None
    timings: Timings | None = None
    error: JsonValue = None


class _Model(ServerMessage):
    id: str
    owned_by: str | None = None
    max_model_len: int | None = None  # vLLM, SGLang


class Models(ServerMessage):
    """The served models."""

    data: list[_Model]


class Version(ServerMessage):
    """Of vLLM."""

    version: str


class _Settings(ServerMessage):
    n_ctx: int | None = None


class Properties(ServerMessage):
    """Of llama-server."""

    chat_template: str | None = None
    default_generation_settings: _Settings = _Settings()
