"""Start a server, wait until it is ready, ask it, and stop it, on any machine."""

import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

from labctl.engines.base import EngineParameters, Inputs, Listen, RawOutput, Tool
from labctl.engines.server import Answer, Endpoint, Question, ServerEngine, ServerIdentity
from labctl.errors import LabctlError, ProgramFailed, ProgramTimeout
from labctl.http import Unreachable
from labctl.records.trial import JobStatus
from labctl.retry import wait_until

_SHOWN_BYTES = 2000
#: Time (s) between two checks of a starting server.
_LOOK_SECONDS = 0.05
#: Time-out (s) of one check: a server may not answer at all while it loads.
_LOOK_SILENCE_SECONDS = 5.0
#: Time (s) to wait for a server's end after its connection broke.
_END_SECONDS = 2.0
_IDENTITY_SECONDS = 30.0

T = TypeVar("T")


class RunningServer(Protocol):
    """A started server program."""

    @property
    def address(self) -> str:
        """Address for this host, ``http://HOST:PORT``."""

    def end(self) -> JobStatus | None:
        """Return how it ended; None while it runs."""

    def output(self) -> RawOutput:
        """Return its output so far."""

    def stop(self) -> None:
        """End it and all its children. Does nothing if it has ended."""


class ServerHost(Protocol):
    """A machine where servers run."""

    def free_port(self) -> int:
        """Return a free port of its loopback."""

    def start(self, argv: Sequence[str], port: int) -> RunningServer:
        """Start a server that listens on ``port``."""


@dataclass(frozen=True)
class Server:
    """A server that was ready; it may have ended since."""

    engine: ServerEngine[Any]
    tool: Tool
    running: RunningServer
    name: str

    def ask(self, question: Question, *, timeout: float) -> Answer:
        """Ask one question; it may take ``timeout`` seconds.

        Raises ProgramTimeout, or OutputNotUnderstood. If the server has ended or refuses, raises
        ProgramFailed, or the engine's error for its last output.
        """
        return self._asked(lambda endpoint: self.engine.ask(endpoint, question), timeout)

    def identify(self) -> ServerIdentity:
        """Return the identity that it reports. Raises as :meth:`ask` does."""
        return self._asked(self.engine.identify, _IDENTITY_SECONDS)

    def check(self) -> None:
        """Raise an error if it has ended.

        Raises as :meth:`ask` does, and the errors of ``running.end``: a board's InfraError.
        """
        if self._has_ended():
            raise self._death("while it served")

    def _asked(self, what: Callable[[Endpoint], T], timeout: float) -> T:
        try:
            return what(self._endpoint(timeout))
        except Unreachable as error:
            if wait_until(self._has_ended, timeout=_END_SECONDS, interval=_LOOK_SECONDS):
                raise self._death("while it was asked") from error
            if error.timed_out:
                raise self._late(f"did not answer within {timeout:g} s") from error
            raise ProgramFailed(
                f"{self.tool.name} ended its answer early: {error.reason}", details=self._tail()
            ) from error

    def _endpoint(self, silence_s: float) -> Endpoint:
        return Endpoint(self.running.address, self.name, silence_s)

    def _has_ended(self) -> bool:
        return self.running.end() is not None

    def _wait(self, timeout: float) -> None:
        endpoint = self._endpoint(min(timeout, _LOOK_SILENCE_SECONDS))

        def is_ready() -> bool:
            if self._has_ended():
                raise self._death("before it was ready")
            try:
                return self.engine.is_ready(endpoint)
            except Unreachable:
                return False

        if not wait_until(is_ready, timeout=timeout, interval=_LOOK_SECONDS):
            raise self._late(f"was not ready within {timeout:g} s")

    def _late(self, what: str) -> ProgramTimeout:
        return ProgramTimeout(
            f"{self.tool.name} {what}",
            hint="give it more time, or a smaller model",
            details=self._tail(),
        )

    def _death(self, when: str) -> LabctlError:
        end = self.running.end()
        assert end is not None
        known = self.engine.diagnose(end, self.running.output())
        return known or ProgramFailed(
            f"{self.tool.name} ended by itself {when}, with status {end.exit_status}",
            details=self._tail(),
        )

    def _tail(self) -> str | None:
        raw = self.running.output()
        shown = raw.stdout[-_SHOWN_BYTES:] + b"\n" + raw.stderr[-_SHOWN_BYTES:]
        return shown.decode(errors="replace").strip() or None


@contextmanager
def serve(
    engine: ServerEngine[Any],
    tool: Tool,
    parameters: EngineParameters,
    inputs: Inputs,
    *,
    host: ServerHost,
    ready_within: float,
) -> Iterator[Server]:
    """Serve during the block: yield the server when it is ready, and stop it at the end.

    ``ready_within``: maximum time (s) for loading. Raises ProgramTimeout if loading takes longer;
    ProgramFailed, or the engine's error for its last output, if the server ends before; ConfigError
    for an impossible command.
    """
    listen = Listen(host.free_port(), f"labctl-{secrets.token_hex(8)}")
    argv = engine.command(tool, parameters, replace(inputs, listen=listen))
    running = host.start(argv, listen.port)
    try:
        server = Server(engine, tool, running, listen.name)
        server._wait(ready_within)
        yield server
    finally:
        running.stop()
