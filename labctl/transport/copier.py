"""Single files over a link, and their proof: what every transport does alike."""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from labctl.errors import BoardError, DeviceLost, IntegrityError, LinkError
from labctl.progress import BytesDone
from labctl.retry import retry_infra
from labctl.transport.base import Transport
from labctl.transport.digests import BoardHash, Digest, find_board_hash, running_total
from labctl.transport.local_files import appearing, new_file
from labctl.transport.paths import check_remote_path

#: Takes the size of each piece that goes over.
Take = Callable[[bytes | memoryview], object]

_LOG = logging.getLogger("labctl.transport")


class Copier(ABC):
    """Moves files over whatever link is there; ``timeout`` (s) bounds each wait for progress.

    A transport gives :meth:`transmit` and :meth:`collect`. All raise LinkError, BoardError,
    HostError; ConfigError for what cannot be read here.
    """

    def __init__(self, transport: Transport, timeout: float):
        if transport.board_hash is None:
            transport.board_hash = find_board_hash(transport, timeout)
        self.transport = transport
        self.timeout = timeout
        self.board_hash: BoardHash = transport.board_hash

    @abstractmethod
    def transmit(self, local: Path, remote: str, sent: Take) -> None:
        """Write a local file to the board; ``sent`` takes each piece that went over."""

    @abstractmethod
    def collect(self, remote: str, came: Take) -> None:
        """Read a file of the board; ``came`` takes each piece."""

    def push(self, local: Path, remote: str, progress: BytesDone | None) -> None:
        """Send a file and prove it; see :meth:`Transport.push`."""
        check_remote_path(remote)
        digest = self.send(local, remote, running_total(progress))
        self.on_board(remote, digest).require(digest, f"{local} pushed to {remote}")

    def pull(self, remote: str, local: Path, progress: BytesDone | None) -> None:
        """Receive a file and prove it; see :meth:`Transport.pull`."""
        check_remote_path(remote)
        with appearing(local) as file:
            digest = self.fetch(remote, file.write, running_total(progress))
            self.on_board(remote, digest).require(digest, f"{remote} pulled to {local}")

    def send(self, local: Path, remote: str, seen: BytesDone) -> Digest:
        """Send a file; what was sent, hashed."""
        digest = self.board_hash.digest()
        with named(f"sending {local} to {remote}"):
            self.transmit(local, remote, both(digest, seen))
        return digest

    def send_all(
        self, local: Path, names: Iterable[str], folder: str, seen: BytesDone
    ) -> dict[str, Digest]:
        """Send those files of ``local`` into ``folder``; what was sent, hashed, by name."""
        return {name: self.send(local / name, f"{folder}/{name}", seen) for name in names}

    def receive(self, remote: str, local: Path, seen: BytesDone) -> Digest:
        """Receive a file as ``local``, which does not exist yet; what came, hashed."""
        with new_file(local) as file:
            return self.fetch(remote, file.write, seen)

    def fetch(self, remote: str, write: Take, seen: BytesDone) -> Digest:
        """Receive a file piece by piece; what came, hashed."""
        digest = self.board_hash.digest()
        take = both(digest, seen)

        def came(piece: bytes | memoryview) -> None:
            take(piece)
            write(piece)

        with named(f"receiving {remote}"):
            self.collect(remote, came)
        return digest

    def on_board(self, remote: str, expected: Digest) -> Digest:
        """Return the hash of a file on the board now, of the same kind as ``expected``."""
        if self.board_hash.command is not None:
            # Asking changes nothing: a link that is lost meanwhile does not make the copy void.
            return retry_infra(
                lambda: self.board_hash.ask(
                    self.transport, remote, expected.size_bytes, self.timeout
                ),
                on=(DeviceLost,),
                timeout=self.timeout,
                on_retry=lambda error: _LOG.warning("asking again for a hash: %s", error),
            )
        # No program on the board can hash: the bytes come back and are compared here.
        return self.fetch(remote, lambda _chunk: None, lambda _count: None)


@contextmanager
def named(what: str) -> Iterator[None]:
    """Say in the errors of a link or board what was being done."""
    try:
        yield
    except (LinkError, BoardError, IntegrityError) as error:
        raise error.during(what) from error


def both(digest: Digest, seen: BytesDone) -> Take:
    """Return a function that hashes a piece and reports its size."""

    def take(piece: bytes | memoryview) -> None:
        digest.update(piece)
        seen(len(piece))

    return take
