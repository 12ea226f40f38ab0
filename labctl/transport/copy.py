"""Files and directories between this host and a board, with the usual destinations.

As with ``cp``, a copy to an existing directory goes inside, under its own name. Unlike with hdc, a
file or a new directory gets its final name only after every byte is verified.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from labctl.errors import BoardError, ConfigError, LinkError, ProtocolError
from labctl.files import appearing, host_reads, host_writes
from labctl.interrupts import finishing
from labctl.transport.base import (
    Copied,
    TransferOptions,
    Transport,
    check_remote_path,
    remote_words,
    require,
)
from labctl.transport.directories import beside, pull_directory, push_directory
from labctl.transport.pseudo_files import pseudo_files, read_pseudo_file, why_not_proven

#: Time-out for short requests.
_ANSWER_SECONDS = 10.0
_PERMISSIONS = 0o777


@dataclass(frozen=True)
class Delivered:
    """Result of a copy, with its final path."""

    path: str
    copied: Copied

    def document(self) -> dict[str, object]:
        """Return the copied and skipped files as JSON."""
        copied = self.copied
        return {
            "path": self.path,
            "files": copied.files,
            "size_bytes": copied.size_bytes,
            "proven": copied.not_proven is None,
            "reason": copied.not_proven,
            "left_out": [*copied.skipped, *copied.unreadable],
        }


def send(
    transport: Transport,
    local: Path,
    remote: str,
    options: TransferOptions,
    *,
    keep_mode: bool = False,
) -> Delivered:
    """Send a file, or a directory with its content, to a board.

    ``keep_mode`` keeps a file's permissions (otherwise 0644); a directory's are always kept. Raises
    as :meth:`Transport.push` does.
    """
    with host_reads(local):
        mode, is_directory = local.stat().st_mode, local.is_dir()
    path = check_remote_path(_without_slash(remote))
    there = _mode_on_board(transport, path, needs_folder=not is_directory)
    if there is not None and stat.S_ISDIR(there):
        path = check_remote_path(f"{path}/{_own_name(local)}")
        there = _mode_on_board(transport, path)
    elif remote.endswith("/") and not is_directory:
        raise ConfigError(f"no directory on the board: {remote}", hint="make it first: mkdir -p")
    if there is not None and stat.S_ISDIR(there) != is_directory:
        raise ConfigError(
            f"{local} and {path} on the board: one is a directory, the other is not",
            hint="name another destination, or remove that one",
        )
    if is_directory:
        return Delivered(path, push_directory(transport, local, path, options))
    if there is not None and not stat.S_ISREG(there):
        raise ConfigError(
            f"not a regular file on the board: {path}", hint="labctl writes files, not devices"
        )
    with appearing_on_board(transport, path) as temporary:
        transport.push(local, temporary, options)
        wanted = mode & _PERMISSIONS if keep_mode else 0o644  # a phone's adbd would make it 0666
        words = remote_words("chmod", f"{wanted:o}", temporary)
        require(transport.run(words, timeout=_ANSWER_SECONDS), f"cannot set the mode of {path}")
    return Delivered(path, Copied(1, local.stat().st_size))


def receive(
    transport: Transport,
    remote: str,
    local: Path,
    options: TransferOptions,
    *,
    keep_mode: bool = False,
) -> Delivered:
    """Receive a file, or a directory with its content, from a board. As :func:`send`.

    Files of /proc and /sys are received too, but not verified.
    """
    path = check_remote_path(_without_slash(remote))
    mode = _mode_on_board(transport, path)
    if mode is None:
        raise ConfigError(
            f"no such file or directory on the board: {path}", hint="is the path spelt right?"
        )
    with host_reads(local):
        place = local / path.rpartition("/")[2] if local.is_dir() else local
        if stat.S_ISDIR(mode) and place.exists():
            raise ConfigError(
                f"cannot receive a directory as {place}: it exists", hint="name a new directory"
            )
    if stat.S_ISDIR(mode):
        return Delivered(str(place), pull_directory(transport, path, place, options))
    if not stat.S_ISREG(mode):
        raise ConfigError(
            f"not a regular file on the board: {path}", hint="read devices with `labctl hdc shell`"
        )
    pseudo = pseudo_files(transport, path, timeout=_ANSWER_SECONDS)
    if pseudo:
        with appearing(place) as file:
            read_pseudo_file(transport, path, file.write, timeout=options.timeout)
    else:
        transport.pull(path, place, options)
    if keep_mode:
        with host_writes(place):
            place.chmod(mode & _PERMISSIONS)
    not_proven = why_not_proven(pseudo) if pseudo else None
    return Delivered(str(place), Copied(1, place.stat().st_size, not_proven=not_proven))


@contextmanager
def appearing_on_board(transport: Transport, path: str) -> Iterator[str]:
    """Yield a path beside ``path``; rename it to ``path`` if the block ends without an error."""
    temporary = beside(path)
    with finishing() as signals:
        try:
            yield temporary
            move = remote_words("mv", "-f", temporary, path)
            moved = transport.run(move, timeout=_ANSWER_SECONDS)
            require(moved, f"{transport.label}: cannot rename the copy to {path}")
        except BaseException:
            signals.hold()
            with suppress(LinkError, BoardError):
                transport.run(remote_words("rm", "-rf", temporary), timeout=_ANSWER_SECONDS)
            raise


def _own_name(local: Path) -> str:
    """Return the name of a path, also of ``.``; for a link, the link's name, not its target's."""
    return Path(os.path.normpath(local.absolute())).name


def _without_slash(path: str) -> str:
    return path.rstrip("/") or "/"


def _mode_on_board(transport: Transport, path: str, *, needs_folder: bool = False) -> int | None:
    """Return the mode of a path, links followed; None if the path does not exist.

    With ``needs_folder``, raises ConfigError if the folder of the path does not exist.
    """
    word, folder = remote_words(path), path.rpartition("/")[0] or "/"
    asked = transport.run(
        f"if [ -e {word} ] || [ -L {word} ]; then stat -L -c %f {word}; "
        f"elif [ -d {remote_words(folder)} ]; then echo missing; else echo nowhere; fi",
        timeout=_ANSWER_SECONDS,
    )
    answer_text = require(asked, f"{transport.label}: cannot look at {path}").text.strip()
    if answer_text == "nowhere" and needs_folder:
        raise ConfigError(
            f"no directory on the board: {folder}",
            hint=f"make it first: labctl hdc shell mkdir -p {remote_words(folder)}",
        )
    if answer_text in ("missing", "nowhere"):
        return None
    try:
        return int(answer_text, 16)
    except ValueError as error:
        raise ProtocolError(
            f"{transport.label}: not an answer of stat for {path}: {answer_text[:80]!r}"
        ) from error
