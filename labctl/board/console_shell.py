"""A shell on a board's console: proven to be there before a command is sent to it."""

import os
import re
import secrets
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from labctl import interrupts
from labctl.board.console import open_console, read_waiting
from labctl.config.console import Console
from labctl.errors import ConfigError, HostError, LabctlError, printable_line
from labctl.transport.base import remote_words

if TYPE_CHECKING:
    import serial

#: Longest wait (s) for a prompt, and for the end of a command.
_PROMPT_SECONDS, COMMAND_SECONDS = 5.0, 30.0
_POLL_SECONDS = 0.05
#: Bytes kept of an answer.
_MOST_BYTES = 64 << 10
_LOGIN, _PASSWORD = re.compile(rb"login: ?$"), re.compile(rb"[Pp]assword: ?$")
#: Ends a line that somebody left half typed.
_NEW_LINE = b"\x15\r"


def console_answer(config: Console) -> str:
    """Ask a console by a line feed; return words that say whether it answers."""
    try:
        with open_console(config) as port:
            found = _ask(port, _NEW_LINE, re.compile(rb"\S"), _PROMPT_SECONDS)
    except LabctlError as error:
        return f"does not answer: {error.message}"
    return "answers" if found else f"is silent ({config.baud} bit/s; cable, speed?)"


def run_on_console(config: Console, commands: Sequence[Sequence[str]]) -> None:
    """Run commands in the console's shell, one after the other; each must succeed.

    Raises HostError: no shell answers, or a command fails; ConfigError: the password is missing.
    """
    password = _password(config)
    with open_console(config) as port:
        if not _has_shell(port):
            _log_in(port, config, password)
        for command in commands:
            mark = secrets.token_hex(8)
            line = f"{remote_words(*command)}; echo {mark}$?."
            found = _ask(
                port,
                line.encode() + b"\r",
                re.compile(mark.encode() + rb"(\d{1,3})\."),
                COMMAND_SECONDS,
            )
            if found is None:
                raise HostError(f"on the console, {command[0]} did not end")
            if found[1] != b"0":
                raise HostError(
                    f"on the console, {command[0]} ended with status {int(found[1])}",
                    details=printable_line(found.string[-400:].decode(errors="backslashreplace")),
                )


def _has_shell(port: "serial.SerialBase") -> bool:
    """Let it compute: what only echoes, or is no shell, cannot."""
    mark, one, two = secrets.token_hex(8), 1000 + secrets.randbelow(9000), secrets.randbelow(9000)
    line = f"echo {mark}$(({one} * {two})).".encode()
    answer = re.compile(f"{mark}{one * two}\\.".encode())
    return _ask(port, _NEW_LINE + line + b"\r", answer, _PROMPT_SECONDS) is not None


def _log_in(port: "serial.SerialBase", config: Console, password: str | None) -> None:
    if config.login is None:
        raise HostError(
            "no shell answers on the console",
            hint="if it asks for a user, name one as `login` of the console in devices.yaml",
        )
    if _ask(port, _NEW_LINE, _LOGIN, _PROMPT_SECONDS) is None:
        raise HostError("neither a shell nor a login prompt answers on the console")
    asks = _ask(port, config.login.user.encode() + b"\r", _PASSWORD, _PROMPT_SECONDS)
    if asks and password is not None:
        port.write(password.encode() + b"\r")
        interrupts.sleep(_POLL_SECONDS)
    if not _has_shell(port):
        raise HostError(f"the console let user {config.login.user} in to no shell")


def _password(config: Console) -> str | None:
    if config.login is None or (name := config.login.password_env) is None:
        return None
    if not (found := os.environ.get(name)):
        raise ConfigError(f"the environment variable {name}, a console's password, is not set")
    if not found.isprintable():
        raise ConfigError(f"the environment variable {name} holds control characters")
    return found


def _ask(
    port: "serial.SerialBase", data: bytes, answer: re.Pattern[bytes], seconds: float
) -> re.Match[bytes] | None:
    """Write; return the match in what comes within ``seconds``; None without it."""
    read_waiting(port)  # what came before is no answer
    port.write(data)
    heard, end = b"", time.monotonic() + seconds
    while time.monotonic() < end:
        heard = (heard + read_waiting(port))[-_MOST_BYTES:]
        if found := answer.search(heard):
            return found
        interrupts.sleep(_POLL_SECONDS)
    return None
