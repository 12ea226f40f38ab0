"""One trial: its model, its conditions, its end and its measurements."""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Literal

from pydantic import Field, JsonValue

from labctl.errors import Blame, LabctlError, ProgramFailed, printable_line
from labctl.records.base import FileRecord, Moment, Record
from labctl.records.board import Execution, PhoneState
from labctl.records.energy import EnergyRecord
from labctl.records.telemetry import BoardState, JobCounters
from labctl.records.timing import TimingRecord

#: Value of a trial's ``comparability`` -> the parameter of its engine that it follows from.
FOLLOWS = {"memlock_bytes": "mlock"}


class TensorMix(Record):
    """The tensors of one GGML type."""

    type: str
    count: int
    bytes: int


class AdapterIdentity(Record):
    """A low-rank adapter that changes a model's weights."""

    file: str = Field(description="base name of the file")
    sha256: str
    tensor_bytes: int
    scale: float

    @property
    def weights(self) -> tuple[str, float]:
        """Hash and scale: two adapters with the same ones change a model alike."""
        return self.sha256, self.scale


class ModelIdentity(Record):
    """A model file; if it is not GGUF, only its bytes are known."""

    key: str = Field(description="name of the model in the recipe")
    file: str = Field(description="base name of the file")
    sha256: str = Field(description="of the file; empty where an imported file does not say it")
    size_bytes: int | None = Field(description="None where an imported file does not say it")
    architecture: str | None = None
    name: str | None = None
    quantization: str | None = Field(
        None, description="from general.file_type, e.g. Q8_0; else the main type"
    )
    parameters: int | None = Field(None, description="number of weights")
    bits_per_weight: float | None = Field(None, description="tensor bytes x 8 / parameters")
    tensor_bytes: int | None = None
    bytes_per_token: int | None = Field(
        None,
        description="weight bytes read for one generated token; of the embedding only one row",
    )
    kv_bytes_per_position: int | None = Field(
        None, description="f16 KV cache for each position of the context"
    )
    context_length: int | None = None
    embedding_length: int | None = Field(None, description="width of the hidden state")
    heads: int | None = Field(
        None, description="attention heads of the layer that has the most of them"
    )
    vocabulary: int | None = Field(None, description="number of tokens the tokenizer knows")
    tensors: tuple[TensorMix, ...] = ()
    cold_tensors: tuple[TensorMix, ...] = Field(
        (),
        description="part of `tensors` that generation hardly reads: tables of which a token needs"
        " one row",
    )
    experts: int | None = Field(
        None, description="number of experts in each layer of a mixture of experts"
    )
    experts_per_token: int | None = None
    requantized_from: str | None = Field(
        None, description="quantization it was derived from, when not from full precision"
    )
    adapters: tuple[AdapterIdentity, ...] = Field(
        (), description="low-rank adapters that it was run with"
    )

    @property
    def weights(self) -> tuple[str, *tuple[tuple[str, float], ...]]:
        """Hash of the file, and those of its adapters with their scales."""
        return self.sha256, *(one.weights for one in self.adapters)

    @property
    def reused_bytes(self) -> int | None:
        """Weights that a generation reads repeatedly; None if unknown."""
        if self.tensor_bytes is None:
            return None
        return self.tensor_bytes - sum(mix.bytes for mix in self.cold_tensors)


class DraftedModel(ModelIdentity):
    """A model with the smaller model that guesses its tokens (speculative decoding)."""

    draft: ModelIdentity

    @classmethod
    def of(cls, model: ModelIdentity, draft: ModelIdentity) -> "DraftedModel":
        """Return a model with its draft."""
        return cls(**dict(model), draft=draft)


class TrialState(StrEnum):
    """End of a trial."""

    OK = "ok"
    FAILED = "failed"
    SKIPPED = "skipped"


