"""Measurement of a board's memory and storage: the agent runs as an ordinary job.

As a job it survives a lost link, is refused if another controller has the board, and is stopped by
the agent if it hangs.
"""

import re
import secrets
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from labctl.board.agent import BoardAgent
from labctl.board.facts import NEAREST, SECTION, sections
from labctl.board.job import STDOUT, TELEMETRY, JobSpec
from labctl.config.printed import read_json
from labctl.errors import OutputNotUnderstood, ProgramFailed, printable
from labctl.records.base import Record
from labctl.records.probe import CpuClock, MemoryRate, StorageRate
from labctl.records.trial import JobStatus
from labctl.results.telemetry import held_down_share, others_share, read_telemetry
from labctl.transport.base import Transport, remote_words, require

_TIMEOUT_SECONDS = 20.0
#: Time (s) for the agent in addition to its measurement: writing and removing its file.
_BESIDES_SECONDS = 180.0
_CLOCKS = {
    "scaling_governor": "governor",
    "scaling_cur_freq": "current_khz",
    "cpuinfo_min_freq": "lowest_khz",
    "cpuinfo_max_freq": "highest_khz",
}
_SCRIPT = f"""\
section clocks
for file in {" ".join(f"/sys/devices/system/cpu/cpu[0-9]*/cpufreq/{name}" for name in _CLOCKS)}; do
  [ ! -f "$file" ] || echo "$file $(cat "$file" 2>/dev/null)"
done
section device
df -P -k "$directory" 2>/dev/null
:
"""

_Answer = TypeVar("_Answer", bound=Record)


@dataclass(frozen=True)
class Effort:
    """Duration of the measurement, and size of its file (None: the agent's choice)."""

    memory_s: float = 3.0
    storage_s: float = 20.0
    file_bytes: int | None = None


QUICK = Effort()
#: About two minutes on a phone-class board; the file is larger than the storage's own cache.
FULL = Effort(memory_s=10.0, storage_s=80.0, file_bytes=1 << 30)


@dataclass(frozen=True)
class MeasuredJob:
    """End of a job, its files by name, and the CPU use of everything else meanwhile.

    ``others_share`` is relative to the time of one CPU; None if the board does not report it.
    """

    status: JobStatus
    files: Mapping[str, bytes]
    others_share: float | None
    #: Share of the telemetry's samples; None if the board reports neither limits nor cooling.
    held_down_share: float | None = None


class MemoryBench(Record):
    """The reply of ``agent bench-memory``, and ``others_share`` as in :class:`MeasuredJob`."""

    others_share: float | None = None
    held_down_share: float | None = None
    agent_version: str
    buffer_bytes: int
    last_cache_bytes: int | None = None
    instructions: str
    results: tuple[MemoryRate, ...]


class StorageBench(Record):
    """The reply of ``agent bench-storage``, and ``others_share`` as in :class:`MeasuredJob`."""

    others_share: float | None = None
    held_down_share: float | None = None
    agent_version: str
    file_bytes: int
    direct_accepted: bool
    results: tuple[StorageRate, ...]


class AgentFacts(Record):
    """The part of ``agent facts`` that a probe needs in addition to :class:`BoardFacts`."""

    agent_version: str
    page_size_bytes: int | None = None
    temps_mc: Mapping[str, int] = {}
    temps_untrusted: Mapping[str, str] = {}


