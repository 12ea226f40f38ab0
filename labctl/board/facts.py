"""Facts of a board before labctl has any file on it.

One shell script for mksh and toybox reads everything. A fact that the board does not report is
``None``. Once the agent is on the board, it corrects some facts
(:meth:`labctl.board.agent.BoardAgent.refine`).
"""

import posixpath
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

from labctl import process
from labctl.board import android
from labctl.config.lab import WORKDIR
from labctl.config.recipe_parts import cpu_numbers
from labctl.errors import BoardError, BoardNoSpace, HostError, LinkError, printable
from labctl.records.board import BoardFacts, CpuFacts, Execution
from labctl.transport.base import Transport, last_object, remote_words, require
from labctl.units import ranges
from labctl.virtual.marks import BOOT_ID, EMULATOR, FAKES, IS_VIRTUAL, MARK

_MARK = "@labctl "
#: A name in a device tree (``vendor,model`` by its specification), and the maximum number kept.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9,.+_-]{0,63}")
_MOST_NAMES = 16
_INODES_SECONDS = 10.0

#: Defines ``section NAME``, which begins a new section.
SECTION = f'section() {{ echo; echo "{_MARK}$1"; }}\n'

#: Sets ``$directory`` to itself or its nearest parent that exists.
NEAREST = """\
while [ ! -d "$directory" ] && [ "$directory" != / ]; do
  directory=${directory%/*}
  [ -n "$directory" ] || directory=/
done
"""


def sections(text: str) -> dict[str, str]:
    """Split a text into its sections."""
    found: dict[str, str] = {}
    for part in re.split(f"(?m)^{re.escape(_MARK)}", text)[1:]:
        name, _, body = part.partition("\n")
        found[name.strip()] = body
    return found


#: Number of the capability (``linux/capability.h``).
_CAP_SYS_NICE = 23
#: Read by one ``cat``, which every board has: each line shows from which file it comes.
_FILES = "/proc/cpuinfo /proc/self/status /proc/meminfo /proc/mounts"

#: Uses the nearest existing directory: a probe creates nothing on the board. Runs few programs: on
#: a small core, starting a program takes longer than reading a file.
_SCRIPT = f"""\
section system; uname -rm
section boot; echo "{BOOT_ID}"
section sandbox; echo "${MARK}"
section emulator; echo "${EMULATOR}"
section shell; echo "${{KSH_VERSION:-$BASH_VERSION}}"
section files; cat {_FILES} 2>/dev/null
if [ -f "${FAKES}/memory_kb" ] && kb=$(cat "${FAKES}/memory_kb" 2>/dev/null); then
  section memory; echo "MemTotal: $kb kB"; echo "MemAvailable: $kb kB"
fi
section os
if command -v param >/dev/null 2>&1; then
  bounded=; command -v timeout >/dev/null 2>&1 && bounded='timeout 5'
  for name in const.product.software.version const.ohos.fullname; do
    $bounded param get $name 2>/dev/null </dev/null || echo
  done
fi
{android.SCRIPT}section serial; file=/proc/device-tree/serial-number
{{ [ ! -e $file ] || echo "$(cat $file)"; }} 2>/dev/null  # ends with NUL
section compatible; {{ xargs -0 -n 1 echo </proc/device-tree/compatible; }} 2>/dev/null
section directory; cd "$directory" && pwd -P
section space; df -P -k "$directory" 2>/dev/null
:
"""


def ask(transport: Transport, script: str, *, timeout: float) -> dict[str, str]:
    """Run a script that prints sections, and return the sections. Raises LinkError, BoardError."""
    answer = transport.run(f"{SECTION}{script}", timeout=timeout)
    return sections(require(answer, f"{transport.label}: cannot ask for facts").text)


def question(workdir: str) -> str:
    """Return the script for :func:`ask`; it changes nothing.

    ``workdir`` need not exist: free space is reported for its future file system.
    """
    return f"directory={remote_words(workdir)}\n{NEAREST}{_SCRIPT}"


