"""Errors of failed commands on the board, recognised by the kernel's words."""

from labctl.errors import BoardError, BoardNoSpace, BoardPermission
from labctl.system_errors import tells_full_disk, tells_refusal
from labctl.transport.base import CommandResult


def board_error(text: str, what: str) -> BoardError:
    """Return the error of a step ``what`` that the board refused with ``text``."""
    details = text.strip()[-2000:] or None
    message = f"{what}: {_last_line(text) or 'no reason given'}"
    if tells_full_disk(text):
        return BoardNoSpace(message, details=details)
    if tells_refusal(text):
        hint = "choose another workdir for the board in devices.yaml, one its shell user may write"
        return BoardPermission(message, hint=hint, details=details)
    return BoardError(message, details=details)


def file_error(text: str) -> BoardError:
    """Return the error of a program that copies a file and complained with ``text``."""
    last = _last_line(text)
    if tells_full_disk(text):
        return BoardNoSpace(f"the board's storage is full: {last}")
    if tells_refusal(text):
        return BoardPermission(f"the board refuses access: {last}")
    return BoardError(f"the board answers: {last.lower()}")


def require(result: CommandResult, what: str) -> CommandResult:
    """Return ``result`` if its status is 0. Raises BoardNoSpace, BoardPermission, BoardError."""
    if result.exit_status != 0:
        raise board_error(result.text, what)
    return result


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1].strip() if lines else ""
