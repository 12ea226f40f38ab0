"""A transport without a board, for tests: its replies come from a script.

Like ``MockTransport`` of httpx. A function answers each command, or a list gives the replies in
order; files are in memory::

    board = ScriptedTransport("aarch64\n", (1, "no such file"), DeviceLost("gone"))
    board = ScriptedTransport(lambda command: "yes" if "uname" in command else (127, ""))
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from labctl.errors import BoardError, ConfigError, LinkRefused
from labctl.hdc.host.link import PortConnection
from labctl.transport.base import CommandResult, TransferOptions, Transport, Write
from labctl.transport.file_transfer import BoardHash, FileTransfer, Take
from labctl.transport.linked import Stream

#: Reply to a command: its output (status 0), status and output, or an error to raise.
Answer = str | bytes | tuple[int, str] | tuple[int, bytes] | Exception
#: Answers a command.
Handler = Callable[[str], Answer]
#: Makes the board's end of a connection to a port, used like a socket.
Dial = Callable[[int], PortConnection]


class ScriptedTransport(Transport):
    """Gives its replies in order and repeats the last, or calls a function for each command.

    Args:
        answers: the replies, or one function from a command to its reply.
        dial: makes the connections of :meth:`connect`; None: nothing listens at any port.

    ``commands`` has the commands that were run, ``files`` the board's files by path.
    """

    def __init__(
        self, *answers: Answer | Handler, label: str = "scripted", dial: Dial | None = None
    ):
        self.label = label
        self.commands: list[str] = []
        self.files: dict[str, bytes] = {}
        # No hash program: files are verified by reading them back.
        self.use_hash(BoardHash("sha256"))
        self._answers = list(answers)
        self._dial = dial

    def run(self, command: str, *, timeout: float, separate_stderr: bool = False) -> CommandResult:
        """Give the next reply."""
        if timeout <= 0:
            raise ConfigError(f"a time-out must be positive, not {timeout:g}")
        self._permit()
        self.commands.append(command)
        if not self._answers:
            raise BoardError(f"no answer is scripted for: {command}")
        answer = self._answers[0] if len(self._answers) == 1 else self._answers.pop(0)
        if callable(answer):
            answer = answer(command)
        if isinstance(answer, Exception):
            raise answer
        status, output = answer if isinstance(answer, tuple) else (0, answer)
        raw = output.encode() if isinstance(output, str) else output
        return CommandResult(command, status, raw, 1, b"" if separate_stderr else None)

    def stream(self, command: str, *, timeout: float, write: Write) -> int:
        """Give the next reply as one piece."""
        result = self.run(command, timeout=timeout)
        write(result.output)
        return result.exit_status

    def file_transfer(self, options: TransferOptions) -> "ScriptedFileTransfer":
        """Return the transfer to and from :attr:`files`."""
        return ScriptedFileTransfer(self, options)

    @contextmanager
    def connect(self, port: int, *, timeout: float) -> Iterator[Stream]:
        """Connect to the result of ``dial``."""
        self._permit()
        if self._dial is None:
            raise LinkRefused(f"nothing listens at port {port} of {self.label}")
        yield Stream(self.label, self._dial(port), timeout=timeout)

    def close(self) -> None:
        """Do nothing: there is nothing to release."""


class ScriptedFileTransfer(FileTransfer):
    """Copies to and from the memory of a :class:`ScriptedTransport`."""

    def __init__(self, transport: ScriptedTransport, options: TransferOptions):
        super().__init__(transport, options)
        self._files = transport.files

    def transmit(self, local: Path, remote: str, sent: Take) -> None:
        """Store a file."""
        self._files[remote] = local.read_bytes()
        sent(self._files[remote])

    def collect(self, remote: str, came: Take) -> None:
        """Give a stored file. Raises BoardError if it does not exist."""
        if remote not in self._files:
            raise BoardError(f"no such file or directory: {remote}")
        came(self._files[remote])
