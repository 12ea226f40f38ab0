"""A first start of a built tool: here if this host is such a machine, else under the emulator."""

import shutil
import signal
from pathlib import Path

from labctl import process
from labctl.build.artifact import SmokeRun
from labctl.build.spec import ToolSpec
from labctl.config.target import Target
from labctl.errors import ConfigError, LabctlError, ProgramFailed

SMOKE_SECONDS = 120.0
_MOST_LINES = 3
#: A shell's, and QEMU's, way to say that a signal ended the program.
_BY_SIGNAL = 128


def smoke_run(name: str, tool: ToolSpec, path: Path, target: Target) -> SmokeRun:
    """Start a tool with its harmless arguments.

    Where it cannot be started the record says why. Raises ConfigError when it uses instructions
    that the machine lacks, ProgramFailed when it ends badly, HostTimeout.
    """
    if tool.smoke is None:
        return SmokeRun(done=False, reason="the build spec has no arguments for one")
    prefix: tuple[str, ...] = ()
    if not target.runs_here:
        if target.emulator is None:
            return SmokeRun(done=False, reason=f"target {target.name} has no emulator")
        emulator = shutil.which(target.emulator.argv[0])
        if emulator is None:
            return SmokeRun(done=False, reason=f"{target.emulator.argv[0]} is not installed")
        prefix = (emulator, *target.emulator.argv[1:])
    argv = (*prefix, str(path), *tool.smoke)
    done = process.run(argv, timeout=SMOKE_SECONDS, env={"LC_ALL": "C"})
    if done.exit_status != tool.smoke_status:
        raise _failure(name, done, target)
    printed = (done.stdout + done.stderr).decode(errors="replace").strip().splitlines()
    return SmokeRun(
        done=True,
        argv=(*prefix, name, *tool.smoke),
        exit_status=done.exit_status,
        output="\n".join(line.replace(str(path), name) for line in printed[:_MOST_LINES]),
    )


def _failure(name: str, done: process.Completed, target: Target) -> LabctlError:
    status = done.exit_status
    number = -status if status < 0 else status - _BY_SIGNAL
    if number == signal.SIGILL:
        where = "this host" if target.runs_here else "the emulator"
        return ConfigError(
            f"{name} uses instructions that {where} does not have (SIGILL)",
            hint=f"zig.cpu or the emulator of target {target.name} does not fit",
        )
    return ProgramFailed(
        f"{name} does not start: it ended with status {status}", details=done.tail(8) or None
    )
