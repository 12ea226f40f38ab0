"""Servers on a board that is held, for :mod:`labctl.engines.server_lifecycle`.

A server is a job of the agent: it outlives the link, and ends at its time limit, or when another
controller takes the board. Requests go through a port of this host, which outlives the link too.
"""

import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from labctl.board.agent import LINK_LOSSES, BoardAgent
from labctl.board.job import STDERR, STDOUT, JobSpec, Started
from labctl.engines.base import RawOutput
from labctl.errors import (
    BoardError,
    BoardRebooted,
    CommandTimeout,
    DeviceLost,
    InfraError,
    LabctlError,
    LinkError,
    LinkRefused,
    ProgramFailed,
)
from labctl.files import host_writes
from labctl.records.trial import JobStatus
from labctl.retry import RETRY_SECONDS, retry_infra
from labctl.runs.board.deploy_preview import SIGN_SECONDS
from labctl.runs.board.session import BoardSession
from labctl.transport.base import remote_words
from labctl.transport.port_forwarding import forwarded_port

#: Prefix of the names of server jobs.
_PREFIX = "serve-"
#: Below the ports that kernels give to connections (32768), above the ports of services.
_FIRST_PORT, _PORTS = 20_000, 12_000
_PORT_ATTEMPTS = 20
_ANSWER_SECONDS = 20.0
#: A port without a listener refuses within this time.
_PORT_SECONDS = 1.0
#: Interval of looks at the job: each look costs the board a process.
_LOOK_SECONDS = 1.0
#: Large, because a server logs every request.
_MOST_OUTPUT_BYTES = 1 << 30
_SAMPLE_MS = 10_000
#: Bytes of a running server's output for error messages.
_TAIL_BYTES = 64 << 10

T = TypeVar("T")


@dataclass(frozen=True)
class BoardServers:
    """Starts servers on a held board, under its lease; their output is kept in ``folder``.

    ``seconds`` is the maximum run time of a server: the agent ends it then, also if its controller
    died. ``on_link_loss`` gets each loss that is retried, ``note`` lines for people.
    """

    held: BoardSession
    folder: Path
    seconds: float
    on_link_loss: Callable[[InfraError], None] = lambda _error: None
    note: Callable[[str], None] = lambda _text: None

    def clear(self) -> None:
        """End the servers that dead controllers left on the board, and remove their files.

        No other servers can run there: the board is ours. Raises LinkError, BoardError.
        """
        jobs = self.held.agent.job_directory(_PREFIX).removesuffix(_PREFIX)
        look = f"cd {remote_words(jobs)} 2>/dev/null || exit 0; ls"
        listed = self.held.transport.run(look, timeout=_ANSWER_SECONDS).text.split()
        for name in (name for name in listed if name.startswith(_PREFIX)):
            _end(self.held.agent, f"{jobs}{name}")

    def free_port(self) -> int:
        """Return a port of the board without a listener. Raises LinkError, BoardError."""
        for _ in range(_PORT_ATTEMPTS):
            port = _FIRST_PORT + secrets.randbelow(_PORTS)
            if not self._is_taken(port):
                return port
        raise BoardError(f"{self.held.transport.label}: no free port is found on the board")

    def _is_taken(self, port: int) -> bool:
        try:
            with self.held.transport.connect(port, timeout=_ANSWER_SECONDS) as stream:
                stream.timeout = _PORT_SECONDS
                return stream.receive(1) != b""
        except CommandTimeout:
            return True  # it waits for a request
        except (LinkRefused, DeviceLost):  # an hdc server accepts before it knows the result
            return False

    def start(self, argv: Sequence[str], port: int) -> "BoardServer":
        """Start a server. Raises LeaseLost, and as :meth:`labctl.board.agent.BoardAgent.start`."""
        held = self.held
        held.claim.check()
        spec = JobSpec(
            directory=held.agent.job_directory(f"{_PREFIX}{secrets.token_hex(8)}"),
            argv=tuple(argv),
            timeout_s=self.seconds,
            epoch=held.claim.epoch,
            lease_path=held.claim.leases.path,
            sample_ms=_SAMPLE_MS,
            max_output_bytes=_MOST_OUTPUT_BYTES,
        )
        with ExitStack() as ending:
            ending.callback(_end_if_reached, held.agent, spec.directory)
            started = held.agent.start(spec, on_link_loss=self.on_link_loss)
            here = ending.enter_context(forwarded_port(held.transport, port))
            server = BoardServer(self, started, here)
            ending.enter_context(server.signs_of_life())
            server.ending = ending.pop_all()
        return server


