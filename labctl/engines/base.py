"""The contract of an engine: its program, how to run it, how to read its output.

An engine knows programs and flags by version, and turns the raw files of a job into a
:class:`~labctl.records.timing.TimingRecord`. It starts no program and uses no board. A value that
the raw files do not prove is ``None`` or an error.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from io import BytesIO
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar

from pydantic import ConfigDict, JsonValue, ValidationError, model_validator

from labctl.config.recipe import EngineChoice
from labctl.config.recipe_parts import Scalar
from labctl.config.types import BoardPath, InterruptibleModel
from labctl.config.yaml.document import StrictModel, refuse
from labctl.config.yaml.loader import Value
from labctl.config.yaml.messages import explain, path_text
from labctl.engines.progress import ProgramProgress, Seen, printed
from labctl.errors import ConfigError, HostError, LabctlError, OutputNotUnderstood
from labctl.records.board import BoardFacts
from labctl.records.timing import TimingRecord
from labctl.records.trial import Check, JobStatus, ModelIdentity, Workload
from labctl.suggestions import listed
from labctl.text_types import HostPath, Word
from labctl.units import size

_SOURCES = ("product", "file", "board")


class ProgramSource(StrictModel):
    """Source of a program: exactly one of product, file and board."""

    product: Word | None = None
    """A product that labctl builds; with `tool`."""
    tool: Word | None = None
    """One of the product's tools."""
    file: HostPath | None = None
    """A program for the board, in a file of this host; a relative path begins at the lab's
    folder."""
    board: BoardPath | None = None
    """A program that is already on the board."""

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        given = [name for name in _SOURCES if getattr(self, name) is not None]
        if len(given) != 1:
            what = f"has {listed(given, joiner='and')}" if given else "has none"
            raise refuse(f"a program comes from exactly one of {listed(_SOURCES)}; this one {what}")
        if (self.product is None) != (self.tool is None):
            raise refuse("give product and tool together")
        return self


#: Name of a program that was built without a revision.
_UNTOLD = "unknown"
#: Approximate bytes of text per token: of English words, or two Chinese characters.
TEXT_BYTES_PER_TOKEN = 4


class EngineParameters(InterruptibleModel):
    """Base of an engine's parameters in a recipe: immutable, strict, no unknown keys."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, defer_build=True
    )


P = TypeVar("P", bound=EngineParameters)


class EngineKeys(EngineChoice):
    """Base of the recipe's ``engine`` mapping: an engine adds its own keys."""

    model_config = ConfigDict(extra="forbid")


K = TypeVar("K", bound=EngineKeys)


@dataclass(frozen=True)
class Roles:
    """Names of the parameters used to plan, predict and record; None if there is no such parameter.

    ``threads``: CPU threads. ``tokens``: number of generated tokens; a plan may reduce it.
    ``warm_up``: true if the program makes its own pass before it measures; a plan may leave it out.
    ``batch``: number of prompt tokens processed together. ``prompt_tokens``: length of a prompt
    that the program generates itself.
    """

    threads: str | None = None
    tokens: str | None = None
    warm_up: str | None = None
    batch: str | None = None
    prompt_tokens: str | None = None

    def names(self) -> tuple[str, ...]:
        """Return the parameters that have a role."""
        return tuple(name for name in vars(self).values() if name is not None)

    def workload(self, parameters: Mapping[str, object]) -> Workload:
        """Return the workload of resolved parameters; a value that is not a number becomes None."""

        def whole(key: str | None) -> int | None:
            value = None if key is None else parameters.get(key)
            return value if isinstance(value, int) and not isinstance(value, bool) else None

        return Workload(
            threads=whole(self.threads),
            tokens=whole(self.tokens),
            batch=whole(self.batch),
            prompt_tokens=whole(self.prompt_tokens),
        )


@dataclass(frozen=True)
class Tool:
    """A program of an artifact, and the set of flags that it understands."""

    name: str
    profile: str


