"""Jobs on a board as the agent tells of them: what to start, what was started, how it stands."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from labctl.records import JobStatus

#: Files of a job's directory, as the agent writes them (toolchains/agent/README.md).
STARTED, STATUS = "started.json", "status.json"
STDOUT, STDERR, TIMELINE, TELEMETRY = "stdout", "stderr", "timeline", "telemetry"
JOB_FILES = (STARTED, STATUS, STDOUT, STDERR, TIMELINE, TELEMETRY)

#: The outcome of a program that could not be executed.
SPAWN_FAILED = "spawn-failed"
#: Outcomes of jobs whose output the board could not keep.
OUTPUT_LOST = ("no-space", "write-failed")

DEFAULT_SAMPLE_MS = 1000
DEFAULT_MAX_OUTPUT_BYTES = 64 << 20


@dataclass(frozen=True)
class JobSpec:
    """A program to run on a board.

    ``directory`` is the job's own, absolute, new: its working directory, where its files end up.
    ``argv[0]`` is an absolute path. ``timeout_s`` is held by the agent, on the board.
    ``lease_path`` is the lease that has to have no greater ``epoch``; None asks for none.
    ``cpus`` is a list such as ``0-3,5`` of the CPUs that the program may use (None: all), ``nice``
    is added to the priority of the agent.
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

    def agent_words(self, agent: str) -> tuple[str, ...]:
        """The words that start it; the variables come from ``env``, which boards have."""
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
            "--",
            *self.argv,
        )


@dataclass(frozen=True)
class Started:
    """A job that runs. ``emulator``: the emulator's command that was put before the program."""

    directory: str
    pid: int
    job_pid: int
    boot_id: str
    start_mono_ns: int
    emulator: str | None


class JobState(StrEnum):
    """How a job stands. A restarted board is no state: it raises BoardRebooted."""

    RUNNING = "running"
    FINISHED = "finished"
    LOST = "lost"  # its supervisor was killed; nothing is known of its end
    ABSENT = "absent"  # nothing was started in that directory


@dataclass(frozen=True)
class JobProgress:
    """A look at a job.

    ``mono_ns`` is the board's monotonic clock at the look; the bytes are those on its disk, up to
    two seconds behind while it runs (None: no such file). ``status`` is there once it finished.
    """

    state: JobState
    mono_ns: int
    stdout_bytes: int | None
    stderr_bytes: int | None
    status: JobStatus | None = None
