"""Answers of a scripted endpoint: tokens, pace, failures and lies, one token after another."""

import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

EOS = 2  # the id of the token that ends an answer; it has no text


@dataclass(frozen=True)
class Answer:
    """One answer, as the server is to give it.

    ``tokens``: a text, which is split as ``tokenize`` does, or its tokens; bytes where a token
    ends inside a code point. An end token follows them, and counts.
    """

    tokens: str | Sequence[str | bytes] = ()
    #: Seconds to the first token, and from each to the next, as a schedule: no delay adds up.
    first_s: float = 0.0
    token_s: float = 0.0
    #: An HTTP status in place of an answer, with the headers (``Retry-After``).
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    #: What the error says; the whole body where ``body`` is set.
    message: str = "scripted failure"
    body: bytes | None = None
    #: A whole stream as some server sends it: seconds after the request, and an event or its bytes.
    stream: Sequence[tuple[float, Any]] = ()
    #: The connection is reset after so many tokens, or the stream ends there without a last event.
    reset_after: int | None = None
    end_after: int | None = None
    #: An error comes in the stream after so many tokens.
    error_after: int | None = None
    #: Tokens without end, whatever limit was asked for.
    flood: bool = False
    #: Nothing comes, for ever.
    hang: bool = False
    #: Lies.
    usage: int | None = None
    finish: str | None = None
    #: Log-probabilities of the likeliest first tokens; the server tells as many as are asked for.
    top: Mapping[str, float] = field(default_factory=dict)
    #: Nothing is told of: usage, tokens.
    no_usage: bool = False
    no_tokens: bool = False


class Asked(str):
    """The text that was asked: of a chat, its last message.

    ``attempt``: how often this text came, from 1; ``at_once``: requests under way, with this one.
    """

    body: dict[str, Any]
    path: str
    attempt: int
    at_once: int


Script = Callable[[Asked], Answer | str | Sequence[str | bytes]]


def tokenize(text: str) -> list[str]:
    """Split a text into words with the space before them, and single spaces and lines."""
    return re.findall(r" ?[^\s]+|\s", text)


def token_id(token: str | bytes) -> int:
    """The same token has the same id in every process."""
    content = token.encode() if isinstance(token, str) else token
    return 3 + zlib.crc32(content) % 100_000


@dataclass(frozen=True)
class Step:
    """One token: its bytes, and the text that is sent with it.

    ``text`` None: nothing can be sent, since it ends inside a code point.
    """

    id: int
    content: bytes
    text: str | None
    finish: str | None = None
    top: Mapping[str, float] = field(default_factory=dict)

    def likeliest(self, most: int) -> list[tuple[str, float]]:
        """The likeliest tokens here, as many as asked for."""
        return sorted(self.top.items(), key=lambda pair: -pair[1])[:most]


def steps(answer: Answer, limit: int | None, stops: Sequence[str]) -> Iterator[Step]:
    """Generate as servers do: hold back the beginning of a stop word, end at it or at the limit.

    What is held back at the limit is lost, as in a stream of llama-server.
    """
    told = tokenize(answer.tokens) if isinstance(answer.tokens, str) else list(answer.tokens)
    raw: list[bytes] = [token.encode() if isinstance(token, str) else token for token in told]
    made, sent, count = b"", 0, 0
    while True:
        if answer.flood:
            yield Step(token_id(b" more"), b" more", " more")
            continue
        last = count >= len(raw)
        content = b"" if last else raw[count]
        count += 1
        made += content
        finish = "stop" if last else "length" if count == limit else None
        text: str | None
        try:
            whole = made.decode()
        except UnicodeDecodeError:
            text = None
        else:
            found = [at for stop in stops if stop and (at := whole.find(stop, sent)) >= 0]
            if found:
                finish, text = "stop", whole[sent : min(found)]
            elif not last and any(_begins(whole[sent:], stop) for stop in stops):
                text = ""
            else:
                text = whole[sent:]
            sent += len(text)
        top = answer.top if count == 1 else {}
        yield Step(EOS if last else token_id(content), content, text, finish, top)
        if finish:
            return


def _begins(text: str, stop: str) -> bool:
    return any(text.endswith(stop[:length]) for length in range(1, len(stop)))