#: A line of a program's output that tells why it ended, and how much of it is told.
_ERROR = re.compile(r"\berror\b|out of memory|insufficient memory", re.IGNORECASE)
_MOST_OWN = 160


class Failure(Record):
    """Reason why a trial has no result, or a bad result."""

    kind: str = Field(description="the error's class name")
    blame: Blame
    message: str
    hint: str | None = None
    details: str | None = None
    console_messages: tuple[str, ...] = Field(
        (),
        description="lines of the board's console in which its kernel told a panic, an"
        " out-of-memory kill, a lockup or a restart meanwhile; they explain, and prove nothing",
    )
    console: tuple[str, ...] = Field((), description="the first of these with the lines around it")

    @property
    def told(self) -> str:
        """The message; of a program that only ended with a status, also its own first error."""
        if self.kind != ProgramFailed.__name__ or not self.message.endswith(tuple("0123456789")):
            return self.message
        lines = map(str.strip, (self.details or "").splitlines())
        own = next((line for line in lines if _ERROR.search(line)), "")
        return f"{self.message}: {printable_line(own[:_MOST_OWN])}" if own else self.message

    @property
    def sentence(self) -> str:
        """Blame and message, for people."""
        return f"{self.blame}: {self.told}"

    @classmethod
    def of(cls, error: Exception) -> "Failure":
        """Return the record of an error. An unforeseen error is a bug in labctl."""
        if not isinstance(error, LabctlError):
            return cls(
                kind=type(error).__name__, blame=Blame.INFRA, message=f"bug in labctl: {error}"
            )
        return cls(
            kind=error.kind,
            blame=error.blame,
            message=error.message,
            hint=error.hint,
            details=error.details,
        )


class JobStatus(Record):
    """The agent's ``status.json``: end and resource usage of the program on the board."""

    outcome: str = Field(
        description="exited, signaled, timeout, output-limit, spawn-failed, stale-epoch, stopped,"
        " no-space, write-failed, files-changed"
    )
    exit_status: int | None = None
    signal: int | None = None
    error: str | None = None
    start_mono_ns: int
    end_mono_ns: int
    wall_ns: int
    suspended_ns: int | None = Field(
        None, description="time that the board slept meanwhile; no other time here contains it"
    )
    user_ns: int | None = None
    system_ns: int | None = None
    max_rss_bytes: int | None = None
    minor_faults: int | None = None
    major_faults: int | None = None
    agent_cpu_ns: int | None = None
    longest_pause_ns: int | None = Field(
        None,
        description="longest time in which the agent did something else or was stopped: a stamp is"
        " at most this late, apart from its wait for a CPU",
    )
    longest_stamp_pause_ns: int | None = Field(
        None,
        description="the longest of these before a piece of standard output; None: no output",
    )
    stamp_scheduler: Literal["fifo", "other"] | None = Field(
        None,
        description="scheduling policy of the thread that stamps; fifo: before every normal"
        " program",
    )
    stamp_wait_ns: int | None = Field(
        None,
        description="time in which that thread was ready but had no CPU when standard output came,"
        " sum over all pieces; None: the kernel does not count it, or no output",
    )
    longest_stamp_wait_ns: int | None = Field(
        None, description="the longest of these before one piece of output of either stream"
    )
    leftover_processes: int | None = Field(
        None, description="processes that the program left running at its end; they were killed"
    )
    unkilled_processes: int | None = Field(
        None, description="processes that even SIGKILL did not end"
    )
    confinement: str | None = Field(
        None, description="pid-namespace: the program could not reach the agent that watched it"
    )
    oom_kills: int | None = Field(
        None,
        description="out-of-memory kills by the kernel, on the whole board, while the job ran",
    )
    stdout_bytes: int
    stderr_bytes: int
    boot_id: str
    epoch: int
    state: BoardState | None = Field(None, description="of the board around the job")
    counters: JobCounters | None = None

    @property
    def succeeded(self) -> bool:
        """True if the program ended by itself with status 0."""
        return self.outcome == "exited" and self.exit_status == 0