@dataclass(frozen=True)
class Resolved(Generic[P]):
    """Parameters with all values chosen, and notes about labctl's choices."""

    parameters: P
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class MemoryNeed:
    """Memory of a run in bytes; ``None`` if the model does not say.

    Mapped weights are pages of the file: the kernel may drop them and must read them again. Weights
    that a generation hardly reads do not count. Repacked weights are copies, or weights that were
    read but not mapped. All other memory is anonymous; without it the program fails.
    """

    mapped_bytes: int
    repacked_bytes: int
    kv_bytes: int | None
    compute_bytes: int | None
    #: Bytes that each used position adds to the reads of a token, in the cache's own types.
    kv_bytes_per_position: int | None = None
    #: Other memory of the program: its vocabulary, graphs, output buffers.
    program_bytes: int = 0
    #: Low-rank adapters, which are read and not mapped.
    adapter_bytes: int = 0

    def beside(self, other: "MemoryNeed") -> "MemoryNeed":
        """Return the need of both at once; one position of the cache is still of the first."""
        kv = compute = None
        if self.kv_bytes is not None and other.kv_bytes is not None:
            kv = self.kv_bytes + other.kv_bytes
        if self.compute_bytes is not None and other.compute_bytes is not None:
            compute = self.compute_bytes + other.compute_bytes
        return replace(
            self,
            mapped_bytes=self.mapped_bytes + other.mapped_bytes,
            repacked_bytes=self.repacked_bytes + other.repacked_bytes,
            kv_bytes=kv,
            compute_bytes=compute,
            program_bytes=self.program_bytes + other.program_bytes,
            adapter_bytes=self.adapter_bytes + other.adapter_bytes,
        )

    @property
    def anonymous_bytes(self) -> int:
        """Bytes that cannot be dropped, as far as known."""
        buffers = (self.kv_bytes or 0) + (self.compute_bytes or 0)
        return self.repacked_bytes + buffers + self.program_bytes + self.adapter_bytes

    @property
    def total_bytes(self) -> int:
        """All memory at once, as during copying, as far as known."""
        return self.mapped_bytes + self.anonymous_bytes

    @property
    def resident_bytes(self) -> int:
        """Bytes that must stay in memory so that no weight is read twice, as far as known.

        The file pages of copied weights are not needed again.
        """
        return max(0, self.mapped_bytes - self.repacked_bytes) + self.anonymous_bytes


@dataclass(frozen=True)
class TokenCounts:
    """Minimum work of one run: number of prompts and generated tokens.

    It reads ``prompts`` texts of ``prompt_tokens`` each, and generates ``tokens`` one after the
    other.
    """

    prompts: int
    prompt_tokens: int
    tokens: int
    #: Part of ``tokens`` before the first printed one; None: tokens are not printed one by one.
    before_first: int | None = None


@dataclass(frozen=True)
class Listen:
    """Port of a server on its machine's loopback, and the server's name.

    The name is unique to this start, so an answer of another server is recognised.
    """

    port: int
    name: str


@dataclass(frozen=True)
class Inputs:
    """Inputs of a command: paths on the board, the prompt itself, the address to listen on.

    ``None``, or a missing file, if the engine does not use it.
    """

    program: str
    model: str | None = None
    prompt: str | None = None
    files: Mapping[str, str] = field(default_factory=dict)
    listen: Listen | None = None
    #: The smaller model that guesses tokens.
    draft: str | None = None
    #: Low-rank adapters, each with its scale.
    adapters: tuple[tuple[str, float], ...] = ()
    #: CPUs that the job may use, as ``0-3,5``.
    cpus: str | None = None


#: The agent ends a job at 64 MiB of output.
_MOST_BYTES = 128 << 20


@dataclass(frozen=True)
class RawOutput:
    """Files that a job left in its directory."""

    stdout: bytes
    stderr: bytes
    timeline: bytes

    @classmethod
    def read(cls, directory: Path) -> "RawOutput":
        """Read ``stdout``, ``stderr`` and ``timeline`` as pulled.

        Raises OutputNotUnderstood if they are larger than the agent allows; HostError.
        """
        return cls(*(_read(directory / name) for name in ("stdout", "stderr", "timeline")))


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            found = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise HostError(f"cannot read {path}: {error.strerror}") from error
    if len(found) > _MOST_BYTES:
        raise OutputNotUnderstood(f"{path.name} of the job is larger than {size(_MOST_BYTES)}")
    return found


