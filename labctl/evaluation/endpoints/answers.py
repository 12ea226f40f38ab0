"""Collect the pieces of an answer, and check it as every client must."""

from collections.abc import Iterable, Mapping
from typing import TypeVar

from pydantic import ConfigDict, JsonValue

from labctl.config.printed import FailFastModel, first_problem
from labctl.errors import ConfigError, OutputNotUnderstood
from labctl.evaluation.endpoints.base import Generation, GenerationRequest, Message
from labctl.evaluation.endpoints.connection import Connection, Exchange
from labctl.evaluation.endpoints.errors import Refused, TryAgain
from labctl.evaluation.endpoints.tokens import Event, pieces_with_tokens
from labctl.records.evaluation import FinishReason, TokenCounter

M = TypeVar("M", bound=FailFastModel)

_FINISHED: Mapping[str, FinishReason] = {
    # OpenAI
    "stop": "stop",
    "length": "length",
    # llama-server
    "eos": "stop",
    "word": "stop",
    "limit": "length",
}
#: The server gave the answer up: LMDeploy, SGLang, MLC LLM.
_GIVEN_UP = ("error", "abort", "preempt")
_SHOWN = 200
_LIMIT_HINT = "it does not keep max_tokens: budgets cannot be measured with it"
#: Facts of an exchange, which its answers (maybe several) share.
_SHARED = (
    *("prompt_tokens", "completion_tokens", "thought_tokens", "cached_tokens"),
    *("prompt_eval_ns", "eval_ns", "server", "served_name"),
)
#: Limits for the number of pieces; a server may send a token in several pieces.
_PIECES_A_TOKEN, _MORE_PIECES = 4, 64


class ServerMessage(FailFastModel):
    """Fields that are read from a server's JSON; other fields are ignored."""

    model_config = ConfigDict(extra="ignore", strict=True, defer_build=True)


def read(model: type[M], data: bytes) -> M:
    """Read an event or a body. Raises OutputNotUnderstood."""
    try:
        return model.of_json(data)
    except ValueError as error:
        raise OutputNotUnderstood(
            f"the server's answer: {first_problem(error)}",
            hint="does it speak the api that the recipe names?",
            details=data[:_SHOWN].decode(errors="replace"),
        ) from error


class _Tokens(ServerMessage):
    """``tokens``: llama-server, vLLM and SGLang; ``input_ids``: LMDeploy."""

    tokens: list[int] | None = None
    input_ids: list[int] | None = None


async def tokens_at(
    connection: Connection, path: str, document: Mapping[str, JsonValue]
) -> tuple[int, ...] | None:
    """Ask for the ids of a text's tokens; None if the path is not a tokenizer of this kind.

    Raises TryAgain.
    """
    try:
        found = await connection.fact("POST", path, document)
        if found is None:
            return None
        told = _Tokens.of_json(found[0])
    except (Refused, ConfigError, OutputNotUnderstood, ValueError):
        return None
    ids = told.input_ids if told.tokens is None else told.tokens
    return None if ids is None else tuple(ids)


class LikelyToken(ServerMessage):
    """A token with which the model might begin."""

    token: str
    logprob: float