#: Words in the detail of a check that applies but could not be judged; the reason follows.
NOT_JUDGED = "not judged: "


class Check(Record):
    """A check of a trial. ``ok`` None = it does not apply here, or was not judged."""

    name: str
    ok: bool | None
    detail: str

    @property
    def is_open(self) -> bool:
        """True if the check applies but could not be judged; its detail has the reason."""
        return self.ok is None and NOT_JUDGED in self.detail


class ConditionRecord(Record):
    """One condition of the recipe for the board's state. ``ok`` None = not available here."""

    name: str
    wanted: str
    had: str
    ok: bool | None


class TelemetrySummary(Record):
    """Telemetry while the program ran. ``None`` = not reported by the board."""

    samples: int
    start_temperature_mc: int | None = Field(None, description="of the hottest thermal zone")
    highest_temperature_mc: int | None = None
    untrusted_zones: Mapping[str, str] = Field(
        default_factory=dict,
        description="thermal zone -> what it read, and why that is not a temperature; its values"
        " are absent everywhere",
    )
    unmoved_zones: Mapping[str, str] = Field(
        default_factory=dict,
        description="thermal zone -> how long its value stayed the same while the load and other"
        " zones changed; its values count",
    )
    lowest_khz: int | None = Field(
        None, description="of the CPU that was fastest in each moment: the lowest frequency"
    )
    highest_khz: int | None = None
    memory_hz: int | None = Field(
        None, description="mean clock of the memory while tokens were generated"
    )
    limited: bool | None = Field(
        None,
        description="True if a cooling device was active, or the limit of a CPU or of the memory"
        " was lowered meanwhile",
    )
    major_faults: int | None = None
    read_bytes: int | None = Field(None, description="from storage, by the process")
    read_bytes_per_token: int | None = Field(None, description="while tokens were generated")
    least_available_bytes: int | None = None
    others_share: float | None = Field(
        None,
        description="CPU time of everything else, over the time of one CPU: neither the program's,"
        " with all that it started, nor page reclaim",
    )
    reclaim_share: float | None = Field(
        None,
        description="CPU time of the kernel's threads that free memory (kswapd, kcompactd), over"
        " the time of one CPU",
    )
    steal_share: float | None = None
    runqueue_wait_ns: int | None = Field(
        None,
        description="longest time in which threads of the first process were ready but had no CPU,"
        " over all samples; without its child processes",
    )
    instructions_per_cycle: float | None = Field(None, description="while tokens were generated")
    prompt_instructions_per_cycle: float | None = Field(
        None, description="from the start to the first token, loading included"
    )
    dram_bytes_per_token: int | None = Field(
        None,
        description="estimate: refills of the last cache while tokens were generated x bytes of a"
        " refill; prefetched and written bytes are not counted",
    )
    counted_permille: int | None = Field(
        None,
        description="smallest share of the time in which one of these events was counted, if the"
        " CPU's counters took turns",
    )
    first_quarter_ns: int | None = Field(
        None, description="median gap of the first quarter of the gaps between tokens"
    )
    last_quarter_ns: int | None = None


class Workload(Record):
    """Meaning of the engine's parameters. None = the engine has no such parameter."""

    threads: int | None = None
    tokens: int | None = Field(None, description="tokens to generate")
    batch: int | None = Field(None, description="prompt tokens that are computed in one pass")
    prompt_tokens: int | None = Field(
        None, description="tokens of a prompt that the program makes itself"
    )


class TrialLimit(Record):
    """Time limit of a trial on the board."""

    seconds: float
    source: str = Field(description="source of the limit, for people")


