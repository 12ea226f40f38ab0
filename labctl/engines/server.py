"""Contract of an engine that is a server: started, ready, asked many times, stopped.

The engine itself neither starts nor waits: :mod:`labctl.engines.server_lifecycle` does.
"""

import json
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

from labctl import http
from labctl.config.printed import read_json
from labctl.engines.base import EngineBase, P
from labctl.errors import OutputNotUnderstood
from labctl.records.timing import StopReason

_SHOWN_BYTES = 2000
#: Maximum size of one answer.
_MOST_BYTES = 64 << 20


@dataclass(frozen=True)
class Question:
    """A text to continue, byte for byte, without a chat template.

    ``temperature`` 0 always chooses the most likely token.
    """

    prompt: str
    most_tokens: int
    seed: int = 1
    temperature: float = 0.0


@dataclass(frozen=True)
class Answer:
    """Answer of the server to a question; times by its own clock, None if not reported."""

    text: str
    generated_tokens: int
    prompt_tokens: int | None
    stop_reason: StopReason
    prompt_eval_ns: int | None = None
    eval_ns: int | None = None
    #: Tokens that a draft guessed, and those of them that were right.
    drafted_tokens: int | None = None
    accepted_tokens: int | None = None


@dataclass(frozen=True)
class Reply:
    """Reply of a server to one request."""

    status: int
    body: bytes

    def json(self) -> Any:
        """Return the body as JSON. Raises OutputNotUnderstood."""
        try:
            return read_json(self.body)
        except ValueError as error:
            raise OutputNotUnderstood(
                "the server's answer is not JSON", details=self.shown
            ) from error

    @property
    def shown(self) -> str | None:
        """The beginning of the body, for messages."""
        return self.body[:_SHOWN_BYTES].decode(errors="replace") or None


@dataclass(frozen=True)
class Endpoint:
    """A started server, with its address for this host.

    ``address``: ``http://HOST:PORT``. ``name``: the server's name. ``silence_s``: maximum time in s
    without data.
    """

    address: str
    name: str
    silence_s: float

    def get(self, path: str) -> Reply:
        """Get a path. Raises :class:`labctl.http.Unreachable`."""
        return self._request("GET", path)

    def post(self, path: str, document: object) -> Reply:
        """Send JSON to a path. Raises :class:`labctl.http.Unreachable`."""
        return self._request("POST", path, json.dumps(document).encode())

    def _request(self, method: str, path: str, content: bytes | None = None) -> Reply:
        with http.request(
            method,
            self.address + path,
            headers={"Content-Type": "application/json"} if content else None,
            content=content,
            connect_s=min(self.silence_s, http.CONNECT_SECONDS),
            silence_s=self.silence_s,
            follow=False,
            direct=True,
        ) as answer:
            body = http.read_body(answer, within_s=self.silence_s, most_bytes=_MOST_BYTES)
            return Reply(answer.status_code, body)


@dataclass(frozen=True)
class ServerIdentity:
    """Program with version, and the model's chat template, as the server reports them."""

    version: str | None = None
    template: str | None = None


class ServerEngine(EngineBase[P]):
    """A program that keeps running; its ``command`` listens at ``inputs.listen``."""

    @abstractmethod
    def is_ready(self, server: Endpoint) -> bool:
        """Check once if it answers questions.

        Raises :class:`labctl.http.Unreachable` while nothing listens, and OutputNotUnderstood if
        the answer cannot come from the started server.
        """

    def identify(self, server: Endpoint) -> ServerIdentity:  # noqa: ARG002 - for subclasses
        """Return the identity that a ready server reports.

        Raises :class:`labctl.http.Unreachable`, OutputNotUnderstood.
        """
        return ServerIdentity()

    @abstractmethod
    def ask(self, server: Endpoint, question: Question) -> Answer:
        """Ask one question.

        Raises :class:`labctl.http.Unreachable`, ProgramFailed if the server refuses, and
        OutputNotUnderstood.
        """
