"""State and readiness of a board, and its boot id."""

import logging
import re
import time
from collections.abc import Iterable

from labctl.errors import (
    AccessDenied,
    BoardError,
    ConfigError,
    ExitStatus,
    InfraError,
    LabctlError,
    LinkError,
    LinkRefused,
    NotAuthorised,
)
from labctl.retry import retry_infra, wait_until
from labctl.transport.base import Reboot, Transport, require
from labctl.virtual.marks import BOOT_ID

_LOG = logging.getLogger("labctl.transport")
_BOOT_ID = re.compile(r"[0-9a-f-]{16,64}")
#: Time-out for one answer while a board may be starting or stopping.
_ANSWER_SECONDS = 5.0
_INTERVAL_SECONDS = 0.2
#: A board that misses this many replies in a row is gone: one reply may get lost.
_SILENCES = 3


def board_state(error: LabctlError | None) -> str:
    """Return the state of a board from the error of a request to it; None: it answered."""
    match error:
        case None:
            return "connected"
        case NotAuthorised():
            return "unauthorised"
        case LinkRefused():
            return "offline"
        case ConfigError():
            return "misconfigured"
    return "failing"


def states_status(states: Iterable[str]) -> int:
    """Return the exit status for boards in these states."""
    found = set(states)
    if "misconfigured" in found:
        return ExitStatus.CONFIG
    return ExitStatus.OK if found <= {"connected"} else ExitStatus.INFRA


def boot_id(transport: Transport, *, timeout: float) -> str:
    """Return the kernel's id of the board's boot; each boot has a new id.

    Raises LinkError, BoardError.
    """
    asked = require(
        transport.run(f'echo "{BOOT_ID}"', timeout=timeout),
        f"{transport.label}: cannot ask for its boot",
    )
    found = asked.text.strip()
    if not _BOOT_ID.fullmatch(found):
        raise BoardError(
            f"{transport.label}: the board does not report its boot id",
            hint="its shell must be able to read /proc/sys/kernel/random/boot_id",
            details=asked.text or None,
        )
    return found


def wait_until_ready(transport: Transport, *, timeout: float) -> str:
    """Wait until the board runs commands; return its boot id.

    Raises the last LinkError or BoardError after ``timeout`` seconds. Also waits for a board that
    does not know this host's key: a user may allow it meanwhile. If the user denies it, raises
    AccessDenied at once: another request would ask again on the board.
    """
    deadline = time.monotonic() + timeout

    def ask() -> str:
        left = max(deadline - time.monotonic(), 0.1)
        return boot_id(transport, timeout=min(left, _ANSWER_SECONDS))

    return retry_infra(
        ask,
        on=(LinkError, BoardError),
        but=(AccessDenied,),
        timeout=timeout,
        interval=_INTERVAL_SECONDS,
        on_retry=lambda error: _LOG.info("%s is not ready: %s", transport.label, error),
    )


def reboot(transport: Transport, how: Reboot = "", *, timeout: float) -> str | None:
    """Restart a board and wait until it runs commands again; return the id of the new boot.

    After a restart into the boot loader, or a shutdown, the board does not come back: then wait
    until it is gone, and return None. ``timeout`` (s) limits the total. Raises ConfigError (not
    possible over this link), LinkError, BoardError (it did not restart in time).
    """
    deadline = time.monotonic() + timeout
    before = boot_id(transport, timeout=min(timeout, _ANSWER_SECONDS))
    transport.request_reboot(how, timeout=min(timeout, _ANSWER_SECONDS))
    seen = [before]
    silences = 0
    last: InfraError | None = None

    def done() -> bool:
        nonlocal silences, last
        left = max(deadline - time.monotonic(), 0.1)
        try:
            seen.append(boot_id(transport, timeout=min(left, _ANSWER_SECONDS)))
        except (LinkError, BoardError) as error:
            last = error
            silences += 1
        else:
            silences = 0
        return silences >= _SILENCES if how else seen[-1] != before

    left = deadline - time.monotonic()
    if wait_until(done, timeout=left, interval=_INTERVAL_SECONDS):
        return None if how else seen[-1]
    answers = silences == 0
    raise BoardError(
        f"{transport.label}: restart requested, but it "
        + ("still runs the same boot" if answers else "did not come back")
        + f" after {timeout:g} s",
        hint="switch its power off and on",
        details=None if answers or last is None else last.message,
    )
