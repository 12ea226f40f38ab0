"""What a failed command on the board means: the board's fault, by the words of the kernel."""

from labctl.errors import BoardError, BoardNoSpace, BoardPermission
from labctl.transport.base import CommandResult

#: ``strerror`` texts, the same in musl, bionic and glibc.
_KINDS: tuple[tuple[type[BoardError], tuple[str, ...], str], ...] = (
    (
        BoardNoSpace,
        ("No space left on device", "Disk quota exceeded", "Quota exceeded"),
        "free some space on the board",
    ),
    (
        BoardPermission,
        ("Permission denied", "Operation not permitted", "Read-only file system"),
        "choose another workdir for the board in devices.yaml, one its shell user may write",
    ),
)


def board_error(text: str, what: str) -> BoardError:
    """The error of a step ``what`` that the board refused with ``text``."""
    details = text.strip()[-2000:] or None
    for kind, words, hint in _KINDS:
        if any(word in text for word in words):
            return kind(f"{what}: {_last_line(text)}", hint=hint, details=details)
    return BoardError(f"{what}: {_last_line(text) or 'no reason given'}", details=details)


def require(result: CommandResult, what: str) -> CommandResult:
    """``result`` itself when its status is 0; raises BoardNoSpace, BoardPermission, BoardError."""
    if result.exit_status != 0:
        raise board_error(result.text, what)
    return result


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1].strip() if lines else ""