class AnswerBuilder:
    """Text, time stamps and counts of one answer to a request."""

    def __init__(self, request: GenerationRequest) -> None:
        self._request = request
        self.pieces: list[str] = []
        #: The model's thoughts: text beside the answer.
        self.thoughts: list[str] = []
        self.events: list[Event] = []
        self.length = 0
        self.finish: str | None = None
        #: The server marked the end of its answer.
        self.is_whole = False
        self.prompt_tokens: int | None = None
        self.cached_tokens: int | None = None
        self.drafted_tokens: int | None = None
        self.accepted_tokens: int | None = None
        self.completion_tokens: int | None = None
        #: Tokens of thoughts in the server's usage.
        self.thought_tokens: int | None = None
        self.prompt_eval_ns: int | None = None
        self.eval_ns: int | None = None
        self.server: str | None = None
        self.served_name: str | None = None
        self.ids: list[int] = []
        #: Number of tokens that the server listed one by one so far; 0: none.
        self.listed = 0
        #: Number of tokens so far, by a count that came with a piece; 0: not reported.
        self.counted = 0
        #: Number of answers to this request; one usage counts all of them.
        self.choices = 1
        #: None: not known.
        self.ends: tuple[int, ...] | None = None
        #: The likeliest first tokens, even if not requested; None: not reported.
        self.likeliest: tuple[tuple[str, float], ...] | None = None

    def add(
        self, stamp_ns: int, piece: str | None, thought: str = "", *, is_token: bool = False
    ) -> None:
        """Add an event. Without text or tokens it counts only if ``is_token`` allows it.

        Raises OutputNotUnderstood for too many events.
        """
        size = len(piece or "") + len(thought)
        last = self.events[-1] if self.events else Event(0, 0)
        if size or is_token or self.listed > last.listed or self.counted > last.counted:
            most = self._request.max_tokens
            if most is not None and len(self.events) >= _PIECES_A_TOKEN * most + _MORE_PIECES:
                raise OutputNotUnderstood(
                    f"the server sent {len(self.events)} pieces, the limit was {most} tokens",
                    hint=_LIMIT_HINT,
                )
            self.events.append(Event(stamp_ns, size, self.listed, self.counted))
        if piece:
            self.pieces.append(piece)
            self.length += len(piece)
        if thought:
            self.thoughts.append(thought)

    @property
    def text(self) -> str:
        """All text so far."""
        return "".join(self.pieces)

    @property
    def has_count(self) -> bool:
        """True if the server counted the tokens. Zero tokens beside text are not a count."""
        return bool(self.completion_tokens) or (
            self.completion_tokens == 0 and not any(event.size for event in self.events)
        )

    def is_ended(self, exchange: Exchange) -> bool:
        """Return True if the answer has ended, even without a reason for its end."""
        is_whole = self.is_whole or not exchange.is_stream
        return self.finish is not None or (is_whole and bool(self.events or self.completion_tokens))

    def check_end(self, exchange: Exchange) -> None:
        """Raise TryAgain if the answer is incomplete."""
        if not self.is_ended(exchange):
            raise TryAgain("the answer ended before it was complete")
        if self.finish in _GIVEN_UP:
            raise TryAgain(f"the server gave up the answer: {self.finish}")

    def share(self, whole: "AnswerBuilder", choices: int) -> None:
        """Copy the facts that all ``choices`` answers to the request share."""
        self.choices = max(1, choices)
        self.is_whole = whole.is_whole
        for name in _SHARED:
            setattr(self, name, getattr(whole, name))
        if not self.has_count:
            self.completion_tokens = None

    def generation(
        self, exchange: Exchange, *, tokenized: tuple[int, ...] | None = None
    ) -> Generation:
        """Return the finished answer; tokens are counted by the server's reports or its tokenizer.

        Raises TryAgain for an incomplete answer, OutputNotUnderstood if the answer contradicts
        itself or the limit.
        """
        self.check_end(exchange)
        if self._request.likeliest and self.likeliest is None:
            raise OutputNotUnderstood("the server does not report the probabilities of tokens")
        counted_by, count, reported = self._counted(tokenized)
        finish = _FINISHED.get(self.finish or "", "unknown")
        hidden = 0 if self.thoughts or count is None else min(self.thought_tokens or 0, count)
        arrivals, after_first = pieces_with_tokens(
            self.events,
            count=count,
            hidden=hidden,
            stopped=finish != "length",
            done_ns=exchange.done_ns,
        )
        if count is None:
            count = reported or len(arrivals)
        return Generation(
            text=self.text,
            thoughts="".join(self.thoughts),
            finish=finish,
            sent_ns=exchange.sent_ns,
            done_ns=exchange.done_ns,
            arrivals=arrivals,
            prompt_tokens=self.prompt_tokens,
            cached_tokens=self.cached_tokens,
            drafted_tokens=self.drafted_tokens,
            accepted_tokens=self.accepted_tokens,
            completion_tokens=count,
            counted_by=counted_by,
            hidden_tokens=hidden,
            tokens_after_first=after_first if self.choices == 1 else None,
            answers=self.choices,
            token_ids=tuple(self.ids) if self.ids and len(self.ids) == count else None,
            token_ends=self.ends,
            likeliest=self.likeliest if self._request.likeliest else None,
            prompt_eval_ns=self.prompt_eval_ns,
            eval_ns=self.eval_ns,
            server=self.server or exchange.server,
            served_name=self.served_name,
        )

    def _counted(self, tokenized: tuple[int, ...] | None) -> tuple[TokenCounter, int | None, int]:
        """Return the counter, its number of tokens (or None), and the tokens listed one by one.

        Raises OutputNotUnderstood if there are more tokens than counted, or than the limit.
        """
        count = self.completion_tokens if self.has_count else None
        most = self._request.max_tokens
        reported = max(self.listed, len(self.ids))
        if count is not None and reported > count:
            raise OutputNotUnderstood(f"the server counts {count} tokens, but sent {reported}")
        if most is not None and (count or reported) > most * self.choices:
            raise OutputNotUnderstood(
                f"the server generated {count or reported} tokens, the limit was {most}",
                hint=_LIMIT_HINT,
            )
        if count is not None:
            return "usage", count, reported
        if reported or tokenized is None:
            return "stream", None, reported
        return "tokenizer", len(tokenized), reported


def documents(messages: Iterable[Message]) -> list[JsonValue]:
    """Return messages in the form of the chat APIs."""
    return [{"role": message.role, "content": message.content} for message in messages]