class TrialPrediction(Record):
    """Prediction of a trial, made before any transfer.

    A lower bound if the model fits in memory; otherwise close to the expected time.
    """

    token_ns: int
    trial_ns: int = Field(description="load, prompt and all tokens")
    ttft_ns: int | None = Field(None, description="load, prompt, and the program's own warm-up")
    resident_token_ns: int | None = Field(
        None,
        description="predicted time if the weights stay in memory, for a model that may or may not"
        " fit; else None",
    )
    storage_token_ns: int | None = Field(
        None, description="predicted time if they are read from storage for every token"
    )
    upper_token_ns: int | None = Field(
        None, description="longest expected time, if storage reads single pages of them"
    )
    bound: Literal["dram", "storage", "compute"]
    source: str = Field(description="source of the board's rates")


class TrialBound(Record):
    """Explanation of a result by its nearest bound."""

    kind: Literal["dram", "storage", "compute"] | None = Field(
        description="resource that limits it; None: no known rate of this board does"
    )
    share: float = Field(
        description="the time of the nearest bound over the measured time: 1 = at the bound, more ="
        " the rate that it stands on is too low"
    )
    shares: Mapping[str, float] = Field(
        default_factory=dict,
        description="share of each bound whose rate is known: storage, dram, compute",
    )
    bytes_per_token: int = Field(description="weights and KV cache that one token needs")
    bytes_per_second: float = Field(description="rate at which it moved them")
    ceiling_bytes_per_second: float | None = Field(
        None, description="rate that the nearest bound allows, arithmetic in bytes of weights"
    )
    storage_bytes_per_token: int | None = Field(
        None, description="bytes that the process read from storage, from telemetry"
    )
    measured: bool = Field(
        description="True: that rate was measured on the board; False: its target expects it"
    )
    sentence: str


class TrialRecord(FileRecord):
    """A finished trial."""

    number: int = Field(description="position in the run, from 1")
    slug: str
    variant: str = Field(description="the combination of the matrix; same for all repeats")
    repeat: int = Field(description="from 1; 0 = a warm-up, never part of a result")
    model: ModelIdentity
    parameters: dict[str, JsonValue] = Field(description="engine parameters as used")
    workload: Workload | None = Field(
        None, description="None: an imported measurement does not name it"
    )
    board: str
    target: str
    execution: Execution
    argv: tuple[str, ...] = ()
    comparability: dict[str, JsonValue] = Field(
        default_factory=dict, description="values that must be equal in comparable records"
    )
    conditions: tuple[ConditionRecord, ...] = Field(
        (), description="required state of the board, as it was when the trial began"
    )
    phone_state: PhoneState | None = Field(
        None, description="battery and screen of a phone when the trial began, or was continued"
    )
    state: TrialState
    failure: Failure | None = None
    skip_reason: str | None = Field(
        None, description="reason for a planned trial that was not run, or not completed"
    )
    attempt: int = Field(1, description="number of attempts; an interrupted attempt is no result")
    earlier_failures: tuple[Failure, ...] = Field(
        (), description="failures that interrupted the earlier attempts: host, link or board"
    )
    resumed: int = Field(0, description="number of resumes of the run before this trial")
    started: Moment
    finished: Moment
    took_ns: int | None = Field(
        None,
        ge=0,
        description="from start to record by a clock of the host that nobody sets, as long as its"
        " last controller looked; None = a skipped trial, or an imported one",
    )
    waited_ns: int | None = Field(
        None,
        description="wait for the board to become ready; None: an earlier controller started the"
        " trial",
    )
    limit: TrialLimit | None = Field(None, description="None: no job was started")
    job: JobStatus | None = None
    timing: TimingRecord | None = None
    evidence: TelemetrySummary | None = None
    energy: EnergyRecord | None = Field(None, description="None = the board has no meter")
    predicted: TrialPrediction | None = None
    bound: TrialBound | None = None
    checks: tuple[Check, ...] = ()
    measured_to_predicted: float | None = Field(
        None,
        description="mean time of a token divided by the predicted time; None unless there is"
        " exactly one prediction",
    )