def lines_of(raw: bytes, *, most: int | None = None) -> Iterator[bytes]:
    """Yield the lines of an output with their ends; a list of them could take gigabytes.

    Raises OutputNotUnderstood for more than ``most``.
    """
    for number, line in enumerate(BytesIO(raw), 1):
        if number == most:
            raise OutputNotUnderstood(f"the program printed {most:,} lines or more")
        yield line


#: Usual names of parameters that define the work, and do not affect the time per token.
USUAL_WORKLOAD = ("tokens", "prompt_tokens", "context", "seed", "temperature", "warmup")


class EngineBase(ABC, Generic[P]):
    """One task of one kind of inference program.

    Common part of programs that end (:class:`Engine`) and servers
    (:class:`~labctl.engines.server.ServerEngine`).
    """

    #: Name in recipes, and task.
    name: ClassVar[str]
    task: ClassVar[str]
    #: Product whose artifacts contain its programs.
    product: ClassVar[str]
    #: Model of the recipe's ``engine``.
    keys_model: ClassVar[type[EngineKeys]] = EngineKeys
    parameters_model: type[P]
    #: Roles of its parameters.
    roles: Roles = Roles()
    #: Further parameters that define the work or display, and do not affect the time per token.
    workload_parameters: ClassVar[tuple[str, ...]] = USUAL_WORKLOAD
    #: Parameters with the types of the KV cache -> their default; None: unknown.
    cache_types: ClassVar[Mapping[str, str | None]] = {}
    #: Source of its program; None for a tool of its product.
    program: ProgramSource | None = None
    #: True if its models must be GGUF files.
    reads_gguf: ClassVar[bool] = True
    #: True if it continues a prompt; otherwise a prompt is refused.
    uses_prompt: bool = False
    #: Files of the recipe that it reads, by name.
    files: tuple[str, ...] = ()
    #: True if it can change a model by low-rank adapters.
    uses_adapters: bool = False

    @classmethod
    def chosen(cls, keys: Any) -> Self:  # noqa: ARG003 - of engines with keys of their own
        """Make the engine for a recipe's ``engine``, an instance of ``keys_model``."""
        return cls()

    def parameters(self, values: Mapping[str, Value]) -> P:
        """Check a recipe's parameters.

        Raises ConfigError that names each wrong key, the expected value, and the nearest valid
        name.
        """
        document: dict[str, Value] = dict(values)
        try:
            return self.parameters_model.model_validate(document)
        except ValidationError as error:
            problems = [
                f"{path_text(('parameters', *path))}: {sentence}"
                for path, sentence, _ in explain(error.errors(), document, self.parameters_model)
            ]
            raise ConfigError("; ".join(problems)) from error

    def for_version(self, tool: Tool, parameters: P) -> P:  # noqa: ARG002 - for subclasses
        """Decide the parameters whose default differs between versions of the program."""
        return parameters

    def resolved(
        self,
        tool: Tool,
        values: Mapping[str, Value],
        facts: BoardFacts,
        model: ModelIdentity,
        text_bytes: int | None = None,
    ) -> Resolved[P]:
        """Decide all that a recipe left open, last by the version: a model may forbid its default.

        Raises ConfigError.
        """
        found = self.resolve_defaults(self.parameters(values), facts, model, text_bytes)
        return replace(found, parameters=self.for_version(tool, found.parameters))

    def effective(self, parameters: P, text_bytes: int) -> P:  # noqa: ARG002 - for subclasses
        """Return parameters that are the same for settings that do the same with a prompt."""
        return parameters

    @abstractmethod
    def resolve_defaults(
        self,
        parameters: P,
        facts: BoardFacts,
        model: ModelIdentity,
        text_bytes: int | None = None,
    ) -> Resolved[P]:
        """Choose values that the recipe left open, based on the board, the model and the text."""

    @abstractmethod
    def memory(
        self, parameters: P, model: ModelIdentity, text_bytes: int | None = None
    ) -> MemoryNeed | None:
        """Return the memory of a run with resolved parameters; None if unknown.

        ``text_bytes``: length of the prompt, or of the text that it reads; None: the maximum.
        """

    @abstractmethod
    def tool(self, available: Collection[str], *, offered: Collection[str]) -> Tool:
        """Choose the program and its flags.

        Args:
            available: the programs that an artifact holds.
            offered: all programs that its version can be built with.

        Raises ConfigError if none of them is suitable.
        """

    @abstractmethod
    def command(self, tool: Tool, parameters: P, inputs: Inputs) -> list[str]:
        """Return the argument vector for a board. Raises ConfigError if that is impossible."""

    def comparability(self, tool: Tool, parameters: P) -> dict[str, JsonValue]:
        """Return the values that must be equal in comparable records: program and parameters."""
        return {
            "engine": self.name,
            "intent": self.task,
            "tool": tool.name,
            "dialect": tool.profile,
            **parameters.model_dump(mode="json"),
        }

    def tunable(
        self,
        facts: BoardFacts,  # noqa: ARG002 - of others
        objectives: Collection[str],  # noqa: ARG002 - of others
    ) -> Mapping[str, Sequence[Any]]:
        """Return the parameters that a search tries by default, with their values."""
        return {}

    def locks_memory(self, parameters: P) -> bool:  # noqa: ARG002 - locks no memory
        """Return True if its program locks memory, which needs permission."""
        return False

    @abstractmethod
    def diagnose(self, job: JobStatus, raw: RawOutput) -> LabctlError | None:
        """Return why a job failed; ``None`` if it succeeded."""


