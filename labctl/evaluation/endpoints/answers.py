"""Collect the pieces of an answer, and check it as every client must."""

from collections.abc import Iterable, Mapping
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError

from labctl.errors import OutputNotUnderstood
from labctl.evaluation.endpoints.base import Generation, GenerationRequest, Message
from labctl.evaluation.endpoints.connection import Exchange
from labctl.evaluation.endpoints.errors import TryAgain
from labctl.records import FinishReason, TokenCounter

M = TypeVar("M", bound=BaseModel)

_FINISHED: Mapping[str, FinishReason] = {
    # OpenAI
    "stop": "stop",
    "length": "length",
    # TGI
    "eos_token": "stop",
    "stop_sequence": "stop",
    # llama-server
    "eos": "stop",
    "word": "stop",
    "limit": "length",
}
#: The server gave the answer up: LMDeploy, SGLang, MLC LLM.
_GIVEN_UP = ("error", "abort", "preempt")
_SHOWN = 200
_LIMIT_HINT = "it does not keep max_tokens: budgets cannot be measured with it"
#: A server may send a token in several pieces: limits for their number.
_PIECES_A_TOKEN, _MORE_PIECES = 4, 64


class ServerMessage(BaseModel):
    """Fields that are read from a server's JSON; other fields are ignored."""

    model_config = ConfigDict(extra="ignore", strict=True, defer_build=True)


def read(model: type[M], data: bytes) -> M:
    """Read an event or a body. Raises OutputNotUnderstood."""
    try:
        return model.model_validate_json(data)
    except ValidationError as error:
        problem = error.errors()[0]
        place = ".".join(map(str, problem["loc"])) or "JSON"
        raise OutputNotUnderstood(
            f"the server's answer: {place}: {problem['msg']}",
            hint="does it speak the api that the recipe names?",
            details=data[:_SHOWN].decode(errors="replace"),
        ) from error


class LikelyToken(ServerMessage):
    """One of the tokens that a model might begin with."""

    token: str
    logprob: float


class AnswerBuilder:
    """Text, time stamps and counts of one answer to a request."""

    def __init__(self, request: GenerationRequest) -> None:
        self._request = request
        self.pieces: list[str] = []
        self.arrivals: list[int] = []
        self.length = 0
        self.finish: str | None = None
        self.prompt_tokens: int | None = None
        self.cached_tokens: int | None = None
        self.completion_tokens: int | None = None
        self.prompt_eval_ns: int | None = None
        self.eval_ns: int | None = None
        self.server: str | None = None
        self.served_name: str | None = None
        self.ids: list[int] = []
        #: Number of tokens that the server reported one by one; 0: none.
        self.reported_tokens = 0
        #: None: not known.
        self.ends: tuple[int, ...] | None = None
        #: The likeliest first tokens; None: not reported.
        self.likeliest: tuple[tuple[str, float], ...] | None = None

    def add(self, stamp_ns: int, piece: str | None) -> None:
        """Add a piece of text. Raises OutputNotUnderstood for more pieces than the limit allows."""
        if piece:
            most = self._request.max_tokens
            if most is not None and len(self.arrivals) >= _PIECES_A_TOKEN * most + _MORE_PIECES:
                raise OutputNotUnderstood(
                    f"the server sent {len(self.arrivals)} pieces, the limit was {most} tokens",
                    hint=_LIMIT_HINT,
                )
            self.pieces.append(piece)
            self.arrivals.append(stamp_ns)
            self.length += len(piece)

    @property
    def text(self) -> str:
        """All text so far."""
        return "".join(self.pieces)

    def generation(
        self, exchange: Exchange, *, tokenized: tuple[int, ...] | None = None
    ) -> Generation:
        """Return the finished answer, counted by the server's reports or by its tokenizer.

        Raises TryAgain for an incomplete answer, OutputNotUnderstood if the answer contradicts
        itself or the limit.
        """
        if self.finish is None:
            raise TryAgain("the answer ended before it was complete")
        if self.finish in _GIVEN_UP:
            raise TryAgain(f"the server gave up the answer: {self.finish}")
        if self._request.likeliest and self.likeliest is None:
            raise OutputNotUnderstood("the server does not report the probabilities of tokens")
        count, most = self.completion_tokens, self._request.max_tokens
        reported = max(self.reported_tokens, len(self.ids))
        if count is not None and reported > count:
            raise OutputNotUnderstood(f"the server counts {count} tokens, but sent {reported}")
        if count == 0 and self.arrivals:  # it would fit every budget
            raise OutputNotUnderstood("the server counts 0 tokens, but sent text")
        if most is not None and (count or reported) > most:
            raise OutputNotUnderstood(
                f"the server generated {count or reported} tokens, the limit was {most}",
                hint=_LIMIT_HINT,
            )
        counted_by: TokenCounter = "usage"
        if count is None:
            counted_by = "stream" if reported or tokenized is None else "tokenizer"
            count = reported or len(self.arrivals if tokenized is None else tokenized)
        return Generation(
            text=self.text,
            finish=_FINISHED.get(self.finish, "unknown"),
            sent_ns=exchange.sent_ns,
            done_ns=exchange.done_ns,
            arrivals=tuple(self.arrivals),
            prompt_tokens=self.prompt_tokens,
            cached_tokens=self.cached_tokens,
            completion_tokens=count,
            counted_by=counted_by,
            token_ids=tuple(self.ids) if self.ids and len(self.ids) == count else None,
            token_ends=self.ends,
            likeliest=self.likeliest,
            prompt_eval_ns=self.prompt_eval_ns,
            eval_ns=self.eval_ns,
            server=self.server or exchange.server,
            served_name=self.served_name,
        )


def documents(messages: Iterable[Message]) -> list[JsonValue]:
    """Return messages in the form of the chat APIs."""
    return [{"role": message.role, "content": message.content} for message in messages]