def agent_question(path: str) -> str:
    """Return the script that reads the agent's facts, if the agent in the store is good.

    Runs within :meth:`labctl.board.store.BoardStore.missing`; :meth:`BoardAgent.refine` reads the
    output.
    """
    # If the agent fails, it is run again separately to explain its error.
    ask = f"section facts; {remote_words(path, 'facts')} 2>/dev/null </dev/null || :"
    return f'case " $good " in *" {path.rpartition("/")[2]}.stamp "*) {ask};; esac'


def tells_facts(text: str) -> bool:
    """Return True if the text contains the agent's facts instead of an error."""
    return "boot_id" in (last_object(text) or {})


def probe(transport: Transport, *, workdir: str, timeout: float) -> BoardFacts:
    """Ask a board for its facts with one command. Raises as :func:`ask` and :func:`facts_in`."""
    return facts_in(ask(transport, question(workdir), timeout=timeout), transport, workdir)


def facts_in(answers: Mapping[str, str], transport: Transport, workdir: str) -> BoardFacts:
    """Parse the answers to :func:`question`.

    Raises BoardError if they lack machine, kernel or boot id.
    """
    files = answers.get("files", "")
    # The kernel comes before the machine, in any order of the options (uname(1)).
    kernel, _, machine = _needed(answers, "system", transport).rpartition(" ")
    if not kernel:
        raise BoardError(f"{transport.label}: the board does not report its kernel")
    memory = _memory(answers.get("memory") or files)
    sandbox, emulator = _line(answers, "sandbox"), _line(answers, "emulator")
    if sandbox is not None:
        execution = Execution.NATIVE_HOST if emulator is None else Execution.EMULATED
    elif _line(answers, "boot") == _own_boot():
        execution = Execution.NATIVE_HOST
    else:
        execution = Execution.BOARD
    facts = BoardFacts(
        execution=execution,
        machine=machine,
        kernel=kernel,
        boot_id=_needed(answers, "boot", transport),
        os_version=_os_version(answers.get("os", "")),
        shell=_line(answers, "shell"),
        emulator=emulator if sandbox is not None else None,
        cpus=tuple(_cpus(files)),
        cpus_allowed=_cpu_list(files),
        may_raise_priority=_may_raise_priority(files),
        memory_total_bytes=memory.get("MemTotal"),
        memory_available_bytes=memory.get("MemAvailable"),
        serial=_line(answers, "serial"),
        compatible=_names(answers.get("compatible", "")) if sandbox is None else (),
        storage_free_bytes=free_bytes(answers.get("space", "")),
        storage_kind=_file_system(files, _line(answers, "directory") or workdir),
        phone_state=android.phone_state(answers),
    )
    properties = android.properties_in(answers.get("properties", ""))
    return facts.model_copy(update=android.phone_facts(properties))


def virtual_workdir(transport: Transport, *, timeout: float) -> str | None:
    """Return the workdir in a virtual board's own folder; None if the board is not virtual.

    Asks the board: its address does not show this, because a tunnel to a real board also ends on
    this host. Raises LinkError, BoardError.
    """
    asked = transport.run(
        f'! {IS_VIRTUAL} || echo "$TMPDIR/{posixpath.basename(WORKDIR)}"', timeout=timeout
    )
    marks = require(asked, f"{transport.label}: cannot ask whether it is virtual").text.strip()
    return marks or None


def _own_boot() -> str | None:
    """Return the boot id of this host: a board with the same id is this host, over any link."""
    try:
        return process.boot_id()
    except HostError:
        return None


def _line(answers: Mapping[str, str], name: str) -> str | None:
    """Return the only line of a section, safe for a terminal; None if it is empty."""
    return printable(answers.get(name, "").strip()) or None


def _names(text: str) -> tuple[str, ...]:
    """Return the names in a board's device tree; ignore invalid names."""
    return tuple(name for name in text.split()[:_MOST_NAMES] if _NAME.fullmatch(name))


def _needed(answers: Mapping[str, str], name: str, transport: Transport) -> str:
    value = _line(answers, name)
    if value is None:
        raise BoardError(f"{transport.label}: the board does not report its {name}")
    return value


