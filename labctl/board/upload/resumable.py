"""Upload of a large file to a board, robust against failures: each byte once, then the final name.

The agent on the board writes ``.part-<sha256>`` and its journal. Both stay if the link, labctl, the
host or the board fails, and the next transfer of the same content continues with them.
"""

import re
import secrets
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from labctl.board.agent import LINK_LOSSES
from labctl.board.upload.client import Busy, ChunkedFile, Counters, send_chunks
from labctl.errors import (
    BoardError,
    BoardNoSpace,
    HostTimeout,
    InfraError,
    LeaseLost,
    ProtocolError,
)
from labctl.files import host_writes
from labctl.folders import state_dir
from labctl.locks import locked
from labctl.progress import BytesDone
from labctl.retry import RETRY_SECONDS, retry_infra, wait_until
from labctl.transport.base import CommandResult, Transport, board_error, remote_words
from labctl.transport.file_transfer import SLOW_BYTES_PER_SECOND
from labctl.units import size

#: Prefix of an incomplete file on the board; its SHA-256 follows.
PARTIAL = ".part-"

#: Meaning of exit statuses of ``agent receive``, see the agent's ``failure.h``.
_NO_SPACE, _STALE, _BUSY, _PUBLISHED = 74, 75, 76, 77
_START_SECONDS = 60.0


@dataclass(frozen=True)
class Destination:
    """The paths of a file on the board: while incomplete, and when complete."""

    partial: str
    target: str
    executable: bool
    #: Options with which the agent checks the sender's epoch.
    fence: tuple[str, ...] = ()


def _ignore(_what: object) -> None:
    """Ignore the argument."""


@dataclass(frozen=True)
class DeliveryOptions:
    """Options of a file's upload.

    ``stall_timeout`` (s) limits each wait for the board; ``retry_timeout`` (s) limits the time
    without new bytes while the link is down or another transfer stalls. ``progress`` gets the
    number of bytes verified on the board. ``on_loss`` gets the reason to reconnect or to wait for
    another transfer. ``pace`` gets the number of bytes to send, and waits if a rate is limited.
    """

    stall_timeout: float = 60.0
    retry_timeout: float = RETRY_SECONDS
    progress: BytesDone = _ignore
    on_loss: Callable[[InfraError], None] = _ignore
    pace: Callable[[int], None] = _ignore
    #: The agent drops a silent peer after this time (s); then another attempt can replace it.
    idle_timeout: int = 30
    #: Time (s) to watch another transfer before an attempt shows if it is still active.
    watch_seconds: float = 5.0
    #: Minimum speed of a slow card: reading, and syncing if data was first written to a large
    #: cache.
    storage_bytes_per_second: float = SLOW_BYTES_PER_SECOND
    #: Files from this size on are sent in chunks. For smaller files hdc's own transfer is faster.
    chunked_bytes: int = 8 << 20


def deliver(
    transport: Transport,
    agent: str,
    source: ChunkedFile,
    destination: Destination,
    options: DeliveryOptions,
) -> bool:
    """Upload and publish a file. Return True if this call published it.

    Raises LinkError if the link stays down, BoardNoSpace, BoardPermission, BoardError,
    IntegrityError, ConfigError (the local file changed).
    """
    return _Delivery(transport, agent, source, destination, options).run()