class Measuring:
    """Measurements on one held board: ``epoch`` belongs to the lease at ``lease_path``.

    ``check_lease`` gives a sign of life before each measurement, and raises LeaseLost. Every method
    raises LinkError, LeaseLost, BoardError, ProgramFailed (the agent could not measure) and
    OutputNotUnderstood.
    """

    def __init__(
        self,
        transport: Transport,
        agent: BoardAgent,
        workdir: str,
        *,
        epoch: int,
        lease_path: str,
        check_lease: Callable[[], None],
    ):
        self._transport = transport
        self._agent = agent
        self._workdir = workdir
        self._epoch = epoch
        self._lease_path = lease_path
        self._check_lease = check_lease

    def memory(self, effort: Effort) -> MemoryBench:
        """Measure reads of DRAM with 1, 2, 4 ... threads."""
        return self._bench(MemoryBench, ("bench-memory",), effort.memory_s)

    def storage(self, effort: Effort) -> StorageBench:
        """Measure reads of a file in the job's directory; remove the file afterwards."""
        file = ".bench"
        size = () if effort.file_bytes is None else ("--bytes", str(effort.file_bytes))
        words = ("bench-storage", "--file", file, *size)
        return self._bench(StorageBench, words, effort.storage_s)

    def facts(self) -> AgentFacts:
        """Return the agent's current facts."""
        words = remote_words(self._agent.path, "facts")
        answer = require(
            self._transport.run(words, timeout=_TIMEOUT_SECONDS), "cannot ask the agent for facts"
        )
        return self._understood(AgentFacts, answer.text.encode())

    def clocks_and_device(self) -> tuple[tuple[CpuClock, ...], str | None]:
        """Return the CPUs' clocks, and the device of the work directory."""
        script = f"{SECTION}directory={remote_words(self._workdir)}\n{NEAREST}{_SCRIPT}"
        answers = sections(
            require(
                self._transport.run(script, timeout=_TIMEOUT_SECONDS),
                "cannot look at the board's CPUs",
            ).text
        )
        lines = answers.get("device", "").strip().splitlines()
        return _clocks(answers.get("clocks", "")), lines[-1].split()[0] if len(lines) > 1 else None

    def job(self, argv: tuple[str, ...], timeout_s: float) -> MeasuredJob:
        """Run a program as a job, and remove its files from the board."""
        self._check_lease()
        directory = self._agent.job_directory(f"probe-{secrets.token_hex(8)}")
        spec = JobSpec(directory, argv, timeout_s, self._epoch, self._lease_path)
        status = self._agent.wait(self._agent.start(spec), timeout_s=timeout_s)
        with tempfile.TemporaryDirectory(prefix="labctl-probe-") as local:
            pulled = self._agent.collect(directory, Path(local), status=status)
            files = {name: path.read_bytes() for name, path in pulled.items()}
            samples = read_telemetry(Path(local) / TELEMETRY).samples
        self._agent.remove(directory)
        return MeasuredJob(status, files, others_share(samples), held_down_share(samples))

    def _bench(self, answer: type[_Answer], words: tuple[str, ...], seconds: float) -> _Answer:
        argv = (self._agent.path, *words, "--seconds", f"{seconds:g}")
        job = self.job(argv, seconds + _BESIDES_SECONDS)
        output = job.files.get(STDOUT, b"")
        if job.status.exit_status != 0:
            raise self._failure(words[0], output, job.status.error or f"it {job.status.outcome}")
        found = self._understood(answer, output)
        shares = {"others_share": job.others_share, "held_down_share": job.held_down_share}
        return found.model_copy(update=shares)

    def _failure(self, command: str, output: bytes, outcome: str) -> ProgramFailed:
        """Return the error for the agent's failure.

        Too little space or memory does not end a probe.
        """
        try:
            why = str(read_json(output)["message"])
        except (ValueError, KeyError, TypeError):
            why = outcome
        return ProgramFailed(
            f"{self._transport.label}: `agent {command}` could not measure: {printable(why)}",
            details=output.decode(errors="replace")[-2000:] or None,
        )

    def _understood(self, answer: type[_Answer], output: bytes) -> _Answer:
        try:
            return answer.of_json(output, extra="ignore")
        except ValueError as error:
            raise OutputNotUnderstood(
                f"{self._transport.label}: the agent's answer cannot be understood",
                details=output.decode(errors="replace")[-2000:],
            ) from error


def _clocks(text: str) -> tuple[CpuClock, ...]:
    found: dict[int, dict[str, str]] = {}
    for match in re.finditer(r"(?m)^\S*/cpu(\d+)/cpufreq/(\w+) (\S+)$", text):
        found.setdefault(int(match[1]), {})[_CLOCKS[match[2]]] = match[3]
    return tuple(CpuClock.model_validate({"cpu": cpu, **found[cpu]}) for cpu in sorted(found))
