"""Files whose content the kernel makes as it is read: those of /proc and /sys.

Their size is not what ``stat`` says, and hdcd goes by that: of a file of size 0 it sends what one
read gives, 4 kB of the 5 MB of /proc/kallsyms. So the board's ``cat`` reads them to their end. The
next reading may give something else: no hash can prove a copy.
"""

import os
import re
from collections.abc import Mapping

from labctl.transport.base import Transport, Write, remote_words
from labctl.transport.board_errors import board_error

#: By the numbers in Linux's ``magic.h``: toybox has no names for most.
_KINDS = {
    0x9FA0: "proc",
    0x62656572: "sysfs",
    0x64626720: "debugfs",
    0x74726163: "tracefs",
    0x27E0EB: "cgroup",
    0x63677270: "cgroup2",
}
_ANSWER = re.compile(rb"([0-9a-f]{1,16}) (.+)")
#: What is kept of the output, for the words of a ``cat`` that fails.
_LAST_BYTES = 1000


def pseudo_files(transport: Transport, path: str, *, timeout: float) -> dict[str, str]:
    """Return the pseudo files below a directory, or the file itself: relative path -> file system.

    The file's own path is ``.``. What the board cannot tell is an ordinary file. Raises LinkError.
    """
    word = remote_words(path)
    asked = transport.run(
        f"if [ -d {word} ]; then cd {word} && find . -type f -exec stat -f -c '%t %n' {{}} +;"
        f" else stat -f -c '%t .' {word}; fi 2>/dev/null",
        timeout=timeout,
    )
    found = {}
    for line in asked.output.split(b"\n"):
        if (match := _ANSWER.fullmatch(line)) and (kind := _KINDS.get(int(match[1], 16))):
            found[os.fsdecode(match[2].removeprefix(b"./"))] = kind
    return found


def read_pseudo_file(transport: Transport, remote: str, write: Write, *, timeout: float) -> None:
    """Give all of a file to ``write``, within ``timeout`` seconds. Raises LinkError, BoardError."""
    last = b""

    def keep(piece: bytes) -> None:
        nonlocal last
        write(piece)
        last = (last + piece)[-_LAST_BYTES:]

    if transport.stream(remote_words("cat", remote), timeout=timeout, write=keep) != 0:
        raise board_error(last.decode(errors="replace"), f"cannot read {remote}")


def why_not_proven(pseudo: Mapping[str, str]) -> str:
    """Explain why a copy that contains such files is not verified."""
    files = "1 file" if len(pseudo) == 1 else f"{len(pseudo)} files"
    kinds = ", ".join(sorted(set(pseudo.values())))
    return f"{files} of {kinds}, whose content the kernel makes as it is read"