@dataclass
class _Delivery:
    """One file being sent to one board."""

    transport: Transport
    agent: str
    source: ChunkedFile
    destination: Destination
    options: DeliveryOptions
    counters: Counters = field(default_factory=Counters)
    seen: str | None = None
    seen_at: float = 0.0

    def run(self) -> bool:
        """Upload; retry as long as attempts make progress."""
        ours = None
        while ours is None:
            ours = retry_infra(
                self._attempt,
                on=LINK_LOSSES,
                timeout=self.options.retry_timeout,
                on_retry=self.options.on_loss,
            )
        return ours

    def _attempt(self) -> bool | None:
        """Upload once. Return True if this call published the file, None if it is not complete yet.

        If the link breaks after progress, retry at once with the full ``retry_timeout``.
        """
        best = self.counters.most_bytes
        try:
            return self._bring()
        except Busy as error:
            if self.seen is None:
                self.options.on_loss(error)
            self._await_the_other()
        except LINK_LOSSES as error:
            self.seen_at = time.monotonic()  # the other transfer was not watched meanwhile
            if self.counters.most_bytes == best:
                raise
            self.options.on_loss(error)
        return None

    def _bring(self) -> bool:
        started = self._start()
        if started is None:
            return False
        port, token = started
        with self.transport.connect(port, timeout=self.options.stall_timeout) as stream:
            return send_chunks(
                stream,
                token,
                self.source,
                self.counters,
                finish_timeout=_START_SECONDS + self._storage_seconds,
                progress=self.options.progress,
                pace=self.options.pace,
            )

    def _start(self) -> tuple[int, str] | None:
        """Return the port on which the agent listens on the board, and its token.

        None if the file is already there.
        """
        words = (
            *(self.agent, "receive", "--file", self.destination.partial),
            *("--target", self.destination.target),
            *("--size", str(self.source.size_bytes), "--chunk", str(self.source.chunk_bytes)),
            *("--executable", str(int(self.destination.executable))),
            *("--idle", str(self.options.idle_timeout)),
            *self.destination.fence,
        )
        result = self.transport.run(remote_words(*words), timeout=_START_SECONDS)
        if result.exit_status == _PUBLISHED:
            return None
        if result.exit_status == _BUSY:
            raise Busy.of(self.transport.label, self.source)
        if result.exit_status != 0:
            raise self._refused(result)
        from labctl.config.printed import read_json  # slow: imports pydantic

        try:
            answer = read_json(result.output)
            return int(answer["port"]), str(answer["token"])
        except (ValueError, KeyError, TypeError) as error:
            raise ProtocolError(
                f"{self.transport.label}: the agent does not report its port",
                details=result.text[-2000:] or None,
            ) from error

    def _refused(self, result: CommandResult) -> BoardError:
        what = f"{self.transport.label}: the board cannot take {self.source.path.name}"
        from labctl.config.printed import read_json  # slow: imports pydantic

        try:
            answer = read_json(result.output)
            reason, missing = str(answer["message"]), answer.get("missing_bytes")
        except (ValueError, KeyError, TypeError, AttributeError):
            return board_error(result.text, what)  # the shell's message, not the agent's
        if result.exit_status == _STALE:
            return LeaseLost(f"{what}: {reason}")
        if result.exit_status != _NO_SPACE:
            return board_error(reason, what)
        lacks = f": free space missing: {size(missing)}" if isinstance(missing, int) else ""
        return BoardNoSpace(
            f"{what}, {size(self.source.size_bytes)}{lacks or f': {reason}'}",
            hint="free space on the board: labctl store prune",
        )

    def _await_the_other(self) -> None:
        """Wait for another transfer of the same file, so that its bytes are not sent twice.

        The other transfer may also have given up; only another attempt can show that. Raises
        BoardError if there is no progress for longer than a peer may be silent while it reads its
        partial file again.
        """
        options = self.options
        retry_timeout = options.retry_timeout + options.idle_timeout + self._storage_seconds
        status = self._partial_status()
        if status != self.seen:
            self.seen, self.seen_at = status, time.monotonic()
        elif time.monotonic() - self.seen_at > retry_timeout:
            raise BoardError(
                f"{self.transport.label}: another transfer of {self.source.path.name} holds the"
                f" board and makes no progress",
                hint="another controller may be stuck; stop it, or wait until it gives up",
            )
        wait_until(lambda: not self._partial_status(), timeout=options.watch_seconds, interval=1.0)

    @property
    def _storage_seconds(self) -> float:
        """Time (s) for a slow card to read the whole file, or to sync it."""
        return self.source.size_bytes / self.options.storage_bytes_per_second

    def _partial_status(self) -> str:
        """Return the length of the other transfer's journal; empty once the file is complete."""
        journal = remote_words(f"{self.destination.partial}.journal")
        words = f"{{ wc -c <{journal}; }} 2>/dev/null; :"
        return self.transport.run(words, timeout=_START_SECONDS).text.strip()


#: Prefix of a running transfer's file on the board; its token follows.
PREFIX = ".push-"

_FOLDER = "pushes"
_TOKEN = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True)
class Push:
    """A running transfer. Its token marks it as this host's, even if dead, until removed."""

    token: str
    lock: Path

    def forget(self) -> None:
        """Record that the board has no leftover with its token."""
        self.lock.unlink(missing_ok=True)


@contextmanager
def pushing() -> Iterator[Push]:
    """Register a new transfer, alive while the context is open. Raises HostError."""
    token = secrets.token_hex(16)
    push = Push(token, state_dir() / _FOLDER / token)
    with locked(push.lock, timeout=1):
        yield push
        push.forget()


@contextmanager
def abandoned(tokens: Iterable[str]) -> Iterator[list[str]]:
    """Yield the tokens of this host whose transfer is dead.

    The tokens are removed after the context if it ends without an error. Raises HostError.
    """
    dead = []
    with ExitStack() as held:
        for token in tokens:
            path = state_dir() / _FOLDER / token
            if not _TOKEN.fullmatch(token) or not path.exists():
                continue
            with suppress(HostTimeout):
                held.enter_context(locked(path, timeout=0))
                dead.append(token)
        yield dead
        for token in dead:
            with host_writes(state_dir() / _FOLDER / token):
                (state_dir() / _FOLDER / token).unlink(missing_ok=True)
