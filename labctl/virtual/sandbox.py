"""The userland of a virtual board: shell and applets like a board's, and a clean end.

Every process of one boot has the same ``LABCTL_SANDBOX`` in its environment. It is the board's boot
id, and it identifies the processes to kill when the board loses power.
"""

import functools
import os
import re
import secrets
import shlex
import shutil
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from labctl import process
from labctl.errors import ConfigError, HostError
from labctl.files import write_atomic
from labctl.hdc.daemon.parameters import PARAMETERS
from labctl.hdc.daemon.version_profile import Version
from labctl.retry import wait_until
from labctl.virtual.fake_sensors import Fakes
from labctl.virtual.marks import EMULATOR, FAKES, MARK

#: labctl's working folder on a board, relative to the board's directory on this host.
WORKDIR = Path("data/local/tmp/labctl")

_BIN = Path("system/bin")
_MARK_FILE = Path(".labctl-boot-id")
#: oom_score_adj of a process that the kernel never kills.
_NEVER_KILLED = "-1000"
_KILL_SECONDS = 10.0
_CLEAN_LOOKS = 3
#: During an exec a process has no environment; an exec takes less than this time (s).
_EXEC_SECONDS = 1.0
#: OpenHarmony's ``param``, with its texts (``services/param/cmd``); the daemon uses the same files.
_PARAM = """#!/bin/sh
cd {folder} || exit
case $1/$2 in
*/*/*|*/.*|*/) echo "param get|set NAME [VALUE]";;
get/*) if [ -f "$2" ]; then IFS= read -r value <"$2"; echo "$value "
       else echo "Get parameter \\"$2\\" fail! errNum is:106!"; fi;;
set/*) printf '%s\\n' "$3" >"$2" && echo "Set parameter $2 $3 success";;
*) echo "param get|set NAME [VALUE]";;
esac
"""
_HDCD = """#!/bin/sh
[ "$1" != -v ] || echo '{version}'
"""
_FALLBACK_NOTE = (
    "mksh and toybox are not both installed: commands run with this host's sh and programs, "
    "which accept more than a board does"
)


@dataclass(frozen=True)
class Sandbox:
    """Processes of one boot of a virtual board. ``note`` names differences from a real board."""

    boot_id: str
    shell: tuple[str, ...]
    environment: dict[str, str]
    note: str | None
    fakes: Fakes
    #: The board's programs; only `param` and `hdcd` if programs of this host replace the others.
    programs: Path


def boot(
    directory: Path,
    *,
    emulator: Sequence[str] = (),
    preload: Path | None = None,
    version: Version = "3.2.0c",
) -> Sandbox:
    """Prepare ``directory`` and start a boot; first kill what is left of an earlier boot.

    ``version`` is the release that its hdcd reports. ``emulator``: words put before ARM64 programs;
    ``preload``: the shared object that does so for programs started by the shell. Raises
    ConfigError, HostError.
    """
    for word in emulator:
        if not word or any(character.isspace() for character in word):
            raise ConfigError(f"an emulator's words cannot be empty or hold spaces: {word!r}")
    if emulator and not Path(emulator[0]).is_absolute():
        raise ConfigError(f"the emulator needs its absolute path, not {emulator[0]!r}")
    directory.mkdir(parents=True, exist_ok=True)
    _require_own_bin(directory)
    _end_earlier_boot(directory)
    boot_id = secrets.token_hex(16)
    write_atomic(directory / _MARK_FILE, f"{boot_id} {_identity(directory)}\n")
    (directory / WORKDIR).mkdir(parents=True, exist_ok=True)
    fakes = Fakes(directory)
    shell, path, note = _userland(directory / _BIN)
    _start_parameters(directory, f"Ver: {version}")
    environment = {
        "PATH": path,
        "HOME": str(directory),
        "TMPDIR": str(directory / "data/local/tmp"),
        MARK: boot_id,
        FAKES: str(fakes.folder),
    }
    if emulator:
        environment[EMULATOR] = " ".join(emulator)
        if preload is not None:
            if re.search(r"[\s:]", str(preload)):
                raise ConfigError(
                    f"the folder of {preload} cannot hold a blank or a colon: LD_PRELOAD cannot",
                    hint="set LABCTL_CACHE to another folder",
                )
            environment["LD_PRELOAD"] = str(preload)
    return Sandbox(boot_id, shell, environment, note, fakes, directory / _BIN)


def _require_own_bin(directory: Path) -> None:
    """Refuse a programs' folder that virtual boards did not make: each boot replaces it."""
    folder = directory / _BIN
    own = (directory / _MARK_FILE).exists() and folder.resolve() == directory.resolve() / _BIN
    if folder.exists() and not own:
        raise ConfigError(
            f"{folder} was not made by a virtual board, and would be replaced",
            hint="give the board an empty folder, or one that a virtual board has used",
        )


def _end_earlier_boot(directory: Path) -> None:
    try:
        words = (directory / _MARK_FILE).read_bytes().decode(errors="replace").split()
    except FileNotFoundError:
        return
    # A copy of a board's folder still has the boot id of the original, which may be running.
    if words and words[1:] in ([], [_identity(directory)]):
        kill_boot(words[0])


def _identity(directory: Path) -> str:
    found = directory.stat()
    return f"{found.st_dev}:{found.st_ino}"


