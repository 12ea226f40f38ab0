"""Jobs on a board as the agent reports them: start, state, files and refusals.

A refusal becomes an error with the right blame.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, ValidationError, ValidatorFunctionWrapHandler, field_validator

from labctl.errors import (
    BoardError,
    ConfigError,
    LabctlError,
    LeaseLost,
    ProgramFailed,
    ProtocolError,
    SurvivingProcess,
    lacking,
    printable_line,
)
from labctl.files import appearing, host_writes, sync_directory
from labctl.records.base import Record
from labctl.records.telemetry import TelemetrySample
from labctl.records.trial import JobStatus
from labctl.results.telemetry import COUNTERS
from labctl.transport.base import CommandResult, board_error, remote_words, require


class DirectoryUsed(BoardError):
    """The directory already has a job, or a job is being started there."""


#: Class, message and hint for an agent's ``error``; otherwise its own message is used.
_KNOWN: Mapping[str, tuple[type[LabctlError], str, str]] = {
    "stale-epoch": (
        LeaseLost,
        "another controller has taken the board: {}",
        "wait until the board is free, then run again",
    ),
    "exec-format": (
        ConfigError,
        "the board cannot execute this program: {}",
        "was it built for the board's target?",
    ),
    "cpus": (
        ConfigError,
        "the board refused the job's setting: {}",
        "`labctl boards --json` shows its number of CPUs; they count from 0",
    ),
    "nice": (
        ConfigError,
        "the board refused the job's setting: {}",
        "only root may raise a priority",
    ),
    "directory-used": (DirectoryUsed, "{}", "a job's directory serves one job, ever"),
    "survivor": (SurvivingProcess, "{}", SurvivingProcess.usual_hint),
    "spawn-failed": (ProgramFailed, "{}", "`labctl deploy` sends programs to the board"),
    "usage": (
        ProtocolError,
        "the agent on the board has another version: {}",
        "`labctl build --target TARGET --product agent`, then `labctl deploy`",
    ),
}


def refusal(kind: str, message: str, what: str) -> LabctlError:
    """Convert the agent's refusal (``error`` in its JSON) to an error with the right blame."""
    if kind not in _KNOWN:
        return board_error(message, what)
    if kind == SPAWN_FAILED and (found := lacking(message)):
        return found
    error, sentence, hint = _KNOWN[kind]
    return error(sentence.format(message), hint=hint)


#: Files in a job's directory, as written by the agent (toolchains/agent/README.md).
STARTED, STATUS = "started.json", "status.json"
STDOUT, STDERR, TIMELINE, TELEMETRY = "stdout", "stderr", "timeline", "telemetry"
JOB_FILES = (STARTED, STATUS, STDOUT, STDERR, TIMELINE, TELEMETRY, COUNTERS)

#: Outcome of a program that could not be executed.
SPAWN_FAILED = "spawn-failed"
#: Outcomes of jobs whose output the board could not store.
OUTPUT_LOST = ("no-space", "write-failed")
#: Outcome of a job that changed the agent's files in its directory.
FILES_CHANGED = "files-changed"

DEFAULT_SAMPLE_MS = 1000
DEFAULT_MAX_OUTPUT_BYTES = 64 << 20


@dataclass(frozen=True)
class JobSpec:
    """A program to run on a board.

    ``directory`` is the job's own, absolute and new: its working directory, which gets its files.
    ``argv[0]`` is an absolute path. ``timeout_s`` is enforced by the agent, on the board. The lease
    at ``lease_path`` must not have a greater ``epoch``; None: no check. ``cpus`` is a list such as
    ``0-3,5`` of the CPUs that the program may use (None: all). ``nice`` is added to the agent's
    priority. ``memlock``: the program may lock as much memory as is permitted. ``resident`` is a
    file: the agent reports its share in memory before the program starts.
    """

    directory: str
    argv: tuple[str, ...]
    timeout_s: float
    epoch: int
    lease_path: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    sample_ms: int = DEFAULT_SAMPLE_MS
    max_output_bytes: int = DEFAULT_MAX_OUTPUT_BYTES
    cpus: str | None = None
    nice: int = 0
    resident: str | None = None
    memlock: bool = False

    def agent_words(self, agent: str) -> tuple[str, ...]:
        """Return the words that start the agent; ``env``, which boards have, sets the variables."""
        variables = tuple(f"{name}={value}" for name, value in self.environment.items())
        lease = () if self.lease_path is None else ("--lease", self.lease_path)
        return (
            *(("env", *variables) if variables else ()),
            agent,
            "run",
            *("--dir", self.directory),
            *("--timeout", f"{self.timeout_s:.3f}"),
            *("--epoch", str(self.epoch)),
            *lease,
            *("--sample-ms", str(self.sample_ms)),
            *("--max-output-bytes", str(self.max_output_bytes)),
            *(() if self.cpus is None else ("--cpus", self.cpus)),
            *(("--nice", str(self.nice)) if self.nice else ()),
            *(() if self.resident is None else ("--resident", self.resident)),
            *(("--memlock", "1") if self.memlock else ()),
            "--",
            *self.argv,
        )


class Survivor(Record):
    """A process that survived its job's supervisor, and was ended."""

    pid: int
    name: str
    sign: str = Field(description="by which it was known: survivors.h of the agent")

    def __str__(self) -> str:
        return f"{self.pid} ({printable_line(self.name)})"


