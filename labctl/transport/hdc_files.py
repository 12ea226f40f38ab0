"""Files and directories over hdc, hashed on the way."""

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from labctl.errors import BoardError, DeviceLost, IntegrityError, LinkError
from labctl.hdc import HostLink, Sending, receive_file, send_file
from labctl.retry import retry_infra
from labctl.transport.base import Copied, Progress, Transport
from labctl.transport.digests import BoardHash, Digest, running_total
from labctl.transport.directories import Seen, pull_tree, push_tree
from labctl.transport.local_files import appearing, new_file, open_source
from labctl.transport.paths import check_remote_path

_LOG = logging.getLogger("labctl.transport")

Take = Callable[[bytes | memoryview], object]


@dataclass(frozen=True)
class HdcCopier:
    """Moves files over whatever link is there; ``timeout`` (s) bounds each wait for progress.

    All raise LinkError, BoardError, HostError; ConfigError for what cannot be read here.
    """

    transport: Transport
    board_hash: BoardHash
    connected: Callable[[], HostLink]
    timeout: float
    compress: bool

    def push(self, local: Path, remote: str, progress: Progress | None) -> None:
        """Send a file and prove it; see :meth:`Transport.push`."""
        check_remote_path(remote)
        digest = self.send(local, remote, running_total(progress))
        self.on_board(remote, digest).require(digest, f"{local} pushed to {remote}")

    def pull(self, remote: str, local: Path, progress: Progress | None) -> None:
        """Receive a file and prove it; see :meth:`Transport.pull`."""
        check_remote_path(remote)
        with appearing(local) as file:
            digest = self.fetch(remote, file.write, running_total(progress))
            self.on_board(remote, digest).require(digest, f"{remote} pulled to {local}")

    def push_directory(self, local: Path, remote: str, progress: Progress | None) -> Copied:
        """Send a directory; see :meth:`Transport.push_directory`."""
        return push_tree(
            self.transport, self, local, remote, timeout=self.timeout, progress=progress
        )

    def pull_directory(self, remote: str, local: Path, progress: Progress | None) -> Copied:
        """Receive a directory; see :meth:`Transport.pull_directory`."""
        return pull_tree(
            self.transport, self, remote, local, timeout=self.timeout, progress=progress
        )

    def send(self, local: Path, remote: str, seen: Seen) -> Digest:
        """Send a file; what was sent, hashed."""
        digest = self.board_hash.digest()
        sent = _both(digest, seen)
        with open_source(local) as source, _named(f"sending {local} to {remote}"):
            send_file(
                self.connected(),
                source,
                remote,
                timeout=self.timeout,
                on_chunk=sent,
                compress=self.compress,
            )
        return digest

    def send_all(
        self, local: Path, names: Iterable[str], folder: str, seen: Seen
    ) -> dict[str, Digest]:
        """Send files of a directory over one channel into the directory ``folder`` on the board."""
        parent, slash, top = folder.rpartition("/")
        parent += slash  # hdcd follows a link to a directory only with a slash behind it
        link = self.connected()
        digests: dict[str, Digest] = {}
        with (
            _named(f"sending {local} to {folder}"),
            link.open_send(parent, timeout=self.timeout) as channel,
        ):
            sending = Sending(channel, parent, compress=self.compress and link.can_compress)
            for name in names:
                digests[name] = self.board_hash.digest()
                with open_source(local / name) as source:
                    sending.send(source, f"{top}/{name}", _both(digests[name], seen))
            sending.finish()
        return digests

    def receive(self, remote: str, local: Path, seen: Seen) -> Digest:
        """Receive a file as ``local``, which does not exist yet; what came, hashed."""
        with new_file(local) as file:
            return self.fetch(remote, file.write, seen)

    def fetch(
        self,
        remote: str,
        write: Take,
        seen: Seen,
    ) -> Digest:
        """Receive a file piece by piece; what came, hashed."""
        digest = self.board_hash.digest()

        def came(chunk: bytes | memoryview) -> None:
            digest.update(chunk)
            write(chunk)
            seen(len(chunk))

        with _named(f"receiving {remote}"):
            receive_file(
                self.connected(),
                remote,
                timeout=self.timeout,
                write=came,
                compress=self.compress,
            )
        return digest

    def on_board(self, remote: str, expected: Digest) -> Digest:
        """The hash of a file as it is on the board now, which is to be like ``expected``."""
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
def _named(what: str) -> Iterator[None]:
    """Say in the errors of a link or board what was being done."""
    try:
        yield
    except (LinkError, BoardError, IntegrityError) as error:
        raise error.during(what) from error


def _both(digest: Digest, seen: Seen) -> Callable[[memoryview], None]:
    """What takes a chunk into a hash and tells its size."""

    def take(chunk: memoryview) -> None:
        digest.update(chunk)
        seen(len(chunk))

    return take