def kill_boot(boot_id: str) -> None:
    """Kill every process of a boot, like a power cut. Raises HostError if one survives.

    A process is identified by its environment, or (in a job) by its limit of file locks.
    """
    if not boot_id:
        return
    clean_looks = 0

    def gone() -> bool:
        nonlocal clean_looks
        clean_looks += 1
        for pid in _marked(boot_id):
            clean_looks = 0
            kill_process(pid, boot_id)
        return clean_looks >= _CLEAN_LOOKS

    if not wait_until(gone, timeout=_KILL_SECONDS, interval=0.02):
        raise HostError(
            f"processes of a stopped virtual board do not end: {sorted(_marked(boot_id))}"
        )


def most_wasteful(boot_id: str) -> int | None:
    """Return the process of a boot that the kernel would kill when out of memory; None if none."""
    worst = max(_marked(boot_id), key=_badness, default=None)
    return None if worst is None or _badness(worst) < (0, 0) else worst


def kill_process(pid: int, boot_id: str, before: Callable[[], None] | None = None) -> bool:
    """Kill one process of a boot; return False if it is gone. ``before`` is called first.

    A reused PID is safe: the handle is opened before the mark is read again.
    """
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        if not _is_of(Path("/proc") / str(pid), boot_id):
            return False
        if before is not None:
            before()
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(handle, signal.SIGKILL)
        return True
    finally:
        os.close(handle)


def _badness(pid: int) -> tuple[int, int]:
    """Return the kernel's OOM score of a process, and its pages to order equal scores.

    The score is below 0 if the kernel would not kill the process, or if it has just ended.
    """
    entry = Path("/proc") / str(pid)
    try:
        pages = int((entry / "statm").read_text(encoding="utf-8").split()[1])
        if (entry / "oom_score_adj").read_text(encoding="utf-8").strip() == _NEVER_KILLED:
            return -1, 0
        return int((entry / "oom_score").read_text(encoding="utf-8")), pages
    except (OSError, IndexError):
        return -1, 0


def _userland(folder: Path) -> tuple[tuple[str, ...], str, str | None]:
    """Return the shell's argv, PATH, and a note if the programs differ from a board's."""
    mksh, toybox = shutil.which("mksh"), shutil.which("toybox")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if mksh is None or toybox is None:
        return ("/bin/sh", "-c"), f"{folder}:{os.defpath}", _FALLBACK_NOTE
    for applet in _applets(toybox):
        (folder / applet).symlink_to(toybox)
    for name in ("sh", "mksh"):
        with suppress(FileNotFoundError):
            (folder / name).unlink()
        (folder / name).symlink_to(mksh)
    return (str(folder / "sh"), "-c"), str(folder), None


def _start_parameters(directory: Path, version: str) -> None:
    """Remove parameters that do not survive a boot; give the board ``param`` and ``hdcd``."""
    folder = directory / PARAMETERS
    folder.mkdir(exist_ok=True)
    for parameter in folder.iterdir():
        if not parameter.name.startswith("persist."):
            parameter.unlink()
    program = directory / _BIN / "param"
    write_atomic(program, _PARAM.format(folder=shlex.quote(str(folder))), mode=0o755)
    write_atomic(directory / _BIN / "hdcd", _HDCD.format(version=version), mode=0o755)
    write_atomic(folder / "const.hdc.version", f"{version}\n")


@functools.cache
def _applets(toybox: str) -> tuple[str, ...]:
    return tuple(process.run([toybox], timeout=10, env={}).text.split())


def _marked(boot_id: str) -> Iterator[int]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and _is_of(entry, boot_id):
            yield int(entry.name)


def _is_of(entry: Path, boot_id: str) -> bool:
    if f"{MARK}={boot_id}".encode() in _environment(entry):
        return True
    with suppress(OSError):
        line = f"Max file locks {_limit(boot_id)} {_limit(boot_id)} locks"
        return line in " ".join((entry / "limits").read_text(encoding="utf-8").split())
    return False


def _limit(boot_id: str) -> int:
    """Return the file lock limit that the agent gives to jobs of a boot; survivors.c says why."""
    number = 0xCBF29CE484222325  # FNV-1a
    for byte in boot_id.encode():
        number = (number ^ byte) * 0x100000001B3 % (1 << 64)
    return 1 << 62 | number % (1 << 62)


def _environment(entry: Path) -> list[bytes]:
    """Return a process's variables; empty if it is gone, another user's, or a zombie.

    Waits while the process is in an exec: afterwards it has its variables again.
    """
    content = b""

    def is_known() -> bool:
        nonlocal content
        content = (entry / "environ").read_bytes()
        return bool(content) or _has_no_variables(entry)

    try:
        wait_until(is_known, timeout=_EXEC_SECONDS, interval=0.001)
    except OSError:
        return []
    return content.split(b"\0")


def _has_no_variables(entry: Path) -> bool:
    """Return True for a kernel thread, and for a process started without variables.

    During an exec the addresses of the environment are 0. If they differ, the exec has ended.
    Source: fields 50 and 51 of /proc/PID/stat, proc_pid_stat(5).
    """
    if not os.access(entry / "exe", os.R_OK):
        return True
    start, end = (entry / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[47:49]
    return start == end != "0"