def _memory(text: str) -> dict[str, int]:
    """Return lines like /proc/meminfo's in bytes (proc(5): the unit ``kB`` is 1024 bytes)."""
    lines = re.finditer(r"(?m)^(\w+):\s+(\d+) kB$", text)
    return {match[1]: int(match[2]) * 1024 for match in lines}


def _os_version(text: str) -> str | None:
    """Return the first valid reply of OpenHarmony's ``param get``.

    Its errors look like values.
    """
    for line in text.splitlines():
        value = line.strip()
        if value and "fail" not in value.lower():
            return printable(value)
    return None


def _cpus(text: str) -> Iterator[CpuFacts]:
    """Yield the kinds of cores in /proc/cpuinfo, in the order of their first core."""
    kinds: dict[tuple[str | None, ...], int] = {}
    for block in re.split(r"\n\s*\n", text):
        fields = {
            match[1].strip(): match[2].strip()
            for match in re.finditer(r"(?m)^([^:\n]+?)\s*:(.*)$", block)
        }
        if "processor" in fields:
            features = fields.get("Features", fields.get("flags"))
            kind = (
                fields.get("CPU implementer"),
                fields.get("CPU part"),
                fields.get("model name"),
                features,
            )
            kinds[kind] = kinds.get(kind, 0) + 1
    for (implementer, part, model, features), count in kinds.items():
        yield CpuFacts(
            count=count,
            implementer=implementer,
            part=part,
            model=model,
            features=tuple((features or "").split()),
        )


def _cpu_list(status: str) -> str | None:
    """Return the CPUs that this shell may use (proc(5)); its jobs cannot use others."""
    allowed = re.search(r"(?m)^Cpus_allowed_list:[ \t]*(.*)$", status)
    try:
        return ranges(cpu_numbers(allowed[1].strip())) if allowed else None
    except ValueError:
        return None


def _may_raise_priority(status: str) -> bool | None:
    """Return True if this shell has CAP_SYS_NICE (capabilities(7)), as root usually has."""
    effective = re.search(r"(?m)^CapEff:[ \t]*([0-9a-fA-F]{1,16})$", status)
    return bool(int(effective[1], 16) >> _CAP_SYS_NICE & 1) if effective else None


def free_bytes(text: str) -> int | None:
    """Return the fourth column of ``df -P -k`` (POSIX) in bytes: what this user may still write.

    For root, toybox includes the space reserved for root; coreutils does not.
    """
    match = re.search(r"\s(\d+)\s+(\d+)\s+(\d+)\s+\d+%\s", text)
    return int(match[3]) * 1024 if match else None


@contextmanager
def explaining_full_storage(transport: Transport, directory: str) -> Iterator[None]:
    """Say that inodes are missing if the board's storage is full although bytes are free."""
    try:
        yield
    except BoardNoSpace as error:
        command = f'directory={remote_words(directory)}\n{NEAREST}df -P -i "$directory"'
        with suppress(LinkError, BoardError):  # else: the board's own message
            answer = transport.run(command, timeout=_INODES_SECONDS).text
            # Inodes, used, free: some file systems have no limit, and report 0 or "-" inodes.
            counted = re.search(r"\s([1-9]\d*)\s+\d+\s+0\s+\S+\s", answer)
            if counted and "inode" not in error.message:
                error.message += f": no inodes are left (of {counted[1]})"
                error.hint = "remove files on the board, however small: each takes an inode"
        raise


def _file_system(mounts: str, directory: str) -> str | None:
    """Return the type of the file system mounted nearest above a directory."""
    best: tuple[int, str] | None = None
    for line in mounts.splitlines():
        fields = line.split()
        if len(fields) < 3:
            continue
        point = fields[1]
        if "\\" in point:  # proc(5) escapes blanks
            point = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), point)
        inside = directory == point or directory.startswith(point.rstrip("/") + "/")
        # A later mount hides an earlier one at the same place.
        if inside and (best is None or len(point) >= best[0]):
            best = (len(point), fields[2])
    return best[1] if best else None
