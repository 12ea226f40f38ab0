"""First start of a built tool: directly if this host can run it, else under the emulator."""

import platform
import re
import shutil
import signal
from collections.abc import Sequence
from pathlib import Path

from labctl import process
from labctl.build.manifest import SmokeRun
from labctl.build.spec import ToolSpec
from labctl.config.target import Target
from labctl.errors import ConfigError, LabctlError, ProgramFailed, printable
from labctl.files import scratch
from labctl.gguf.tiny import write_tiny_gguf

SMOKE_SECONDS = 120.0
_MOST_LINES = 3
_MOST_CHARACTERS = 200
#: Exit statuses above it mean, in a shell and in QEMU, that a signal ended the program.
_BY_SIGNAL = 128


def smoke_run(name: str, tool: ToolSpec, path: Path, target: Target) -> SmokeRun:
    """Start a tool with its harmless arguments.

    If it cannot be started, the record has the reason. Raises ConfigError if it uses instructions
    missing on the machine, ProgramFailed if it fails, HostTimeout.
    """
    if tool.smoke is None:
        return SmokeRun(done=False, reason="the build spec has no arguments for one")
    prefix = starter(target)
    if isinstance(prefix, str):
        return SmokeRun(done=False, reason=prefix)
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


def read_options(name: str, tool: ToolSpec, path: Path, target: Target) -> tuple[str, ...] | None:
    """Return the names of a tool's options, from its help; None if it cannot be started here.

    Raises the errors of :func:`smoke_run`, and ProgramFailed if it names no options.
    """
    prefix = starter(target)
    if tool.help is None or isinstance(prefix, str):
        return None
    done = process.run((*prefix, str(path), *tool.help), timeout=SMOKE_SECONDS, env={"LC_ALL": "C"})
    found = option_names((done.stdout + done.stderr).decode(errors="replace"))
    if done.exit_status != 0:
        raise _failure(name, done, target)
    if not found:
        raise ProgramFailed(f"{name} names no options in its help", details=done.tail(8) or None)
    return found


#: Options at the beginning of a line: ``-t,    --threads N``. Text about them is indented more.
_NAMES = re.compile(r"(?m)^ {0,4}(-{1,2}[A-Za-z][\w-]*(?:,? +-{1,2}[A-Za-z][\w-]*)*)")


def option_names(text: str) -> tuple[str, ...]:
    """Return the options that a help text lists, sorted."""
    return tuple(
        sorted({name for line in _NAMES.findall(text) for name in re.split("[ ,]+", line)})
    )


def infer(name: str, words: Sequence[str], path: Path, target: Target) -> SmokeRun:
    """Let a tool run a tiny model, to prove that it can compute.

    If it cannot be started, the record has the reason. Raises the errors of :func:`smoke_run`.
    """
    prefix = starter(target)
    if isinstance(prefix, str):
        return SmokeRun(done=False, reason=prefix)
    with scratch(path.parent, ".infer-") as folder:
        model = write_tiny_gguf(folder / "tiny.gguf")
        given = [word.replace("{model}", str(model)) for word in words]
        argv = (*prefix, str(path), *given)
        done = process.run(argv, timeout=SMOKE_SECONDS, env={"LC_ALL": "C"})
    if done.exit_status != 0:
        raise _failure(name, done, target)
    if not done.stdout.strip():
        raise ProgramFailed(
            f"{name} ran a tiny model and printed nothing", details=done.tail(8) or None
        )
    printed_text = done.stdout.decode(errors="replace").strip().replace(str(model), "tiny.gguf")
    return SmokeRun(
        done=True,
        argv=(*prefix, name, *words),
        exit_status=done.exit_status,
        output=printable(printed_text)[:_MOST_CHARACTERS],
    )


def starter(target: Target) -> tuple[str, ...] | str:
    """Return the words before a program of the target here, or the reason why it cannot run."""
    reason = f"this host is {platform.machine()}"
    if target.runs_here:
        lacking = sorted(set(target.features) - host_features())
        if not lacking:
            return ()
        reason = f"this host's CPU does not have {', '.join(lacking)}"
    if target.emulator is None:
        return f"{reason}, and target {target.name} has no emulator"
    emulator = shutil.which(target.emulator.argv[0])
    if emulator is None:
        return f"{reason}, and {target.emulator.argv[0]} is not installed"
    return (emulator, *target.emulator.argv[1:])


def host_features() -> frozenset[str]:
    """Return the features of this host's CPU, named as in /proc/cpuinfo (proc_cpuinfo(5))."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    named = (line.partition(":") for line in lines)
    return frozenset(
        word
        for key, _, words in named
        if key.strip() in ("flags", "Features")
        for word in words.split()
    )


def _failure(name: str, done: process.Completed, target: Target) -> LabctlError:
    status = done.exit_status
    number = -status if status < 0 else status - _BY_SIGNAL
    if number == signal.SIGILL:
        return ConfigError(
            f"{name} uses instructions that target {target.name} does not name (SIGILL)",
            hint="the target's zig.cpu, its features and its emulator have to fit each other",
        )
    return ProgramFailed(
        f"{name} does not start: it ended with status {status}", details=done.tail(8) or None
    )
