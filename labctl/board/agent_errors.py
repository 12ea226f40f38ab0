"""Refusals of the agent, as errors with the right blame."""

from collections.abc import Mapping

from labctl.errors import (
    BoardError,
    ConfigError,
    LabctlError,
    LeaseLost,
    ProgramFailed,
    ProtocolError,
)
from labctl.transport import board_error


class DirectoryUsed(BoardError):
    """The directory has a job already, or a job is being started there."""


#: Class, message and hint for an error of the agent, by its ``error``; else its own message.
_KNOWN: Mapping[str, tuple[type[LabctlError], str, str]] = {
    "stale-epoch": (
        LeaseLost,
        "another controller has taken the board: {}",
        "wait until the board is free, then run again",
    ),
    "exec-format": (
        ConfigError,
        "the board cannot execute this program: {}",
        "was it built for the board's target?",
    ),
    "cpus": (
        ConfigError,
        "the board refused the job's setting: {}",
        "`labctl boards --json` shows its number of CPUs; they count from 0",
    ),
    "nice": (
        ConfigError,
        "the board refused the job's setting: {}",
        "only root may raise a priority",
    ),
    "directory-used": (DirectoryUsed, "{}", "a job's directory serves one job, ever"),
    "spawn-failed": (ProgramFailed, "{}", "`labctl deploy` sends programs to the board"),
    "usage": (
        ProtocolError,
        "the agent on the board has another version: {}",
        "`labctl build --target TARGET --product agent`, then `labctl deploy`",
    ),
}


def refusal(kind: str, message: str, what: str) -> LabctlError:
    """Convert the agent's refusal (``error`` in its JSON) to an error with the right blame."""
    if kind not in _KNOWN:
        return board_error(message, what)
    error, sentence, hint = _KNOWN[kind]
    return error(sentence.format(message), hint=hint)