class Engine(EngineBase[P]):
    """A program that ends by itself, and is measured from start to end."""

    #: True if :meth:`answer` returns the generated text.
    shows_text: bool = False
    #: Task that measures how far a setting's probabilities are from the logits in a file.
    guard_task: ClassVar[str | None] = None
    #: Of a task that reads a text in chunks: the parameter that is a chunk's tokens.
    chunk_parameter: ClassVar[str] = ""

    def of_one_chunk(self, values: Mapping[str, Scalar], tokens: int) -> dict[str, Scalar]:  # noqa: ARG002 - of others
        """Return a guard's parameters so that it reads one chunk of so many tokens at a time."""
        return dict(values)

    def token_counts(self, parameters: P, text_bytes: int) -> TokenCounts | None:  # noqa: ARG002 - of others
        """Return the work of a run with resolved parameters; None if unknown.

        ``text_bytes``: length of the prompt, or of the text that it reads.
        """
        return None

    def progress(self, seen: Seen, parameters: P) -> ProgramProgress:  # noqa: ARG002 - others look at them
        """Return the progress of a run, for display only."""
        return printed(seen)

    @abstractmethod
    def parse(self, raw: RawOutput, parameters: P) -> TimingRecord:
        """Read the output of a successful job. Raises OutputNotUnderstood."""

    def answer(self, raw: RawOutput) -> bytes | None:  # noqa: ARG002 - of others
        """Return the generated text of a successful job; None if the program shows none."""
        return None

    @abstractmethod
    def checks(self, timing: TimingRecord, parameters: P) -> tuple[Check, ...]:
        """Return the checks that are possible with the numbers of a result."""

    def build_check(self, timing: TimingRecord, revision: str | None) -> Check | None:
        """Check that the program reports the built revision; None if it reports no revision.

        ``revision``: source revision of the artifact, if there is an artifact.
        """
        if timing.program_version is None:
            return None
        stated = timing.program_version.partition(" ")[0]
        comparable = stated != _UNTOLD and revision is not None
        return Check(
            name="build",
            ok=stated == revision if comparable else None,
            detail=(
                f"the program reports {stated}, the artifact's source is {revision or 'not known'}"
            ),
        )
