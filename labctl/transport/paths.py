"""Rules for the paths on a board that labctl uses."""

from labctl.errors import ConfigError

_MAX_BYTES = 4096


def check_remote_path(path: str) -> str:
    """``path`` itself, if every link carries it safely. Raises ConfigError.

    Refused besides relative paths: ``%`` (hdcd hands paths to printf: ``%s`` crashes it), control
    characters, double quotes and backslashes (``file recv`` cannot quote them), ``..`` and empty
    parts (a trailing slash makes hdcd choose the name).
    """
    parts = path.split("/")
    if not path.startswith("/") or len(parts) < 2:
        reason = "it is not absolute"
    elif any(character in '%"\\' for character in path):
        reason = 'it holds one of % " \\, which hdc does not carry safely'
    elif any(ord(character) < 0x20 or ord(character) == 0x7F for character in path):
        reason = "it holds a control character"
    elif any(part in ("", ".", "..") for part in parts[1:]):
        reason = "it holds an empty part, `.` or `..`"
    elif not _fits(path):
        reason = f"it is longer than {_MAX_BYTES} bytes, or is not text"
    else:
        return path
    raise ConfigError(
        f"unsafe path on the board: {path!r}: {reason}",
        hint="use a plain absolute path below the board's workdir",
    )


def _fits(path: str) -> bool:
    try:
        return len(path.encode(errors="surrogateescape")) <= _MAX_BYTES
    except UnicodeEncodeError:  # half of a surrogate pair, which stands for no byte either
        return False