class Started(Record):
    """A started job. ``emulator``: the emulator's command, put before the program.

    ``cpus``, ``nice`` and ``memlock_bytes`` (maximum memory that it may lock) are the kernel's
    values; None if unknown.
    """

    directory: str
    pid: int
    job_pid: int
    boot_id: str
    start_mono_ns: int
    emulator: str | None
    cpus: str | None = None
    nice: int | None = None
    memlock_bytes: int | Literal["unlimited"] | None = None


class JobState(StrEnum):
    """State of a job. A restart of the board is not a state: it raises BoardRebooted."""

    RUNNING = "running"
    FINISHED = "finished"
    LOST = "lost"  # its supervisor was killed; the end of the job is unknown
    ABSENT = "absent"  # the directory has no started job


class JobProgress(Record):
    """Progress of a job.

    The bytes, ``stderr_end`` (the end of its standard error) and ``sample`` come from the board's
    disk, up to three seconds old while the job runs: reading them triggers no measurement.
    """

    state: JobState
    boot_id: str
    mono_ns: int = Field(description="the board's monotonic clock at that moment")
    stdout_bytes: int | None = Field(description="None: no such file")
    stderr_bytes: int | None = Field(description="None: no such file")
    stderr_end: str | None = None
    sample: TelemetrySample | None = Field(None, description="part of the last one")
    status: JobStatus | None = Field(description="present once it has finished")

    @field_validator("sample", mode="wrap")
    @classmethod
    def _only_for_show(
        cls, value: Any, validate: ValidatorFunctionWrapHandler
    ) -> TelemetrySample | None:
        """Parse a value that is only displayed: half a sample on the disk must not end a run."""
        try:
            sample: TelemetrySample | None = validate(value)
        except ValidationError:
            return None
        return sample


#: Files with a smaller total size come with the reply that contains their hashes.
TOGETHER_BYTES = 256 << 10
_HASHED = re.compile(rb"([0-9a-f]{64})  (\d{1,19})  (.+)")
#: Size by which a file of the agent may exceed the output of both streams, due to buffers.
_BESIDE_BYTES = 16 << 20


def bring_files(agent: str, directory: str, max_output_bytes: int) -> str:
    """Return the command whose reply :meth:`BroughtFiles.of` reads.

    It prints a line for each existing file of a job (like ``agent hash``), an empty line, and the
    contents of the files one after another, unless they are large. It does not read other kinds of
    entries under these names, or files larger than any file of the agent.
    """
    largest = str(max_output_bytes + _BESIDE_BYTES)
    # mksh counts with 32 bits: a size of more than 6 digits is replaced, not added.
    return f"""\
cd {remote_words(directory)} || exit
set --
for name in {remote_words(*JOB_FILES)}; do
  [ ! -e "$name" ] && [ ! -L "$name" ] || set -- "$@" "$name"
done
[ $# != 0 ] || exit 0
hashed=$({remote_words(agent, "hash", "--plain", largest)} "$@"); status=$?
echo "$hashed"
[ $status = 0 ] || exit $status
echo
bytes=0 words=0
for word in $hashed; do
  words=$((words + 1))
  [ $((words % 3)) = 2 ] || continue
  [ ${{#word}} -le 6 ] || word={TOGETHER_BYTES + 1}
  bytes=$((bytes + word))
done
[ $bytes -gt {TOGETHER_BYTES} ] || exec cat "$@"
"""


def files_changed(what: str) -> ProgramFailed:
    """Return the error of a job whose files differ from what the agent wrote."""
    return ProgramFailed(
        f"the program changed the files in which its output was kept: {printable_line(what)}",
        hint="a program may write to its folder, but not to the agent's files there",
    )


def check_lengths(files: Mapping[str, Path], status: JobStatus) -> None:
    """Raise ProgramFailed unless the fetched streams have the lengths in the status."""
    if status.outcome in OUTPUT_LOST:
        return
    for name, size_bytes in ((STDOUT, status.stdout_bytes), (STDERR, status.stderr_bytes)):
        actual = files[name].stat().st_size if name in files else None
        if actual != size_bytes:
            raise files_changed(f"{name} has {actual} bytes, not {size_bytes}")


@dataclass(frozen=True)
class BroughtFiles:
    """Files of a job: their names, and the files that came complete with the reply."""

    names: tuple[str, ...]
    #: Each has the length and the hash reported by the agent.
    contents: Mapping[str, bytes]

    @classmethod
    def of(cls, answer: CommandResult, what: str) -> Self:
        """Read the reply to :func:`bring_files`, in the step ``what``.

        Raises ProgramFailed, ProtocolError, BoardError.
        """
        changed = re.search(rb"(?m)^changed (.+)$", answer.output)
        if changed and answer.exit_status == 1:  # the reply has no contents
            raise files_changed(changed[1].decode(errors="replace"))
        require(answer, what)
        head, _, rest = answer.output.partition(b"\n\n")
        names, contents = [], {}
        for line in head.splitlines():
            match = _HASHED.fullmatch(line)
            name = match[3].decode(errors="replace") if match else ""
            if match is None or name not in JOB_FILES:
                raise ProtocolError(
                    "the board's answer on the files of a job cannot be understood",
                    details=repr(line[:200]),
                )
            names.append(name)
            content, rest = rest[: int(match[2])], rest[int(match[2]) :]
            if len(content) == int(match[2]) and sha256(content).hexdigest() == match[1].decode():
                contents[name] = content
        return cls(tuple(names), contents)

    def write(self, folder: Path) -> set[str]:
        """Write the files that came complete; return their names. Raises HostError."""
        for name, content in self.contents.items():
            with appearing(folder / name, sync=False) as file:
                file.write(content)
        if self.contents:
            with host_writes(folder):
                sync_directory(folder)
        return set(self.contents)
