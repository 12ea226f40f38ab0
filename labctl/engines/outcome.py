"""Diagnosis of a job's end, common to all programs."""

import re
import signal

from labctl.errors import (
    BoardError,
    BoardNoSpace,
    LabctlError,
    LeaseLost,
    ProgramFailed,
    ProgramTimeout,
    lacking,
)
from labctl.records.trial import JobStatus

_SHELL_SIGNAL_BASE = 128
#: Exit statuses of loaders, `env` and QEMU if they cannot start a program.
_NOT_STARTED = (1, 126, 127, 255)
#: Kind of the missing part -> message of glibc, musl, bionic, QEMU and `env` (GNU, busybox,
#: toybox).
_LACKING = {
    "loader": re.compile(r"qemu-\S{1,80}: Could not open '([^']{1,400})'"),
    "library": re.compile(
        r"(?:error while loading shared libraries: |Error loading shared library )"
        r"([^:\s]{1,400}):|CANNOT LINK EXECUTABLE.{1,400}?library \"([^\"]{1,400})"
    ),
    "interpreter": re.compile(
        r"^(?:\S*/)?env: (?:(?:can't execute )?['\u2018]([^'\u2019]{1,400})['\u2019]"
        r"|exec ([^:\n]{1,400})): No such file",
        re.MULTILINE,
    ),
}

#: Usual cause of a signal, and a hint.
_SIGNALS: dict[int, tuple[str, str]] = {
    signal.SIGILL: (
        "an instruction that this CPU does not support",
        "it was built for another CPU: build it for the board's target",
    ),
    signal.SIGBUS: (
        "most likely a page of a mapped file (the model) could not be read from the storage",
        "`labctl store verify` reads the board's files again; the board's dmesg shows its errors",
    ),
    signal.SIGINT: ("it was interrupted", "run the trial again"),
    signal.SIGTERM: ("stopped by SIGTERM from outside", "run the trial again"),
}


def signal_of(job: JobStatus) -> int | None:
    """Return the signal that ended the job; shells and emulators report status 128 + number."""
    if job.signal is not None:
        return job.signal
    status = job.exit_status
    if status is not None and _SHELL_SIGNAL_BASE < status < _SHELL_SIGNAL_BASE + signal.NSIG:
        return status - _SHELL_SIGNAL_BASE
    return None


def diagnose_outcome(job: JobStatus, *, program: str, output_tail: str) -> LabctlError | None:
    """Return the error of a job; ``None`` if it ended by itself with status 0."""
    if job.succeeded:
        return None
    details = output_tail or None
    error: LabctlError
    match job.outcome:
        case "timeout":
            error = ProgramTimeout(
                f"{program} did not end in time and was stopped after {job.wall_ns / 1e9:.0f} s",
                hint="raise the recipe's timeouts.trial or max_time, or ask for fewer tokens",
                details=details,
            )
        case "output-limit":
            error = ProgramFailed(
                f"{program} wrote more than the output limit and was stopped"
                f" ({job.stdout_bytes} bytes of stdout, {job.stderr_bytes} of stderr)",
                hint=(
                    "a program that waits at a prompt can write without end: check that it"
                    " is the right one"
                ),
                details=details,
            )
        case "spawn-failed":
            said = f"the board could not start {program}: {job.error or 'no reason given'}"
            error = lacking(said) or ProgramFailed(
                said, hint="check that it was built for this board's CPU", details=details
            )
        case "stale-epoch":
            error = LeaseLost(f"another controller holds the board; {program} was not run")
        case "stopped":
            error = BoardError(f"{program} was stopped from outside", details=details)
        case "no-space":
            error = BoardNoSpace(
                f"the board's storage is full: {job.error or 'no reason given'}",
                hint="free some space on the board",
            )
        case "write-failed":
            error = BoardError(f"the board lost output of {program}: {job.error}")
        case _:
            error = _lacks(job, program, output_tail) or _died(job, program, details)
    return error


def _lacks(job: JobStatus, program: str, output_tail: str) -> LabctlError | None:
    """Return the error of a program that ended because a part is missing on the board."""
    if job.exit_status in _NOT_STARTED:
        for kind, pattern in _LACKING.items():
            if found := pattern.search(output_tail):
                name = next(filter(None, found.groups()))
                return lacking(
                    f"{program} cannot start on the board: its {kind} {name} is not there"
                )
    return None


def _died(job: JobStatus, program: str, details: str | None) -> ProgramFailed:
    number = signal_of(job)
    if number is None:
        return ProgramFailed(f"{program} ended with status {job.exit_status}", details=details)
    known = number in {member.value for member in signal.Signals}
    name = signal.Signals(number).name if known else f"signal {number}"
    reason, hint = _killed(job) if number == signal.SIGKILL else _SIGNALS.get(number, (None, None))
    message = f"{program} was killed by {name}" + (f": {reason}" if reason else "")
    return ProgramFailed(message, hint=hint, details=details)


def _killed(job: JobStatus) -> tuple[str, str]:
    """Return the likely sender of a SIGKILL; the agent's own kills have other outcomes."""
    smaller = "use a smaller model or context"
    if job.oom_kills is None:
        return "most likely by the kernel, because memory ran out", smaller
    if job.oom_kills > 0:
        return "by the kernel, because memory ran out", smaller
    return (
        "not by the kernel: it counted no out-of-memory kill",
        "if the board has its own out-of-memory killer, use a smaller model",
    )
