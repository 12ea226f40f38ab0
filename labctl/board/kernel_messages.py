"""Messages of a Linux kernel on a board's console that explain how a trial ended.

A message proves nothing: whoever is root on the board can write to its console. So it never ends a
trial and never makes a result; it explains an error that was found otherwise.
"""

import re
from dataclasses import dataclass

#: ``<6>[   12.345678][  T123] text``: level and caller are optional.
_STAMP = re.compile(r"(?:<\d{1,3}>)?\[ {0,11}(\d{1,11})\.(\d{6})\](?:\[ {0,11}[TC]\d{1,9}\])? ?")
#: Lines of several processors may change places: smaller steps back (s) are no new boot.
_DISORDER_SECONDS = 1.0


@dataclass(frozen=True)
class Kind:
    """A kind of message. ``name``: its name in reports."""

    name: str
    pattern: re.Pattern[str]
    #: True if the board cannot continue its work after it.
    breaks_board: bool = False


OUT_OF_MEMORY = "out-of-memory kill"
BOOT = "boot"
_KINDS = (
    Kind("kernel panic", re.compile(r"Kernel panic - not syncing"), breaks_board=True),
    Kind(
        "kernel oops",
        re.compile(r"Internal error: Oops|(?:Unable|unable) to handle kernel |kernel BUG at "),
        breaks_board=True,
    ),
    Kind(
        OUT_OF_MEMORY,
        re.compile(r"\bKill(?:ed|ing)? (?:process (\d{1,10})\b|'[^']{0,64}' \((\d{1,10})\))"),
    ),
    Kind(
        "hard lockup",
        re.compile(r"Watchdog detected hard LOCKUP|BUG: hard lockup"),
        breaks_board=True,
    ),
    Kind("soft lockup", re.compile(r"BUG: soft lockup - CPU#"), breaks_board=True),
    Kind(
        "RCU stall",
        re.compile(r"\brcu\w*:? .{0,60}?detected (?:expedited )?stalls?\b"),
        breaks_board=True,
    ),
    Kind("hung task", re.compile(r"INFO: task .{1,80} blocked (?:on .{1,40} )?for more than \d")),
    Kind(
        "watchdog reset",
        re.compile(
            r"softdog: Initiating |watchdog: .{0,40}(?:pretimeout|expired)"
            r"|[Rr]eset (?:cause|reason)\b.{0,40}(?:WDOG|WDT|wdog|wdt|[Ww]atchdog)"
        ),
        breaks_board=True,
    ),
    Kind(BOOT, re.compile(r"Linux version \d{1,3}\.\d")),
)


@dataclass(frozen=True)
class KernelMessage:
    """A message that was found, in its line."""

    kind: str
    line: str
    breaks_board: bool = False
    #: Process that an out-of-memory kill ended.
    pid: int | None = None


class KernelReader:
    """Finds the messages in a console's lines, in their order."""

    def __init__(self) -> None:
        self._uptime: float | None = None
        #: True if a new boot was found by its times, and its version is still to come.
        self._version_follows = False

    def read(self, line: str) -> KernelMessage | None:
        """Return the message of a line; None for any other line.

        A kernel whose times go back has booted anew, even if its first lines were lost.
        """
        stamp = _STAMP.match(line)
        text = line[stamp.end() :] if stamp else line
        has_booted = False
        if stamp:
            before, self._uptime = self._uptime, int(stamp[1]) + int(stamp[2]) / 1e6
            has_booted = before is not None and self._uptime < before - _DISORDER_SECONDS
        for kind in _KINDS:
            found = kind.pattern.search(text)
            if found is None:
                continue
            is_known, self._version_follows = self._version_follows, False
            if kind.name == BOOT and is_known and not has_booted:
                return None
            pid = next((int(number) for number in found.groups() if number), None)
            return KernelMessage(kind.name, line, kind.breaks_board, pid)
        self._version_follows |= has_booted
        return KernelMessage(BOOT, line) if has_booted else None
