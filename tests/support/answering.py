"""A transport that answers from a script, for what no real board does on demand."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from labctl.errors import ConfigError
from labctl.transport import CommandResult, Copied, Progress, Transport, Write

#: What a command is answered with: its output (status 0), status and output, or an error raised.
Answer = str | tuple[int, str] | Exception


class AnsweringTransport(Transport):
    """Gives its answers in turn, the last one again and again; ``commands`` is what was asked."""

    def __init__(self, *answers: Answer, on_run: Callable[[str], None] | None = None):
        self.label = "scripted"
        self.commands: list[str] = []
        self._answers = list(answers)
        self._on_run = on_run

    def run(self, command: str, *, timeout: float, separate_stderr: bool = False) -> CommandResult:
        assert timeout > 0
        assert not separate_stderr
        self.commands.append(command)
        if self._on_run:
            self._on_run(command)
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        status, text = (0, answer) if isinstance(answer, str) else answer
        return CommandResult(command, status, text.encode(), 1)

    def stream(self, command: str, *, timeout: float, write: Write) -> int:
        result = self.run(command, timeout=timeout)
        write(result.output)
        return result.exit_status

    def push(
        self,
        local: Path,
        remote: str,
        *,
        timeout: float,
        progress: Progress | None = None,
        compress: bool = False,
    ) -> None:
        raise ConfigError("no transfers here")

    def pull(
        self,
        remote: str,
        local: Path,
        *,
        timeout: float,
        progress: Progress | None = None,
        compress: bool = False,
    ) -> None:
        raise ConfigError("no transfers here")

    def push_directory(
        self,
        local: Path,
        remote: str,
        *,
        timeout: float,
        progress: Progress | None = None,
        compress: bool = False,
    ) -> Copied:
        raise ConfigError("no transfers here")

    def pull_directory(
        self,
        remote: str,
        local: Path,
        *,
        timeout: float,
        progress: Progress | None = None,
        compress: bool = False,
    ) -> Copied:
        raise ConfigError("no transfers here")

    @contextmanager
    def forward(self, remote_port: int) -> Iterator[int]:
        yield remote_port

    def is_alive(self) -> bool:
        return True

    def close(self) -> None:
        pass
