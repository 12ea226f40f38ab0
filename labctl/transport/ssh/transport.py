"""A board over ssh: any board with sshd or dropbear and a POSIX shell.

Files go through ``cat``, because small servers lack sftp; hashes verify them. Host keys must be
known: see :mod:`labctl.transport.ssh.login`.
"""

from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from labctl.transport.base import TransferOptions, file_error
from labctl.transport.file_transfer import FileTransfer, Take, open_source
from labctl.transport.linked import LinkedTransport, Stream

if TYPE_CHECKING:
    import paramiko

    from labctl.transport.ssh.link import SshLink
    from labctl.transport.ssh.program import SshProgram

_BLOCK_BYTES = 1 << 16
_MERGE = "exec 2>&1\n"
_RECEIVE = 'LC_ALL=C; export LC_ALL; cat >"$1"'
_SEND = 'LC_ALL=C; export LC_ALL; cat -- "$1"'
#: dash's messages, where they differ from all other programs.
_OF_DASH = ("Directory nonexistent", "No such file or directory")


class SshTransport(LinkedTransport["SshLink"]):
    """A board over ssh."""

    scratch = "/tmp"  # noqa: S108 - on the board; names there are random
    #: dropbear takes commands of 9,000 bytes.
    max_command_bytes = 8_000

    def shell(
        self, link: "SshLink", script: str, *, timeout: float
    ) -> Generator[bytes, None, None]:
        """Run a script; see :class:`LinkedTransport`."""
        from labctl.transport.ssh.program import SshProgram

        with SshProgram(link, _MERGE + script, timeout=timeout) as program:
            program.end_input()
            yield from program.pieces()
            program.status()

    def sent_line(self, script: str) -> str:
        """Return the line with the quoted script; quoting can make it much longer."""
        from labctl.transport.ssh.program import NONCE_BYTES, command_line

        return command_line(_MERGE + script, "0" * 2 * NONCE_BYTES)

    def file_transfer(self, options: TransferOptions) -> "SshFileTransfer":
        """Return the transfer; a connection compresses everything or nothing."""
        return SshFileTransfer(self, options)

    @contextmanager
    def connect(self, port: int, *, timeout: float) -> Iterator[Stream]:
        """Connect to a port of the board; see :class:`Transport`."""
        with closing(self.connected().connect_port(port, timeout=timeout)) as channel:
            yield Stream(self.label, _Port(channel), timeout=timeout)


class _Port:
    """A channel to a port, with the methods of a socket."""

    def __init__(self, channel: "paramiko.Channel"):
        self._channel = channel
        self.settimeout = channel.settimeout
        self.recv = channel.recv

    def sendall(self, data: bytes | memoryview, /) -> None:
        """Send all data: paramiko takes only bytes."""
        self._channel.sendall(bytes(data))


class SshFileTransfer(FileTransfer):
    """Moves files through ``cat``."""

    def __init__(self, transport: SshTransport, options: TransferOptions):
        super().__init__(transport, options)
        self._connected = transport.connected

    def transmit(self, local: Path, remote: str, sent: Take) -> None:
        """Send a file; see :class:`FileTransfer`."""
        with open_source(local) as source, self._program(_RECEIVE, remote) as program:
            while block := source.read(_BLOCK_BYTES):
                program.limit(self.options.timeout)
                if not program.send(block):
                    break  # it no longer reads, and reports why
                sent(block)
            program.end_input()
            while program.read():
                pass
            _require(program)

    def collect(self, remote: str, came: Take) -> None:
        """Receive a file; see :class:`FileTransfer`."""
        with self._program(_SEND, remote) as program:
            program.end_input()
            while piece := program.read():
                came(piece)
                program.limit(self.options.timeout)
            _require(program)

    def _program(self, script: str, remote: str) -> "SshProgram":
        from labctl.transport.ssh.program import SshProgram

        return SshProgram(self._connected(), script, remote, timeout=self.options.timeout)


def _require(program: "SshProgram") -> None:
    """Raise the error that a program moving a file has reported."""
    if program.finish() != 0:
        raise file_error(program.errors.replace(*_OF_DASH))
