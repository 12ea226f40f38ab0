"""A large file to a board, whatever happens on the way: each byte once, its name at the end.

The agent on the board writes ``.part-<sha256>`` and its journal; both stay when the link, labctl,
the host or the board go down, and the next transfer of the same content continues with them.
"""

import json
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
from labctl.files import host_writes, locked, state_dir
from labctl.progress import BytesDone
from labctl.retry import RETRY_SECONDS, retry_infra, wait_until
from labctl.transport import CommandResult, Transport, board_error, remote_words
from labctl.transport.file_transfer import SLOW_BYTES_PER_SECOND
from labctl.units import size

#: On the board, a file that is not whole yet is this and its SHA-256.
PARTIAL = ".part-"

#: What the end of an ``agent receive`` means, see ``failure.h`` of the agent.
_NO_SPACE, _STALE, _BUSY, _PUBLISHED = 74, 75, 76, 77
_START_SECONDS = 60.0


@dataclass(frozen=True)
class Destination:
    """The paths of a file on the board: until it is whole, and then."""

    partial: str
    target: str
    executable: bool
    #: Options by which the agent checks the epoch of who sends.
    fence: tuple[str, ...] = ()


def _ignore(_what: object) -> None:
    """Nobody wants to know."""


@dataclass(frozen=True)
class DeliveryOptions:
    """Options of a file's upload.

    ``stall_timeout`` (s) bounds each wait for the board; ``retry_timeout`` (s) how long the link
    may be gone, or another transfer stand still, without one new byte. ``progress`` gets the bytes
    that are proven on the board, ``on_loss`` why the link has to be taken up again, or another
    transfer waited for; ``pace`` gets the bytes as they are sent, and waits where a rate is
    limited.
    """

    stall_timeout: float = 60.0
    retry_timeout: float = RETRY_SECONDS
    progress: BytesDone = _ignore
    on_loss: Callable[[InfraError], None] = _ignore
    pace: Callable[[int], None] = _ignore
    #: The agent gives up a silent peer after these seconds; then another attempt can take its
    #: place.
    idle_timeout: int = 30
    #: How long (s) another transfer is watched before it is tried whether it still goes on.
    watch_seconds: float = 5.0
    #: What a slow card reads, and syncs where it was written behind a large cache.
    storage_bytes_per_second: float = SLOW_BYTES_PER_SECOND
    #: From this size on files come in chunks. Below, a transfer of hdc's own is quicker.
    chunked_bytes: int = 8 << 20


def deliver(
    transport: Transport,
    agent: str,
    source: ChunkedFile,
    destination: Destination,
    options: DeliveryOptions,
) -> bool:
    """Bring a file until it has its name on the board; whether it was our hand that gave it.

    Raises LinkError when the link stays away, BoardNoSpace, BoardPermission, BoardError,
    IntegrityError, ConfigError (the local file changed).
    """
    return _Delivery(transport, agent, source, destination, options).run()


@dataclass
class _Delivery:
    """One file on its way to one board."""

    transport: Transport
    agent: str
    source: ChunkedFile
    destination: Destination
    options: DeliveryOptions
    counters: Counters = field(default_factory=Counters)
    seen: str | None = None
    seen_at: float = 0.0

    def run(self) -> bool:
        """Attempt after attempt, as long as they bring something."""
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

        A link that broke after it brought something is taken up again at once, with all patience.
        """
        best = self.counters.most_bytes
        try:
            return self._bring()
        except Busy as error:
            if self.seen is None:
                self.options.on_loss(error)
            self._await_the_other()
        except LINK_LOSSES as error:
            self.seen_at = time.monotonic()  # the other one was not watched meanwhile
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

        None when the file is there already.
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
        try:
            answer = json.loads(result.output)
            return int(answer["port"]), str(answer["token"])
        except (ValueError, KeyError, TypeError) as error:
            raise ProtocolError(
                f"{self.transport.label}: the agent does not report its port",
                details=result.text[-2000:] or None,
            ) from error

    def _refused(self, result: CommandResult) -> BoardError:
        what = f"{self.transport.label}: the board cannot take {self.source.path.name}"
        try:
            answer = json.loads(result.output)
            reason, missing = str(answer["message"]), answer.get("missing_bytes")
        except (ValueError, KeyError, TypeError, AttributeError):
            return board_error(result.text, what)  # not the agent's words: the shell's
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
        """Wait a while for who brings the same file; what they bring need not cross twice.

        They may also have given up, which only another attempt can tell. Raises BoardError when
        there is no progress for longer than a peer may be silent while it reads its partial file
        again.
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
        """Time in s that a slow card takes to read the whole file, or to sync it."""
        return self.source.size_bytes / self.options.storage_bytes_per_second

    def _partial_status(self) -> str:
        """Describe how much the other's journal names; empty once the file is complete."""
        journal = remote_words(f"{self.destination.partial}.journal")
        words = f"{{ wc -c <{journal}; }} 2>/dev/null; :"
        return self.transport.run(words, timeout=_START_SECONDS).text.strip()


#: On the board, a transfer under way is this and its token.
PREFIX = ".push-"

_FOLDER = "pushes"
_TOKEN = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True)
class Push:
    """A transfer under way. Until it is forgotten, its token says: this host's, maybe dead."""

    token: str
    lock: Path

    def forget(self) -> None:
        """Nothing of it is left on the board under its token."""
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
    """Those tokens that were given by this host and whose transfer is dead.

    They are forgotten after the context, if it ends without an error. Raises HostError.
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
