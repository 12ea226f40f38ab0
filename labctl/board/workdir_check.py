"""Check a board's workdir before the first byte is sent there."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from labctl.board.facts import NEAREST, SECTION, sections
from labctl.board.lease import INCOMING
from labctl.board.upload.resumable import PARTIAL
from labctl.errors import printable
from labctl.transport.base import Transport, remote_words, require

_TIMEOUT_SECONDS = 60.0
#: ``%B`` is the unit of ``%b``, the allocated size: it includes reserved space not yet filled.
_SCRIPT = f"""\
section used
[ ! -d "$workdir" ] || du -s -k "$workdir" 2>/dev/null
section partial
for file in "$workdir/store/{PARTIAL}"*; do
  case $file in *.journal) continue;; esac
  [ ! -f "$file" ] || stat -c '%b %B %n' "$file"
done
section arrived
for file in "$workdir/store/{PARTIAL}"*.journal; do
  [ -f "$file" ] && read -r _ _ size chunk <"$file" && echo "$size $chunk $(wc -l <"$file") $file"
done
section limits
cat /proc/self/limits 2>/dev/null
section written
# Where raw transfers go; nothing else is changed without the agent.
place=$directory
[ ! -d "$workdir" ] || {{ place=$workdir/{INCOMING}; mkdir -p "$place" || place=$directory; }}
probe=$place/.labctl-probe-$$
shell=$(command -v sh)
# The kernel ends the interpreter's name at a blank: a virtual board's folder may hold one.
case $shell in *[[:space:]]*) shell=/bin/sh;; esac
printf '#!%s\\nexit 0\\n' "$shell" >"$probe" && chmod 755 "$probe" && echo yes
section executed
"$probe" && echo yes
rm -f "$probe" 2>/dev/null
:
"""


@dataclass(frozen=True)
class Survey:
    """Current state of a workdir; sizes in bytes.

    ``why_not_written`` and ``why_not_executed`` are the board's messages, None on success.
    ``used_bytes`` is the size of labctl's files. ``reserved_bytes`` is the size of incomplete files
    by their SHA-256; ``arrived_bytes`` is their verified part, from the agent's journals.
    ``largest_file_bytes`` is the shell's limit; None without a limit.
    """

    directory: str
    why_not_written: str | None = None
    why_not_executed: str | None = None
    used_bytes: int = 0
    reserved_bytes: Mapping[str, int] = field(default_factory=dict)
    arrived_bytes: Mapping[str, int] = field(default_factory=dict)
    largest_file_bytes: int | None = None


def survey(transport: Transport, workdir: str) -> Survey:
    """Check a workdir or its future location; write a small program there and run it.

    Raises LinkError, BoardError.
    """
    words = remote_words(workdir)
    script = f"exec 2>&1\n{SECTION}workdir={words}\ndirectory={words}\n{NEAREST}{_SCRIPT}"
    text = require(
        transport.run(script, timeout=_TIMEOUT_SECONDS), f"cannot look into {workdir} on the board"
    ).text
    answers = sections(text)
    used = re.match(r"\s*(\d+)", answers.get("used", ""))
    limit = re.search(r"(?m)^Max file size +(\d+) ", answers.get("limits", ""))
    return Survey(
        directory=workdir,
        why_not_written=_reason(answers.get("written", "")),
        why_not_executed=_reason(answers.get("executed", "")),
        used_bytes=int(used[1]) * 1024 if used else 0,
        reserved_bytes={
            match[3]: int(match[1]) * int(match[2])
            for match in re.finditer(
                rf"(?m)^(\d+) (\d+) .*/{re.escape(PARTIAL)}([0-9a-f]{{64}})$",
                answers.get("partial", ""),
            )
        },
        arrived_bytes={
            match[4]: min(int(match[1]), int(match[2]) * (int(match[3]) - 1))  # 1: header
            for match in re.finditer(
                rf"(?m)^(\d+) (\d+) +(\d+) .*/{re.escape(PARTIAL)}([0-9a-f]{{64}})\.journal$",
                answers.get("arrived", ""),
            )
        },
        largest_file_bytes=int(limit[1]) if limit else None,
    )


def _reason(output: str) -> str | None:
    """Return why a step failed; None if it succeeded."""
    lines = output.strip().splitlines()
    if lines and lines[-1] == "yes":
        return None
    return printable(lines[-1].strip()) if lines else "no reason given"