@dataclass
class BoardServer:
    """A server on a board, with the port of this host that leads to it."""

    host: BoardServers
    started: Started
    port: int
    ending: ExitStack = field(default_factory=ExitStack)
    _end: JobStatus | None = None
    _seen: float = 0.0
    _lost: LabctlError | None = None

    @property
    def address(self) -> str:
        """Its address on this host; it stays the same when the link is lost and reopened."""
        return f"http://127.0.0.1:{self.port}"

    def end(self) -> JobStatus | None:
        """Return its end; None while it runs, by a look in the last second.

        Raises LinkError if the link stays lost, BoardRebooted, LeaseLost, BoardError.
        """
        if self._lost is not None:
            raise self._lost.again()
        if self._end is None and time.monotonic() >= self._seen + _LOOK_SECONDS:
            agent = self.host.held.agent
            look = self._again(lambda: agent.poll(self.started.directory))
            self._end, self._seen = agent.end_of(self.started, look), time.monotonic()
        return self._end

    def output(self) -> RawOutput:
        """Return the end of its output so far; empty while the link is lost."""
        with suppress(InfraError):
            return RawOutput(self._tail(STDOUT), self._tail(STDERR), b"")
        return RawOutput(b"", b"", b"")

    def stop(self) -> None:
        """End it, keep its output in the folder, and remove it from the board.

        Without a link its time limit ends it, or the next user of the board. Reports output that
        cannot be fetched.
        """
        agent, directory = self.host.held.agent, self.started.directory
        with self.ending:
            try:
                status = agent.stop(directory).status
                folder = self.host.folder
                with host_writes(folder):
                    folder.mkdir(parents=True, exist_ok=True)
                agent.collect(
                    directory,
                    folder,
                    status=status,
                    max_output_bytes=_MOST_OUTPUT_BYTES,
                    reattach_s=_ANSWER_SECONDS,
                )
            except (InfraError, ProgramFailed) as error:
                self.host.note(f"the output of a server is not kept: {error.message}")

    @contextmanager
    def signs_of_life(self) -> Iterator[None]:
        """Give signs of life of its controller on the board while it serves."""
        over = threading.Event()

        def sign() -> None:
            while not over.wait(SIGN_SECONDS):
                try:
                    self.host.held.claim.check()
                except LinkError:
                    continue  # requests notice that, too
                except InfraError as error:
                    self._lost = error
                    return

        signing = threading.Thread(target=sign, daemon=True)
        signing.start()
        try:
            yield
        finally:
            over.set()
            signing.join()

    def _tail(self, name: str) -> bytes:
        words = remote_words("tail", "-c", str(_TAIL_BYTES), f"{self.started.directory}/{name}")
        return self.host.held.transport.run(words, timeout=_ANSWER_SECONDS).check().output

    def _again(self, step: Callable[[], T]) -> T:
        return retry_infra(
            step, on=LINK_LOSSES, timeout=RETRY_SECONDS, on_retry=self.host.on_link_loss
        )


def _end_if_reached(agent: BoardAgent, directory: str) -> None:
    with suppress(InfraError):  # its time limit ends it, or the next user of the board
        _end(agent, directory)


def _end(agent: BoardAgent, directory: str) -> None:
    """End a job, and remove its files."""
    with suppress(BoardRebooted):  # after a restart the job is gone, but its files remain
        agent.stop(directory)
    agent.remove(directory)
